/* SPDX-License-Identifier: Apache-2.0 */
/* Covers one destination after the other, and has a transform for each piece. */
#include "pieces.h"

#include <inttypes.h>

static const char *index_text(const int64_t *index, int rank, char *text, size_t size)
{
	return tensor_shape_text(rank, index, text, size);
}

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
		                 index_text(cover->gap, slices->rank, index, sizeof index));
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

/* Sets the view of a box that lies in a slice, and returns the place of its first element. */
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

/* The layout of a destination has been checked with all of it. */
void pieces_get(const struct pieces *pieces, const struct slices *slices, uint32_t i, struct piece_move *ret)
{
	const struct box *box = &pieces->piece[i].box;

	ret->spec =
	    (struct transform_spec){ .n_perm = -1, .n_before = -1, .n_after = -1, .dst_is_checked = true };
	ret->dst = view_of(slices, pieces->destination[i], box, &ret->spec.dst);
	ret->src = view_of(slices, pieces_source(pieces, slices, i), box, &ret->spec.src);
}
