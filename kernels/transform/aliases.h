/* SPDX-License-Identifier: Apache-2.0 */
/* A memory may consist of allocations, some of which another memory may have too, at another position.
 * Whether two tensors in such memories share bytes depends on the allocations that they touch.
 *
 * alias_between compares two ranges of bytes, and layers_share compares tables of layers, which may lie in
 * many memories. Both count their steps as a part of a request's search for overlaps (overlap_steps).
 */
#ifndef KERNELS_TRANSFORM_ALIASES_H
#define KERNELS_TRANSFORM_ALIASES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transform.h"

/* ---- Stretches of bytes -------------------------------------------------------------------------------- */

/* Stretches, that is, ranges of bytes [low, high), are computed in 128 bits, so that no sum overflows. */
typedef __int128 int128;

#define INT128_FARTHEST                                                                                    \
	((int128)1 << 6 * sizeof(int128)) /* stands for what 64 bits cannot hold; lies beyond every region \
	                                   */

struct stretch {
	int128 low;
	int128 high;
};

static inline struct stretch stretch_farthest(void)
{
	return (struct stretch){ .low = -INT128_FARTHEST, .high = INT128_FARTHEST };
}

static inline int128 int128_product(uint64_t a, uint64_t b)
{
	uint64_t ab;

	return __builtin_mul_overflow(a, b, &ab) ? INT128_FARTHEST : (int128)ab;
}

static inline struct stretch stretch_shift(struct stretch stretch, int128 by)
{
	return (struct stretch){ stretch.low + by, stretch.high + by };
}

static inline bool stretch_is_within(struct stretch inner, struct stretch outer)
{
	return outer.low <= inner.low && inner.high <= outer.high;
}

static inline bool stretches_meet(struct stretch a, struct stretch b)
{
	return a.low < b.high && b.low < a.high;
}

/* ---- Allocations --------------------------------------------------------------------------------------- */

/* An allocation as a part of one memory. */
struct memory_chunk {
	uintptr_t id; /* equal in every memory that has the allocation */
	uint64_t at;  /* bytes from the start of the memory to the allocation */
	uint64_t size;
};

/* All allocations of a memory. Each occurs once. */
struct memory_chunks {
	/* Another memory has, or had, some of these allocations; may be set by any thread. */
	atomic_bool shared;
	uint32_t n;
	struct memory_chunk *by_place; /* ascending by `at`, without gaps */
	struct memory_chunk *by_id;    /* the same allocations, ascending by id */
};

/* Fills by_id from by_place. Returns false if an allocation occurs twice; *ret is then the position of its
 * second occurrence. */
bool memory_chunks_sort(struct memory_chunks *chunks, uint64_t *ret);

/* The bytes [low, high) of a memory. */
struct memory_range {
	/* Allocations of the memory; NULL: no other memory has any of them. */
	const struct memory_chunks *chunks;
	uint64_t low;
	uint64_t high;
};

/* Returns the number of allocations that the range touches, and sets *ret_first to the index of the first in
 * by_place. */
uint32_t memory_range_touched(const struct memory_range *range, uint32_t *ret_first);

/* Returns the allocation with that id, or NULL if the memory does not have it. */
const struct memory_chunk *memory_chunks_find(const struct memory_chunks *chunks, uintptr_t id);

enum alias {
	ALIAS_NONE, /* the ranges share no byte */
	ALIAS_ONE,  /* byte x of a's memory is byte x + *ret_shift of b's wherever both are in the ranges */
	/* This is ALIAS_ONE in some allocations only; elsewhere the ranges' bytes are different ones. */
	ALIAS_SOME,
	ALIAS_MANY, /* the ranges share bytes at several different shifts */
};

/* Compares ranges in two different memories. The number of steps (overlap_steps) is proportional to the
 * number of allocations that the range with fewer of them touches, and never exceeds the number of
 * allocations of both memories. */
enum alias alias_between(const struct memory_range *a, const struct memory_range *b, int128 *ret_shift);

/* ---- Places in memories with common allocations -------------------------------------------------------- */

struct layer_table;

/* Returns whether stretches of the memories of two places share a byte, as far as the engine knows. */
bool places_meet(const struct tensor_place *a, struct stretch of_a, const struct tensor_place *b,
                 struct stretch of_b);

/* One side of a comparison: either a stretch at each entry of a table, or one stretch of a place's memory. */
struct layer_side {
	const struct layer_table *table; /* NULL: the side is `place` */
	const struct tensor_place *place;
	struct stretch stretch; /* relative to each entry, or to the start of the place's memory */
};

enum layer_sharing {
	LAYERS_APART,
	/* They share nothing, and neither do the whole ranges from the first region to the end of the last in
	 * each memory. */
	LAYERS_FAR,
	LAYERS_SHARE,   /* they share bytes */
	LAYERS_UNKNOWN, /* comparing them would take too many steps */
};

static inline bool layers_are_apart(enum layer_sharing sharing)
{
	return sharing == LAYERS_APART || sharing == LAYERS_FAR;
}

/* Maximum number of steps that one comparison takes, as overlap_steps counts them. They take about two
 * milliseconds. */
#define LAYERS_MOST_STEPS 98304

/* Finds out whether a stretch of a shares a byte with one of b in another memory, and if so sets *ret_a and
 * *ret_b to their entries. If b == a, the stretches of a are compared with each other. Stretches must lie
 * within the regions. Adds to overlap_steps. */
enum layer_sharing layers_share(const struct layer_side *a, const struct layer_side *b, uint32_t *ret_a,
                                uint32_t *ret_b);

#endif
