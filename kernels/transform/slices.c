/* SPDX-License-Identifier: Apache-2.0 */
/* A message has room for a few hundred slices, so each destination is compared with each other slice. */
#include "slices.h"

#include <inttypes.h>
#include <stdio.h>

#include "proto/overlap.h"
#include "request.h"

/* Steps of the search for overlaps: for all slices together, and in addition for each. */
#define MOST_STEPS  65536
#define SLICE_STEPS 256

/* A pair that has to be looked at takes as long as so many. */
#define PAIR_STEPS 4

char *slice_name(const struct slices *slices, uint32_t i, char text[SLICE_NAME_SIZE])
{
	const bool is_source = i >= slices->n_destinations;

	snprintf(text, SLICE_NAME_SIZE, "%s[%" PRIu32 "]", is_source ? "sources" : "destinations",
	         is_source ? i - slices->n_destinations : i);
	return text;
}

static char *field_name(const struct slices *slices, uint32_t i, const char *field,
                        char text[SLICE_FIELD_SIZE])
{
	char name[SLICE_NAME_SIZE];

	snprintf(text, SLICE_FIELD_SIZE, "%s.%s", slice_name(slices, i, name), field);
	return text;
}

char *slice_region_name(const struct slices *slices, uint32_t i, char text[SLICE_FIELD_SIZE])
{
	return field_name(slices, i, "tensor.region", text);
}

/* ---- Layouts and boxes -------------------------------------------------------------------------------- */

/* All are slices of one tensor: what the first has, the others have. */
static int check_kin(const struct slices *slices, uint32_t i, const char *name, struct error *err)
{
	const struct tensor_layout *own = &slices->slice[i].layout, *first = &slices->slice[0].layout;
	char first_name[SLICE_NAME_SIZE];

	slice_name(slices, 0, first_name);
	if (own->rank != first->rank)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s.tensor.shape: rank %d, but %s has rank %d; slices have the rank of the "
		                 "global tensor",
		                 name, own->rank, first_name, first->rank);
	if (own->dtype != first->dtype)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s.tensor.dtype: %s, but %s is %s; a reshard does not convert elements",
		                 name, dtype_names[own->dtype], first_name, dtype_names[first->dtype]);
	return 0;
}

static int box_of(const struct tensor_layout *layout, const struct int_list *start,
                  const struct int_list *shape, const char *name, struct box *ret, struct error *err)
{
	if (start->n != (uint32_t)layout->rank)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s.start: %" PRIu32 " entries, but the tensor has rank %d", name, start->n,
		                 layout->rank);
	for (int d = 0; d < layout->rank; d++) {
		ret->low[d] = start->v[d];
		if (ret->low[d] < 0)
			return error_set(err, STATUS_INVALID_ARGUMENT,
			                 "%s.start: dimension %d starts at %" PRId64
			                 ", but the first element is 0",
			                 name, d, ret->low[d]);
		if (__builtin_add_overflow(ret->low[d], layout->shape[d], &ret->high[d]))
			return error_set(err, STATUS_INVALID_ARGUMENT,
			                 "%s.start: dimension %d starts at %" PRId64
			                 ", so its end overflows 63 bits",
			                 name, d, ret->low[d]);
		if (shape && ret->high[d] > shape->v[d])
			return error_set(err, STATUS_OUT_OF_RANGE,
			                 "%s: dimension %d ends at element %" PRId64
			                 ", but the global tensor has %" PRId64,
			                 name, d, ret->high[d], shape->v[d]);
	}
	return 0;
}

static int check_shape(const struct int_list *shape, int rank, struct error *err)
{
	if (shape->n != (uint32_t)rank)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "shape: %" PRIu32 " entries, but the slices have rank %d", shape->n, rank);
	for (uint32_t d = 0; d < shape->n; d++)
		if (shape->v[d] < 0)
			return error_set(err, STATUS_INVALID_ARGUMENT,
			                 "shape: dimension %" PRIu32 " is %" PRId64
			                 ", but no dimension can be negative",
			                 d, shape->v[d]);
	return 0;
}

/* ---- One slice ---------------------------------------------------------------------------------------- */

