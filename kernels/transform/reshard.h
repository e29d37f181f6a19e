/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the copies from sources to destinations that make up a reshard.
 *
 * Sources and destinations are slices of one global tensor: boxes of it that lie somewhere in memory. They
 * are checked first (slices_*): each must lie in its region and in the global tensor, and a destination must
 * share no byte with any other slice. From the box of each destination, the boxes of sources are then
 * subtracted one after the other, the nearest first, until nothing is left (cover_*). What each source takes
 * away is a piece, and each piece is a transform (pieces_*). The functions have no side effects and allocate
 * nothing.
 */
#ifndef KERNELS_TRANSFORM_RESHARD_H
#define KERNELS_TRANSFORM_RESHARD_H

#include <stdint.h>

#include "proto/schema.h"
#include "proto/tensor.h"
#include "transform.h"

/* ---- Boxes and their cover ----------------------------------------------------------------------------- */

/* A box holds the elements low[d] <= i < high[d] of each dimension d. Without dimensions it has one
 * element. */
struct box {
	int64_t low[TENSOR_MAX_RANK];
	int64_t high[TENSOR_MAX_RANK];
};

struct cover_piece {
	uint32_t source;
	struct box box;
};

enum cover_outcome {
	COVER_WHOLE,      /* the pieces cover every element once */
	COVER_GAP,        /* some elements are in no source; `gap` is the first of them */
	COVER_MANY_STEPS, /* needs more steps than most_steps */
	COVER_MANY_RESTS, /* what is left of the box consists of more than most_rests boxes */
	COVER_MANY_PIECES /* needs more pieces than most_pieces */
};

/* State of covering the boxes of one request, one after the other. A giver is whoever supplies a source's
 * elements, such as a device, as the caller numbers them. Sources at equal distance take turns: next comes
 * one of the giver that has given the fewest elements so far. The caller sets everything but gap and the
 * counts, and owns the arrays. */
struct cover {
	int rank;
	uint32_t n_sources;
	const struct box *source;
	const uint32_t *giver; /* giver of each source */
	/* Distance of each source from the current box; elements at distance 0 are not charged to their
	 * giver. */
	const uint32_t *distance;
	uint64_t *given;     /* elements given so far, by giver; zeroed by the caller */
	uint32_t *candidate; /* space for n_sources numbers */
	uint32_t most_rests;
	struct box *rest; /* space for most_rests boxes */
	uint32_t most_pieces;
	uint32_t n_pieces; /* number of pieces of all boxes so far */
	struct cover_piece *piece;
	uint64_t most_steps;
	/* Steps taken so far for all boxes: each dimension or source that is looked at is one. */
	uint64_t steps;
	int64_t gap[TENSOR_MAX_RANK];
};

/* Appends the pieces of a box. If the outcome is not COVER_WHOLE, some pieces may have been appended. */
enum cover_outcome cover_box(struct cover *cover, const struct box *box);

/* Returns the number of elements of a box, 0 if it is empty. */
int64_t box_count(const struct box *box, int rank);

/* ---- Slices -------------------------------------------------------------------------------------------- */

/* The place of a slice of the global tensor in memory. */
struct slice {
	struct tensor_place place;
	struct tensor_layout layout;
	struct tensor_extent extent;
};

/* The memory of each slice and its box in the global tensor. Destinations come first, then sources. */
struct slices {
	uint32_t n_destinations;
	uint32_t n;          /* number of slices, destinations and sources */
	struct slice *slice; /* space for n slices, which the caller owns */
	struct box *box;     /* space for n boxes, which the caller owns */
	int rank;
	uint64_t steps; /* value of overlap_steps before the request */
};

/* Returns a set of slices that have no contents yet. For each slice in order, the caller must then call
 * slices_set, and slices_set_place once it has found the slice's memory. Finally it must call
 * slices_check. */
struct slices slices_begin(uint32_t n_destinations, uint32_t n_sources, struct slice *slice, struct box *box);

/* Sets the layout and box of slice i. shape is the shape of the global tensor, or NULL if that is not
 * known. */
int slices_set(struct slices *slices, uint32_t i, const struct msg_slice *params,
               const struct int_list *shape, struct error *err);

/* Sets where slice i lies. It must lie in its region, and no two elements of a destination may share a
 * byte. */
int slices_set_place(struct slices *slices, uint32_t i, const struct tensor_place *place, struct error *err);

/* Checks that no destination shares a byte with another slice. Returns 0, OVERLAP, or QUOTA if the check
 * takes too many steps. */
int slices_check(struct slices *slices, struct error *err);

#define SLICE_NAME_SIZE 32

/* Writes what errors call the region of a slice, such as "destinations[3].tensor.region". Returns text. */
#define SLICE_FIELD_SIZE (SLICE_NAME_SIZE + 16)
char *slice_region_name(const struct slices *slices, uint32_t i, char text[SLICE_FIELD_SIZE]);

/* ---- Pieces -------------------------------------------------------------------------------------------- */

/* Limits for finding the pieces of a request: on the number of pieces, on the number of boxes that are left
 * of a destination at a time, and on the number of steps, each of which takes a nanosecond or two. */
#define PIECES_MOST       4096
#define PIECES_MOST_RESTS 512
#define PIECES_MOST_STEPS (1 << 20)

/* The caller's functions that return the giver of a source, and the distance of a source from a destination
 * (struct cover). Sources and destinations are given by their index among the slices. */
struct nearness {
	uint64_t *given; /* elements taken from each giver so far; zeroed by the caller */
	uint32_t (*giver)(const void *arg, uint32_t source);
	uint32_t (*distance)(const void *arg, uint32_t destination, uint32_t source);
	const void *arg;
};

/* The pieces of a request, with scratch space for finding them. The struct is large, so the caller must
 * allocate it, with pieces_bytes bytes. */
struct pieces {
	uint32_t n;
	struct box rest[PIECES_MOST_RESTS];
	struct cover_piece piece[PIECES_MOST];
	uint32_t destination[PIECES_MOST]; /* destination of each piece */
	uint32_t per_source[];             /* scratch space: three numbers for each source */
};

static inline size_t pieces_bytes(uint32_t n_sources)
{
	return sizeof(struct pieces) + 3 * (size_t)n_sources * sizeof(uint32_t);
}

/* Finds the pieces of all destinations. Returns 0, OUT_OF_RANGE if no source has some element of a
 * destination, or QUOTA if the pieces are too many or take too many steps to find. */
int pieces_find(struct pieces *pieces, const struct slices *slices, const struct nearness *nearness,
                struct error *err);

/* A piece as a transform, with the places of its first element on both sides. */
struct piece_move {
	struct transform_spec spec;
	struct tensor_place dst, src;
};

void pieces_get(const struct pieces *pieces, const struct slices *slices, uint32_t i, struct piece_move *ret);

/* Returns the index among the slices of a piece's source. */
static inline uint32_t pieces_source(const struct pieces *pieces, const struct slices *slices, uint32_t i)
{
	return slices->n_destinations + pieces->piece[i].source;
}

#endif
