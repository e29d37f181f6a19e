/* SPDX-License-Identifier: Apache-2.0 */
/* Destinations of a transform are alike and apart from each other. */
#include "request_further.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/overlap.h"

/* Steps of searches for overlaps that a request may take, about. */
#define MOST_STEPS 65536

#define NAME_SIZE 24 /* of "further_dst[64]" */

int request_check_further(const struct msg_transform *params, struct error *err)
{
	if (params->further_dst.n > REQUEST_MOST_FURTHER)
		return error_set(err, STATUS_INVALID_ARGUMENT, "further_dst: %" PRIu32 " tensors, at most %d",
		                 params->further_dst.n, REQUEST_MOST_FURTHER);
	if (params->has & F(transform, amax))
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "further_dst: not with amax, whose scales are of one destination");
	return 0;
}

int request_take_further(const struct msg_tensor *dst, struct msg_tensor *further, struct error *err)
{
	char text[2][64];

	if (further->dtype != dst->dtype)
		return error_set(err, STATUS_INVALID_ARGUMENT, "dtype: %s, but dst has %s",
		                 dtype_names[further->dtype], dtype_names[dst->dtype]);
	if (further->shape.n != dst->shape.n ||
	    memcmp(further->shape.v, dst->shape.v, dst->shape.n * sizeof *dst->shape.v) != 0)
		return error_set(
		    err, STATUS_INVALID_ARGUMENT, "shape: %s, but dst has %s",
		    tensor_shape_text((int)further->shape.n, further->shape.v, text[0], sizeof text[0]),
		    tensor_shape_text((int)dst->shape.n, dst->shape.v, text[1], sizeof text[1]));
	if (further->has & F(tensor, split))
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "split: that of dst applies to all destinations");
	further->has |= dst->has & F(tensor, split);
	further->split = dst->split;
	return 0;
}

int request_name_further(uint32_t i, struct error *err)
{
	const struct error said = *err;

	return error_set(err, said.status, "further_dst[%" PRIu32 "]: %s", i, said.message);
}

struct msg_transform request_copy_between(const struct msg_tensor *dst, const struct msg_tensor *src)
{
	struct msg_transform copy = { .has = F(transform, dst) | F(transform, src),
		                      .dst = *dst,
		                      .src = *src };

	copy.dst.has &= ~F(tensor, split);
	copy.src.has &= ~F(tensor, split);
	return copy;
}

/* ---- Apart from each other ---------------------------------------------------------------------------- */

static void name_destination(uint32_t i, char text[NAME_SIZE])
{
	if (i == 0)
		strcpy(text, "dst");
	else
		snprintf(text, NAME_SIZE, "further_dst[%" PRIu32 "]", i - 1);
}

static int check_pair(const struct request_destination *of, uint32_t a, uint32_t b, struct error *err)
{
	char name[2][NAME_SIZE];
	const struct transform_sides sides = { .dst = &of[a].layout,
		                               .src = &of[b].layout,
		                               .dst_extent = of[a].extent,
		                               .src_extent = of[b].extent,
		                               .dst_name = name[0] };

	name_destination(a, name[0]);
	name_destination(b, name[1]);
	return transform_check_side(&sides, &of[a].place, &of[b].place, name[1], err);
}

int request_check_destinations(const struct request_destination *of, uint32_t n, uint64_t steps_before,
                               struct error *err)
{
	int r = 0;

	for (uint32_t a = 0; r == 0 && a < n; a++)
		for (uint32_t b = a + 1; r == 0 && b < n; b++) {
			r = check_pair(of, a, b, err);
			if (r == 0)
				r = request_check_effort(steps_before, err);
		}
	return r;
}

int request_check_effort(uint64_t steps_before, struct error *err)
{
	const uint64_t steps = overlap_steps() - steps_before;

	if (steps < MOST_STEPS)
		return 0;
	return error_set(err, STATUS_QUOTA,
	                 "further_dst: checking the destinations for overlap took %" PRIu64
	                 " steps of the %d that a request has; send some of them in another one",
	                 steps, MOST_STEPS);
}
