/* SPDX-License-Identifier: Apache-2.0 */
/* From the fields of a request to the transform that they ask for, and the checks of where its tensors lie.
 * Pure: who finds the memory that a request names is the caller's affair. */
#ifndef KERNELS_TRANSFORM_REQUEST_H
#define KERNELS_TRANSFORM_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/schema.h"
#include "split.h"
#include "transform.h"

/* ---- Fields ---------------------------------------------------------------------------------------- */

/* Sets the layout of a tensor; errors call it name. */
int tensor_layout_of(struct tensor_layout *ret, const struct msg_tensor *tensor, const char *name,
                     struct error *err);

/* Copies a list of integers and returns how many there are, or -1 if the list is not present. */
int ints_of(int64_t *ret, const struct int_list *list, bool present);

/* Sets the transform that is asked for, without its splits. Refuses strides and shapes that do not agree with
 * each other; transform_init checks the rest. */
int transform_spec_of(const struct msg_transform *params, struct transform_spec *ret, struct error *err);

/* Returns whether one of its tensors is split. */
bool transform_is_split(const struct msg_transform *params);

/* Sets the same with its splits carried out and checked. A transform without splits is its only part and
 * remains to be checked. */
int transform_split_of(const struct msg_transform *params, struct split *ret, struct error *err);

/* Returns whether the request has tensors beside dst and src: what it converts by, and the scales that it
 * computes. Most requests have none. */
bool transform_has_operands(const struct msg_transform *params);

/* Returns the number that the transform converts by, or 0 if it is a tensor or not given. */
double operand_number(const struct msg_operand *params, bool is_given);

/* ---- Places ---------------------------------------------------------------------------------------- */

/* Where the tensors of a request lie. Those that the transform does not have are ignored. */
struct request_places {
	struct tensor_place dst, src;
	struct tensor_place scale, bias;
	struct tensor_place amax_scale, amax_inverse;
};

/* Checks the tensors that the transform has beside dst and src. What it converts by must lie in its region
 * and may not share bytes with the destination; the scales that it computes share bytes with nothing
 * (OUT_OF_RANGE, OVERLAP). If there are many destinations, sides is NULL, and they are not looked at; that is
 * not possible with amax. */
int request_check_operands(const struct request_places *places, const struct transform_sides *sides,
                           const struct conversion *conversion, struct error *err);

#endif
