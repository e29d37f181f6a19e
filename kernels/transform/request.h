/* SPDX-License-Identifier: Apache-2.0 */
/* These functions turn the fields of a request into the transform that it asks for, and check where its
 * tensors lie. They have no side effects; the caller finds the memory that the request names. */
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

/* Sets the transform that is asked for, without its splits. Refuses fields that do not fit each other, such
 * as more strides than dimensions; transform_init checks the rest. */
int transform_spec_of(const struct msg_transform *params, struct transform_spec *ret, struct error *err);

/* Returns whether one of its tensors is split. */
bool transform_is_split(const struct msg_transform *params);

/* Sets the parts into which the splits divide the transform (split.h), and checks them. A transform without
 * splits is its own only part, and transform_init has yet to check it. */
int transform_split_of(const struct msg_transform *params, struct split *ret, struct error *err);

/* Returns whether the request has a scale, a bias or an amax. Most requests have none. */
bool transform_has_operands(const struct msg_transform *params);

/* Returns the number that the transform converts by, or 0 if it is a tensor or not given. */
double operand_number(const struct msg_operand *params, bool is_given);

/* Sets and returns the error of an exact cast that has changed the values of so many elements. */
int request_explain_changed(const struct conversion *conversion, uint64_t changed, struct error *err);

/* Refuses a transform whose tensors have places: a plan gets its places when it runs. */
int request_refuse_places(const struct msg_transform *params, struct error *err);

/* ---- Places ---------------------------------------------------------------------------------------- */

/* Where the tensors of a request lie. Those that the transform does not have are ignored. */
struct request_places {
	struct tensor_place dst, src;
	struct tensor_place scale, bias;
	struct tensor_place amax_scale, amax_inverse;
};

/* Checks the tensors that the transform has beside dst and src. Each must lie in its region (OUT_OF_RANGE).
 * scale and bias must not share bytes with dst, and the results of amax must not share any with dst, src or
 * each other (OVERLAP). sides is NULL for a list of blocks, which has no amax; overlaps with its destination
 * are then not checked. */
int request_check_operands(const struct request_places *places, const struct transform_sides *sides,
                           const struct conversion *conversion, struct error *err);

/* Checks that a word of a timeline, which errors call name, lies in its region and at a multiple of 8 bytes
 * of the memory. region is the id of the region. */
int request_check_word(const struct tensor_place *place, uint64_t region, const char *name,
                       struct error *err);

#endif
