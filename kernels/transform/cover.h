/* SPDX-License-Identifier: Apache-2.0 */
/* Which sources a slice of a global tensor is put together from.
 *
 * A slice is a box of the tensor. From a box, the boxes of sources are subtracted one after the other, the
 * nearest first, until nothing is left; what each takes away is a piece. Sources that are as near as each
 * other take turns: the next is that of the giver which has given the least so far. Pure, no memory but what
 * the caller gives.
 */
#ifndef KERNELS_TRANSFORM_COVER_H
#define KERNELS_TRANSFORM_COVER_H

#include <stdint.h>

#include "proto/tensor.h"

/* Elements low[d] <= i < high[d] of each dimension d. Without dimensions it has one element. */
struct box {
	int64_t low[TENSOR_MAX_RANK];
	int64_t high[TENSOR_MAX_RANK];
};

struct cover_piece {
	uint32_t source;
	struct box box;
};

enum cover_outcome {
	COVER_WHOLE,      /* the pieces have each element once */
	COVER_GAP,        /* no source has some; the first of them is in `gap` */
	COVER_MANY_STEPS, /* it takes more steps than most_steps, */
	COVER_MANY_RESTS, /* or the box falls apart into more boxes than there is room for, */
	COVER_MANY_PIECES /* or into more pieces */
};

/* The boxes of one request, one after the other: all but gap and the counts is the caller's. */
struct cover {
	int rank;
	uint32_t n_sources;
	const struct box *source;
	const uint32_t *giver;    /* of each source */
	const uint32_t *distance; /* of each source from the box; at 0 it costs its giver nothing */
	uint64_t *given;          /* elements, by giver; starts at 0 */
	uint32_t *candidate;      /* room for n_sources */
	uint32_t most_rests;
	struct box *rest; /* room for so many */
	uint32_t most_pieces;
	uint32_t n_pieces; /* of all boxes */
	struct cover_piece *piece;
	uint64_t most_steps;
	uint64_t steps; /* of all boxes: dimensions and sources that were looked at */
	int64_t gap[TENSOR_MAX_RANK];
};

/* Appends the pieces of a box. After any other outcome than COVER_WHOLE some may have been appended. */
enum cover_outcome cover_box(struct cover *cover, const struct box *box);

/* 0: it is empty. */
int64_t box_count(const struct box *box, int rank);

#endif