int slices_set(struct slices *slices, uint32_t i, const struct msg_slice *params,
               const struct int_list *shape, struct error *err)
{
	struct slice *slice = &slices->slice[i];
	char name[SLICE_NAME_SIZE], field[SLICE_FIELD_SIZE];
	int r;

	slice_name(slices, i, name);
	if (params->tensor.has & F(tensor, split))
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s.tensor.split: it is not split; only dst and src are", name);
	r = tensor_layout_of(&slice->layout, &params->tensor, field_name(slices, i, "tensor", field), err);
	if (r == 0)
		r = check_kin(slices, i, name, err);
	if (r == 0 && shape && i == 0)
		r = check_shape(shape, slice->layout.rank, err);
	if (r == 0)
		r = box_of(&slice->layout, &params->start, shape, name, &slices->box[i], err);
	slices->rank = slices->slice[0].layout.rank;
	return r;
}

/* All users share the loop. */
static int check_effort(const struct slices *slices, struct error *err)
{
	const uint64_t most = MOST_STEPS + (uint64_t)slices->n * SLICE_STEPS;

	if (overlap_steps() - slices->steps <= most)
		return 0;
	return error_set(err, STATUS_QUOTA,
	                 "checking the slices for overlap took more than %" PRIu64
	                 " steps, as many as %" PRIu32 " slices have; send fewer in a request",
	                 most, slices->n);
}

int slices_set_place(struct slices *slices, uint32_t i, const struct tensor_place *place, struct error *err)
{
	struct slice *slice = &slices->slice[i];
	char field[SLICE_FIELD_SIZE];
	int r;

	slice->place = *place;
	slice->extent = tensor_extent(&slice->layout);
	field_name(slices, i, "tensor", field);
	r = tensor_check_range(slice->extent, place->offset, place->size, field, err);
	if (r == 0 && i < slices->n_destinations)
		r = transform_check_self_overlap(&slice->layout, field, err);
	return r < 0 ? r : check_effort(slices, err);
}

/* ---- Memory that is shared ---------------------------------------------------------------------------- */

/* false: certainly not. Most are told apart by their regions or by their extents. */
static bool may_share(const struct slice *a, const struct slice *b)
{
	const struct tensor_place *at = &a->place, *to = &b->place;
	const __int128 distance = (__int128)to->base + to->offset - at->base - at->offset;

	if (!places_in_one_memory(at, to))
		return at->chunks && to->chunks;
	return distance + b->extent.low < a->extent.high && distance + b->extent.high > a->extent.low;
}

static int check_pair(const struct slices *slices, uint32_t i, uint32_t j, struct error *err)
{
	const struct slice *dst = &slices->slice[i], *other = &slices->slice[j];
	char name[SLICE_NAME_SIZE], other_name[SLICE_NAME_SIZE];
	struct transform_sides sides;
	int r;

	if (!may_share(dst, other))
		return 0;
	overlap_count_steps(PAIR_STEPS);
	sides = (struct transform_sides){ .dst = &dst->layout,
		                          .src = &other->layout,
		                          .dst_extent = dst->extent,
		                          .src_extent = other->extent };
	r = transform_check_side(&sides, &dst->place, &other->place, "", err);
	if (r == 0)
		return 0;
	/* Names are made only for a sentence: they would take longer than the check. */
	sides.dst_name = slice_name(slices, i, name);
	return transform_check_side(&sides, &dst->place, &other->place, slice_name(slices, j, other_name),
	                            err);
}

/* ---- All slices --------------------------------------------------------------------------------------- */

struct slices slices_begin(uint32_t n_destinations, uint32_t n_sources, struct slice *slice, struct box *box)
{
	return (struct slices){ .n_destinations = n_destinations,
		                .n = n_destinations + n_sources,
		                .slice = slice,
		                .box = box,
		                .steps = overlap_steps() };
}

int slices_check(struct slices *slices, struct error *err)
{
	int r = 0;

	for (uint32_t i = 0; i < slices->n_destinations && r == 0; i++)
		for (uint32_t j = i + 1; j < slices->n && r == 0; j++)
			r = check_pair(slices, i, j, err) ?: check_effort(slices, err);
	return r;
}
