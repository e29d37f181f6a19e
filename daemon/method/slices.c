/* SPDX-License-Identifier: Apache-2.0 */
/* A message has room for a few hundred slices, so each destination is compared with each other slice. */
#include "slices.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/net/session.h"
#include "daemon/resource/region.h"
#include "kernels/transform/request.h"
#include "proto/overlap.h"
#include "proto/wire/rpc.h"
#include "transforms.h"

/* What follows a slice's name in sentences: ".tensor.region". */
#define FIELD_NAME_SIZE (SLICE_NAME_SIZE + 16)

/* Steps of the search for overlaps: for all slices together, and in addition for each. */
#define MOST_STEPS  65536
#define SLICE_STEPS 256

/* A pair that has to be looked at takes as long as so many. */
#define PAIR_STEPS 4

static const char *field_name(const char *slice, const char *field, char text[FIELD_NAME_SIZE])
{
	snprintf(text, FIELD_NAME_SIZE, "%s.%s", slice, field);
	return text;
}

char *slice_name(const struct slices *slices, uint32_t i, char text[SLICE_NAME_SIZE])
{
	const bool is_source = i >= slices->n_destinations;

	snprintf(text, SLICE_NAME_SIZE, "%s[%" PRIu32 "]", is_source ? "sources" : "destinations",
	         is_source ? i - slices->n_destinations : i);
	return text;
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

static int find_memory(struct session *session, const struct msg_tensor *tensor, const char *name,
                       bool is_destination, struct slice *slice, struct error *err)
{
	char field[FIELD_NAME_SIZE];
	int r;

	if (!(tensor->has & F(tensor, region)))
		return error_set(err, STATUS_INVALID_ARGUMENT, "%s.tensor.region: missing", name);
	r = region_table_find(&session->regions, tensor->region, field_name(name, "tensor.region", field),
	                      &slice->region, err);
	if (r == 0 && is_destination)
		r = region_check_writable(slice->region, field, err);
	if (r < 0)
		return r;
	slice->offset = tensor->offset;
	slice->extent = tensor_extent(&slice->layout);
	return tensor_check_range(slice->extent, slice->offset, slice->region->memory->size,
	                          field_name(name, "tensor", field), err);
}

static int slice_of(struct session *session, const struct slices *slices, uint32_t i,
                    const struct msg_slice *params, const struct int_list *shape, struct error *err)
{
	const bool is_destination = i < slices->n_destinations;
	struct slice *slice = &slices->slice[i];
	char name[SLICE_NAME_SIZE], field[FIELD_NAME_SIZE];
	int r;

	slice_name(slices, i, name);
	if (params->tensor.has & F(tensor, split))
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s.tensor.split: it is not split; only dst and src are", name);
	r = tensor_layout_of(&slice->layout, &params->tensor, field_name(name, "tensor", field), err);
	if (r == 0)
		r = check_kin(slices, i, name, err);
	if (r == 0 && shape && i == 0)
		r = check_shape(shape, slice->layout.rank, err);
	if (r == 0)
		r = box_of(&slice->layout, &params->start, shape, name, &slices->box[i], err);
	if (r == 0)
		r = find_memory(session, &params->tensor, name, is_destination, slice, err);
	if (r == 0 && is_destination)
		r = transform_check_self_overlap(&slice->layout, field_name(name, "tensor", field), err);
	return r;
}

/* ---- Memory that is shared ---------------------------------------------------------------------------- */

/* false: certainly not. Most are told apart by their regions or by their extents. */
static bool may_share(const struct slice *a, const struct tensor_place *a_place, const struct slice *b,
                      const struct tensor_place *b_place)
{
	const __int128 distance = (__int128)b_place->base + b_place->offset - a_place->base - a_place->offset;

	if (!places_in_one_memory(a_place, b_place))
		return a_place->chunks && b_place->chunks;
	return distance + b->extent.low < a->extent.high && distance + b->extent.high > a->extent.low;
}

static int check_pair(const struct slices *slices, uint32_t i, uint32_t j, struct error *err)
{
	const struct slice *dst = &slices->slice[i], *other = &slices->slice[j];
	const struct tensor_place at = place_of(dst->region, dst->offset);
	const struct tensor_place other_at = place_of(other->region, other->offset);
	char name[SLICE_NAME_SIZE], other_name[SLICE_NAME_SIZE];
	struct transform_sides sides;
	int r;

	if (!may_share(dst, &at, other, &other_at))
		return 0;
	overlap_count_steps(PAIR_STEPS);
	sides = (struct transform_sides){ .dst = &dst->layout,
		                          .src = &other->layout,
		                          .dst_extent = dst->extent,
		                          .src_extent = other->extent };
	r = transform_check_side(&sides, &at, &other_at, "", err);
	if (r == 0)
		return 0;
	/* Names are made only for a sentence: they would take longer than the check. */
	sides.dst_name = slice_name(slices, i, name);
	return transform_check_side(&sides, &at, &other_at, slice_name(slices, j, other_name), err);
}

/* All users share the loop. */
static int check_effort(const struct slices *slices, uint64_t steps_before, struct error *err)
{
	const uint64_t most = MOST_STEPS + (uint64_t)slices->n * SLICE_STEPS;

	if (overlap_steps() - steps_before <= most)
		return 0;
	return error_set(err, STATUS_QUOTA,
	                 "checking the slices for overlap took more than %" PRIu64
	                 " steps, as many as %" PRIu32 " slices have; send fewer in a request",
	                 most, slices->n);
}

static int check_pairs(const struct slices *slices, uint64_t steps_before, struct error *err)
{
	int r = 0;

	for (uint32_t i = 0; i < slices->n_destinations && r == 0; i++)
		for (uint32_t j = i + 1; j < slices->n && r == 0; j++)
			r = check_pair(slices, i, j, err) ?: check_effort(slices, steps_before, err);
	return r;
}

/* ---- All slices --------------------------------------------------------------------------------------- */

static bool make_room(struct slices *slices)
{
	slices->slice = calloc(slices->n ?: 1, sizeof *slices->slice);
	slices->box = calloc(slices->n ?: 1, sizeof *slices->box);
	return slices->slice && slices->box;
}

void slices_free(struct slices *slices)
{
	free(slices->slice);
	free(slices->box);
}

/* first: where the list's are among all slices. */
static int take_list(struct session *session, const struct message_list *list, const char *name,
                     const struct int_list *shape, const struct slices *slices, uint32_t first,
                     uint64_t steps_before, struct error *err)
{
	struct msg_slice params;
	int r = 0;

	for (uint32_t i = 0; i < list->n && r == 0; i++) {
		r = rpc_decode_slice(list, name, i, &params, err);
		if (r == 0)
			r = slice_of(session, slices, first + i, &params, shape, err);
		if (r == 0)
			r = check_effort(slices, steps_before, err);
	}
	return r;
}

int slices_of(struct session *session, const struct msg_reshard *params, struct slices *ret,
              struct error *err)
{
	const struct int_list *shape = params->has & F(reshard, shape) ? &params->shape : NULL;
	const uint64_t steps_before = overlap_steps();
	struct slices slices = { .n_destinations = params->destinations.n,
		                 .n = params->destinations.n + params->sources.n };
	int r = 0;

	if (!make_room(&slices))
		r = error_set(err, STATUS_NO_MEMORY, "no memory for %" PRIu32 " slices", slices.n);
	if (r == 0)
		r = take_list(session, &params->destinations, "destinations", shape, &slices, 0, steps_before,
		              err);
	if (r == 0)
		r = take_list(session, &params->sources, "sources", shape, &slices, slices.n_destinations,
		              steps_before, err);
	if (r == 0)
		r = check_pairs(&slices, steps_before, err);
	if (r < 0) {
		slices_free(&slices);
		return r;
	}
	slices.rank = slices.n ? slices.slice[0].layout.rank : 0;
	*ret = slices;
	return 0;
}
