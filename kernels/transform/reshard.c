/* SPDX-License-Identifier: Apache-2.0 */
/* Checks slices and covers destinations. A message can hold only a few hundred slices, so each destination is
 * simply compared with every other slice. Boxes are subtracted dimension by dimension, the outermost first,
 * so that what is left keeps long runs of contiguous elements for as long as possible. */
#include "reshard.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

#include "aliases.h"
#include "proto/overlap.h"
#include "request.h"

/* Maximum number of steps, as overlap_steps counts them, that the search for overlaps may take: MOST_STEPS,
 * and SLICE_STEPS more for each slice. */
#define MOST_STEPS  65536
#define SLICE_STEPS 256

/* Number of steps that are counted for each pair of slices that may share bytes. */
#define PAIR_STEPS 4

static char *slice_name(const struct slices *slices, uint32_t i, char text[SLICE_NAME_SIZE])
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

/* Checks that slice i has the rank and type of the first: all are slices of one tensor. */
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

/* Refuses a request that has taken too many steps, because the event loop, in which this runs, serves all
 * users. */
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

/* Returns false if the slices certainly share no byte. Most pairs are told apart by their memories or by
 * their extents. */
static bool may_share(const struct slice *a, const struct slice *b)
{
	const struct tensor_place *at = &a->place, *to = &b->place;
	const int128 distance = (int128)to->base + to->offset - at->base - at->offset;

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
	/* Names are made only for the error, because they take longer than the check. */
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

/* ---- Cover --------------------------------------------------------------------------------------------- */

int64_t box_count(const struct box *box, int rank)
{
	int64_t count = 1;

	for (int d = 0; d < rank; d++)
		if (box->high[d] <= box->low[d])
			return 0;
	for (int d = 0; d < rank; d++)
		count *= box->high[d] - box->low[d];
	return count;
}

/* Copies only the dimensions in use, which are a few of TENSOR_MAX_RANK. */
static void box_copy(struct box *to, const struct box *from, int rank)
{
	for (int d = 0; d < rank; d++) {
		to->low[d] = from->low[d];
		to->high[d] = from->high[d];
	}
}

/* Sets *ret to the intersection. Returns whether it has any elements. */
static bool box_intersect(const struct box *a, const struct box *b, int rank, struct box *ret)
{
	for (int d = 0; d < rank; d++) {
		ret->low[d] = a->low[d] > b->low[d] ? a->low[d] : b->low[d];
		ret->high[d] = a->high[d] < b->high[d] ? a->high[d] : b->high[d];
		if (ret->high[d] <= ret->low[d])
			return false;
	}
	return true;
}

static bool take_steps(struct cover *cover, uint64_t n)
{
	cover->steps += n;
	return cover->steps <= cover->most_steps;
}

static bool step_box(struct cover *cover)
{
	return take_steps(cover, (uint64_t)cover->rank + 1);
}

/* Sets the candidates to the sources that have elements of the box, and *ret to their number. Returns false
 * if that takes too many steps. */
static bool find_candidates(struct cover *cover, const struct box *box, uint32_t *ret)
{
	struct box common;

	*ret = 0;
	for (uint32_t s = 0; s < cover->n_sources; s++) {
		if (!step_box(cover))
			return false;
		if (box_intersect(&cover->source[s], box, cover->rank, &common))
			cover->candidate[(*ret)++] = s;
	}
	return true;
}

/* Returns whether source a is taken before source b. */
static bool is_before(const struct cover *cover, uint32_t a, uint32_t b)
{
	const uint64_t a_given = cover->given[cover->giver[a]], b_given = cover->given[cover->giver[b]];

	if (cover->distance[a] != cover->distance[b])
		return cover->distance[a] < cover->distance[b];
	return a_given != b_given ? a_given < b_given : a < b;
}

/* Removes from n candidates the one to be taken next, and returns it. */
static uint32_t take_candidate(struct cover *cover, uint32_t n)
{
	uint32_t first = 0, source;

	for (uint32_t i = 1; i < n; i++)
		if (is_before(cover, cover->candidate[i], cover->candidate[first]))
			first = i;
	source = cover->candidate[first];
	cover->candidate[first] = cover->candidate[n - 1];
	return source;
}

static bool add_piece(struct cover *cover, uint32_t source, const struct box *box)
{
	struct cover_piece *piece = &cover->piece[cover->n_pieces];

	if (cover->n_pieces == cover->most_pieces)
		return false;
	piece->source = source;
	box_copy(&piece->box, box, cover->rank);
	cover->n_pieces++;
	if (cover->distance[source] > 0)
		cover->given[cover->giver[source]] += (uint64_t)box_count(box, cover->rank);
	return true;
}

/* Appends a box to the *n rests. Returns the new rest, or NULL if there is no space for it. */
static struct box *append_rest(struct cover *cover, const struct box *box, uint32_t *n)
{
	if (*n == cover->most_rests)
		return NULL;
	box_copy(&cover->rest[*n], box, cover->rank);
	return &cover->rest[(*n)++];
}

/* Appends to the *n rests what `whole` has outside of `taken`, which must lie inside it. `whole` becomes
 * equal to `taken`. Returns false if there is no space for the rests. */
static bool append_rests(struct cover *cover, struct box *whole, const struct box *taken, uint32_t *n)
{
	struct box *rest;

	for (int d = 0; d < cover->rank; d++) {
		if (whole->low[d] < taken->low[d]) {
			rest = append_rest(cover, whole, n);
			if (!rest)
				return false;
			rest->high[d] = taken->low[d];
		}
		if (taken->high[d] < whole->high[d]) {
			rest = append_rest(cover, whole, n);
			if (!rest)
				return false;
			rest->low[d] = taken->high[d];
		}
		whole->low[d] = taken->low[d];
		whole->high[d] = taken->high[d];
	}
	return true;
}

/* Subtracts a source's box from all rests, and adds what they have in common as pieces. Goes backwards: the
 * rest that replaces a removed one has been looked at already, and the appended ones contain nothing of the
 * source. */
static enum cover_outcome subtract(struct cover *cover, uint32_t source, uint32_t *n_rests)
{
	for (uint32_t i = *n_rests; i-- > 0;) {
		struct box whole, common;

		if (!step_box(cover))
			return COVER_MANY_STEPS;
		if (!box_intersect(&cover->rest[i], &cover->source[source], cover->rank, &common))
			continue;
		if (!add_piece(cover, source, &common))
			return COVER_MANY_PIECES;
		box_copy(&whole, &cover->rest[i], cover->rank);
		--*n_rests;
		box_copy(&cover->rest[i], &cover->rest[*n_rests], cover->rank);
		if (!append_rests(cover, &whole, &common, n_rests))
			return COVER_MANY_RESTS;
	}
	return COVER_WHOLE;
}

/* Sets the gap to the first element, in C order, of n boxes. It is the first element of one of them. */
static void find_gap(struct cover *cover, uint32_t n)
{
	const struct box *first = &cover->rest[0];

	for (uint32_t i = 1; i < n; i++) {
		int d = 0;

		while (d < cover->rank - 1 && cover->rest[i].low[d] == first->low[d])
			d++;
		if (cover->rest[i].low[d] < first->low[d])
			first = &cover->rest[i];
	}
	for (int d = 0; d < cover->rank; d++)
		cover->gap[d] = first->low[d];
}

enum cover_outcome cover_box(struct cover *cover, const struct box *box)
{
	enum cover_outcome outcome = COVER_WHOLE;
	uint32_t n_rests = 1, n;

	if (box_count(box, cover->rank) == 0)
		return COVER_WHOLE;
	if (!find_candidates(cover, box, &n))
		return COVER_MANY_STEPS;
	box_copy(&cover->rest[0], box, cover->rank);
	for (; outcome == COVER_WHOLE && n_rests > 0 && n > 0; n--) {
		if (!take_steps(cover, n))
			return COVER_MANY_STEPS;
		outcome = subtract(cover, take_candidate(cover, n), &n_rests);
	}
	if (outcome != COVER_WHOLE || n_rests == 0)
		return outcome;
	find_gap(cover, n_rests);
	return COVER_GAP;
}

/* ---- Pieces -------------------------------------------------------------------------------------------- */

static int refuse_cover(const struct slices *slices, uint32_t destination, enum cover_outcome outcome,
                        const struct cover *cover, struct error *err)
{
	char name[SLICE_NAME_SIZE], index[160];

	slice_name(slices, destination, name);
	switch (outcome) {
	case COVER_WHOLE:
		break;
	case COVER_GAP:
		return error_set(err, STATUS_OUT_OF_RANGE,
		                 "%s: no source has element %s of the global tensor", name,
		                 tensor_shape_text(slices->rank, cover->gap, index, sizeof index));
	case COVER_MANY_STEPS:
		return error_set(err, STATUS_QUOTA,
		                 "%s: finding the pieces up to here takes more than %d steps, as many as a "
		                 "request has; send fewer slices in a request",
		                 name, PIECES_MOST_STEPS);
	case COVER_MANY_RESTS:
		return error_set(
		    err, STATUS_QUOTA,
		    "%s: the sources divide it into more than %d boxes at a time; send parts of it "
		    "in several requests",
		    name, PIECES_MOST_RESTS);
	case COVER_MANY_PIECES:
		return error_set(
		    err, STATUS_QUOTA,
		    "%s: the pieces up to here are more than the %d that a request has; send fewer "
		    "slices in a request",
		    name, PIECES_MOST);
	}
	return 0;
}

int pieces_find(struct pieces *pieces, const struct slices *slices, const struct nearness *nearness,
                struct error *err)
{
	const uint32_t n_sources = slices->n - slices->n_destinations;
	uint32_t *giver = pieces->per_source, *distance = giver + n_sources;
	struct cover cover = { .rank = slices->rank,
		               .n_sources = n_sources,
		               .source = slices->box + slices->n_destinations,
		               .giver = giver,
		               .distance = distance,
		               .given = nearness->given,
		               .candidate = distance + n_sources,
		               .most_rests = PIECES_MOST_RESTS,
		               .rest = pieces->rest,
		               .most_pieces = PIECES_MOST,
		               .piece = pieces->piece,
		               .most_steps = PIECES_MOST_STEPS };

	for (uint32_t s = 0; s < n_sources; s++)
		giver[s] = nearness->giver(nearness->arg, slices->n_destinations + s);
	for (uint32_t i = 0; i < slices->n_destinations; i++) {
		uint32_t piece = cover.n_pieces;
		enum cover_outcome outcome;

		for (uint32_t s = 0; s < n_sources; s++)
			distance[s] = nearness->distance(nearness->arg, i, slices->n_destinations + s);
		outcome = cover_box(&cover, &slices->box[i]);
		if (outcome != COVER_WHOLE)
			return refuse_cover(slices, i, outcome, &cover, err);
		for (; piece < cover.n_pieces; piece++)
			pieces->destination[piece] = i;
	}
	pieces->n = cover.n_pieces;
	return 0;
}

/* ---- Moves -------------------------------------------------------------------------------------------- */

/* Sets *ret to the layout of a box that lies in slice i, and returns the place of its first element. */
static struct tensor_place view_of(const struct slices *slices, uint32_t i, const struct box *box,
                                   struct tensor_layout *ret)
{
	const struct slice *slice = &slices->slice[i];
	const int64_t size = dtype_size(slice->layout.dtype);
	struct tensor_place place = slice->place;
	int64_t offset = 0;

	*ret = slice->layout;
	for (int d = 0; d < slices->rank; d++) {
		ret->shape[d] = box->high[d] - box->low[d];
		offset += (box->low[d] - slices->box[i].low[d]) * slice->layout.stride[d] * size;
	}
	place.offset += (uint64_t)offset;
	return place;
}

/* Sets *ret to piece i as a transform. The layout of the destination has been checked as a whole, so that of
 * a piece need not be. */
void pieces_get(const struct pieces *pieces, const struct slices *slices, uint32_t i, struct piece_move *ret)
{
	const struct box *box = &pieces->piece[i].box;

	ret->spec =
	    (struct transform_spec){ .n_perm = -1, .n_before = -1, .n_after = -1, .dst_is_checked = true };
	ret->dst = view_of(slices, pieces->destination[i], box, &ret->spec.dst);
	ret->src = view_of(slices, pieces_source(pieces, slices, i), box, &ret->spec.src);
}
