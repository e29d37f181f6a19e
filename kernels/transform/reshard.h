/* SPDX-License-Identifier: Apache-2.0 */
/* This finds which copies from its sources to its destinations a reshard takes.
 *
 * Sources and destinations are slices of one global tensor: boxes of it that lie somewhere in memory. They
 * are checked first (slices_*): each lies in its region and in the global tensor, and what is written shares
 * no byte with anything else. From the box of each destination, the boxes of sources are then subtracted one
 * after the other, the nearest first, until nothing is left (cover_*); what each takes away is a piece, and
 * each piece is a transform (pieces_*). The functions have no side effects and allocate nothing.
 */
#ifndef KERNELS_TRANSFORM_RESHARD_H
#define KERNELS_TRANSFORM_RESHARD_H

#include <stdint.h>

#include "proto/schema.h"
#include "proto/tensor.h"
#include "transform.h"

/* ---- Boxes and their cover ----------------------------------------------------------------------------- */

/* A box has the elements low[d] <= i < high[d] of each dimension d. Without dimensions it has one element. */
struct box {
	int64_t low[TENSOR_MAX_RANK];
	int64_t high[TENSOR_MAX_RANK];
};

struct cover_piece {
	uint32_t source;
	struct box box;
};

enum cover_outcome {
	COVER_WHOLE,      /* the pieces cover each element once */
	COVER_GAP,        /* no source has some element; the first is in `gap` */
	COVER_MANY_STEPS, /* it takes more steps than most_steps */
	COVER_MANY_RESTS, /* the box falls apart into more boxes than most_rests */
	COVER_MANY_PIECES /* it takes more pieces than most_pieces */
};

/* This covers the boxes of one request, one after the other. Sources that are as near as each other take
 * turns: the next is that of the giver which has given the least so far. All but gap and the counts is the
 * caller's. */
struct cover {
	int rank;
	uint32_t n_sources;
	const struct box *source;
	const uint32_t *giver;    /* giver of each source */
	const uint32_t *distance; /* distance of each source from the box; at 0 it costs its giver nothing */
	uint64_t *given;          /* elements, by giver; starts at 0 */
	uint32_t *candidate;      /* room for n_sources */
	uint32_t most_rests;
	struct box *rest; /* room for most_rests boxes */
	uint32_t most_pieces;
	uint32_t n_pieces; /* pieces of all boxes */
	struct cover_piece *piece;
	uint64_t most_steps;
	uint64_t steps; /* steps of all boxes: dimensions and sources that were looked at */
	int64_t gap[TENSOR_MAX_RANK];
};

/* Appends the pieces of a box. After any other outcome than COVER_WHOLE some may have been appended. */
enum cover_outcome cover_box(struct cover *cover, const struct box *box);

/* Returns the elements of a box; an empty one has none. */
int64_t box_count(const struct box *box, int rank);

/* ---- Slices -------------------------------------------------------------------------------------------- */

/* A slice of the global tensor lies here in memory. */
struct slice {
	struct tensor_place place;
	struct tensor_layout layout;
	struct tensor_extent extent;
};

/* These are the memory and the box in the global tensor of each slice: first those of destinations, then
 * those of sources. */
struct slices {
	uint32_t n_destinations;
	uint32_t n;          /* number of slices of both sorts */
	struct slice *slice; /* room for n slices, which the caller owns */
	struct box *box;     /* room for n boxes, which the caller owns */
	int rank;
	uint64_t steps; /* steps that searches for overlaps had taken before the request */
};

/* Begins with slices that have no contents. The caller then sets each of them in order: slices_set, and
 * slices_set_place once it has found the memory; and it calls slices_check at the end. */
struct slices slices_begin(uint32_t n_destinations, uint32_t n_sources, struct slice *slice, struct box *box);

/* Sets layout and box of slice i. shape is that of the global tensor, or NULL if that is not known. */
int slices_set(struct slices *slices, uint32_t i, const struct msg_slice *params,
               const struct int_list *shape, struct error *err);

/* Sets where slice i lies. It must be in its region, and no two elements of a destination may share a byte.
 */
int slices_set_place(struct slices *slices, uint32_t i, const struct tensor_place *place, struct error *err);

/* Checks that what is written shares no byte with anything else. Returns 0, OVERLAP, or QUOTA if that takes
 * too long to find out. */
int slices_check(struct slices *slices, struct error *err);

#define SLICE_NAME_SIZE 32

/* Writes what errors call the region of a slice, such as "destinations[3].tensor.region". */
#define SLICE_FIELD_SIZE (SLICE_NAME_SIZE + 16)
char *slice_region_name(const struct slices *slices, uint32_t i, char text[SLICE_FIELD_SIZE]);

/* ---- Pieces -------------------------------------------------------------------------------------------- */

/* These bound what finding the pieces of a request may take: the pieces, the boxes into which a destination
 * falls apart on the way, and the dimensions that are looked at, a nanosecond or two each. */
#define PIECES_MOST       4096
#define PIECES_MOST_RESTS 512
#define PIECES_MOST_STEPS (1 << 20)

/* These functions tell how far sources are from destinations. Both are given by their index among the slices.
 */
struct nearness {
	uint64_t *given; /* elements taken from each giver; zeroed by the caller */
	uint32_t (*giver)(const void *arg, uint32_t source);
	uint32_t (*distance)(const void *arg, uint32_t destination, uint32_t source);
	const void *arg;
};

/* The room that a request needs at once, beside its slices, is large: the caller allocates it. */
struct pieces {
	uint32_t n;
	struct box rest[PIECES_MOST_RESTS];
	struct cover_piece piece[PIECES_MOST];
	uint32_t destination[PIECES_MOST]; /* destination of each piece */
	uint32_t per_source[];             /* room for three numbers of each source */
};

static inline size_t pieces_bytes(uint32_t n_sources)
{
	return sizeof(struct pieces) + 3 * (size_t)n_sources * sizeof(uint32_t);
}

/* Finds the pieces of all destinations. Returns 0, OUT_OF_RANGE if no source has an element of one, or QUOTA
 * if they are too many or take too long to find. */
int pieces_find(struct pieces *pieces, const struct slices *slices, const struct nearness *nearness,
                struct error *err);

/* A piece is a transform, with the places of its first element on both sides. */
struct piece_move {
	struct transform_spec spec;
	struct tensor_place dst, src;
};

void pieces_get(const struct pieces *pieces, const struct slices *slices, uint32_t i, struct piece_move *ret);

/* Returns which slice is the source of a piece. */
static inline uint32_t pieces_source(const struct pieces *pieces, const struct slices *slices, uint32_t i)
{
	return slices->n_destinations + pieces->piece[i].source;
}

#endif
