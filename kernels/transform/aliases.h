/* SPDX-License-Identifier: Apache-2.0 */
/* A memory may consist of allocations, some of which another memory may have too, in another place. Then it
 * depends on the allocations that tensors touch whether they share bytes.
 *
 * Two ranges of bytes are compared by alias_between, and tables of layers, which may lie in many memories, by
 * layers_share. Both count their steps as a part of a request's search for overlaps (overlap_steps).
 */
#ifndef KERNELS_TRANSFORM_ALIASES_H
#define KERNELS_TRANSFORM_ALIASES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transform.h"

/* ---- Stretches of bytes -------------------------------------------------------------------------------- */

/* Stretches are computed in 128 bits, where no sum of theirs overflows. */
typedef __int128 int128;

#define INT128_FARTHEST \
	((int128)1 << 6 * sizeof(int128)) /* stands for what 64 bits do not hold; past every region */

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

/* A chunk is an allocation in a memory. */
struct memory_chunk {
	uintptr_t id; /* the same in every memory that has the allocation */
	uint64_t at;  /* its first byte in the memory */
	uint64_t size;
};

/* These are all allocations of a memory, each once. */
struct memory_chunks {
	atomic_bool shared; /* another memory has, or had, some of them */
	uint32_t n;
	struct memory_chunk *by_place; /* ascending by at, without gaps */
	struct memory_chunk *by_id;    /* the same, ascending by id */
};

/* Fills by_id from by_place. Returns false if an allocation is there twice; *ret is where it is the second
 * time. */
bool memory_chunks_sort(struct memory_chunks *chunks, uint64_t *ret);

/* A range has these bytes of a memory. */
struct memory_range {
	const struct memory_chunks *chunks; /* NULL: no other memory has any of them */
	uint64_t low;
	uint64_t high;
};

/* Returns how many allocations the range touches, and sets *ret_first to the first of them, by place. */
uint32_t memory_range_touched(const struct memory_range *range, uint32_t *ret_first);

/* Returns the allocation with that id, or NULL if the memory does not have it. */
const struct memory_chunk *memory_chunks_find(const struct memory_chunks *chunks, uintptr_t id);

enum alias {
	ALIAS_NONE, /* the ranges share no byte */
	ALIAS_ONE,  /* byte x of a's memory is byte x + *ret_shift of b's, wherever both are in the ranges */
	ALIAS_SOME, /* this holds in some allocations only; in others the bytes are different ones */
	ALIAS_MANY, /* they share bytes in several ways */
};

/* Compares ranges in two different memories. It takes steps (overlap_steps): a few for each allocation that
 * the range with fewer of them touches, and never more than the two memories have allocations. */
enum alias alias_between(const struct memory_range *a, const struct memory_range *b, int128 *ret_shift);

/* ---- Places in memories with common allocations -------------------------------------------------------- */

struct layer_table;

/* Tells if stretches of the memories of two places share a byte, as far as the engine knows. */
bool places_meet(const struct tensor_place *a, struct stretch of_a, const struct tensor_place *b,
                 struct stretch of_b);

/* A side of a comparison is a stretch at each entry of a table, or one of a place's memory. */
struct layer_side {
	const struct layer_table *table; /* NULL: the side is the place */
	const struct tensor_place *place;
	struct stretch stretch; /* from each entry on, or in the place's memory */
};

enum layer_sharing {
	LAYERS_APART,
	LAYERS_FAR, /* none is shared, even between whole regions, from the first in each memory to the end of
	               the last */
	LAYERS_SHARE,   /* they share bytes */
	LAYERS_UNKNOWN, /* comparing them would take too long */
};

static inline bool layers_are_apart(enum layer_sharing sharing)
{
	return sharing == LAYERS_APART || sharing == LAYERS_FAR;
}

/* One comparison takes at most so many steps, as overlap_steps counts them, which is about two milliseconds.
 */
#define LAYERS_MOST_STEPS 98304

/* Finds out if a stretch of a shares a byte with one of b in another memory, and which entries these are. If
 * b is a, a is compared with itself. Stretches lie within the regions. It takes steps (overlap_steps). */
enum layer_sharing layers_share(const struct layer_side *a, const struct layer_side *b, uint32_t *ret_a,
                                uint32_t *ret_b);

#endif
