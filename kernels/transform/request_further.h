/* SPDX-License-Identifier: Apache-2.0 */
/* A transform may have several destinations. These functions check them; they have no side effects, like
 * those of request.h. */
#ifndef KERNELS_TRANSFORM_REQUEST_FURTHER_H
#define KERNELS_TRANSFORM_REQUEST_FURTHER_H

#include <stdint.h>

#include "proto/schema.h"
#include "transform.h"

/* Destinations that a transform has at most, beside the first. */
#define REQUEST_MOST_FURTHER 64

struct request_destination {
	struct msg_tensor tensor;
	struct tensor_layout layout;
	struct tensor_extent extent;
	struct tensor_place place;
};

/* Refuses more further destinations than a transform may have, and scales computed on the way (amax), which
 * are those of one destination. */
int request_check_further(const struct msg_transform *params, struct error *err);

/* Checks that a further destination has the type and shape of dst, and gives it the splits of dst. */
int request_take_further(const struct msg_tensor *dst, struct msg_tensor *further, struct error *err);

/* Makes the error one about further destination i. Returns its status. */
int request_name_further(uint32_t i, struct error *err);

/* Checks that no two of n destinations share bytes (OVERLAP), and does what request_check_effort does. */
int request_check_destinations(const struct request_destination *of, uint32_t n, uint64_t steps_before,
                               struct error *err);

/* Bounds the searches for overlaps of one request, QUOTA: steps_before is what overlap_steps was before it.
 */
int request_check_effort(uint64_t steps_before, struct error *err);

/* Returns the transform that copies one destination to another. Splits do not matter to it. */
struct msg_transform request_copy_between(const struct msg_tensor *dst, const struct msg_tensor *src);

#endif
