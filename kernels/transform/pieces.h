/* SPDX-License-Identifier: Apache-2.0 */
/* The pieces of a reshard: which copies from a source to a destination it takes (cover.h). */
#ifndef KERNELS_TRANSFORM_PIECES_H
#define KERNELS_TRANSFORM_PIECES_H

#include <stdint.h>

#include "cover.h"
#include "slices.h"

/* These bound what finding the pieces of a request may take: the pieces, the boxes into which a destination
 * falls apart on the way, and the dimensions that are looked at, a nanosecond or two each. */
#define PIECES_MOST       4096
#define PIECES_MOST_RESTS 512
#define PIECES_MOST_STEPS (1 << 20)

/* How far sources are from destinations, both by their numbers among the slices. */
struct nearness {
	uint64_t *given; /* by giver, zeroed */
	uint32_t (*giver)(const void *arg, uint32_t source);
	uint32_t (*distance)(const void *arg, uint32_t destination, uint32_t source);
	const void *arg;
};

/* The room that a request needs at once, beside its slices, is large: the caller allocates it. */
struct pieces {
	uint32_t n;
	struct box rest[PIECES_MOST_RESTS];
	struct cover_piece piece[PIECES_MOST];
	uint32_t destination[PIECES_MOST]; /* of each piece */
	uint32_t per_source[];             /* room for three numbers of each source */
};

static inline size_t pieces_bytes(uint32_t n_sources)
{
	return sizeof(struct pieces) + 3 * (size_t)n_sources * sizeof(uint32_t);
}

/* Finds the pieces of all destinations. OUT_OF_RANGE if no source has an element of one, QUOTA if they are
 * too many or take too long to find. */
int pieces_find(struct pieces *pieces, const struct slices *slices, const struct nearness *nearness,
                struct error *err);

/* A piece as a transform: its spec, and the places of its first element on both sides. */
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
