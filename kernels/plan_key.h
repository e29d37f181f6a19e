/* SPDX-License-Identifier: Apache-2.0 */
/* A key packs everything that a plan depends on into words: equal keys mean equal plans.
 *
 * A plan depends on the layout, and to some extent on the addresses: a GPU's plan depends on both addresses
 * modulo PLAN_PHASE, and the CPU's on their common alignment. A plan that serves many moves depends only on
 * the common alignment of all their addresses.
 */
#ifndef KERNELS_PLAN_KEY_H
#define KERNELS_PLAN_KEY_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/transform/transform.h"

/* Bytes of a sector of GPU memory. How rows are written depends on addresses modulo this. */
#define PLAN_PHASE 32

/* No plan depends on an alignment beyond this. */
#define PLAN_ALIGN 16

/* Number of words that suffices for any key: six layouts, perm, before, after and the blocks of amax, all of
 * the greatest rank, and the fixed part. It suffices also for a spec that transform_init will refuse. */
#define PLAN_KEY_WORDS (TENSOR_MAX_RANK * 16 + 24)

/* A plan's places are the addresses of elements [0, ..., 0], modulo PLAN_PHASE. */
struct plan_places {
	uint8_t dst;
	uint8_t src;
	/* The plan is for many moves, whose addresses are all multiples of dst and src (0: of PLAN_ALIGN). */
	bool many;
};

/* Returns the places of one move. */
static inline struct plan_places plan_places(uint64_t dst, uint64_t src)
{
	return (struct plan_places){ .dst = dst % PLAN_PHASE, .src = src % PLAN_PHASE };
}

/* Returns the places of many moves. bits is the bitwise OR of all their addresses. */
static inline struct plan_places plan_places_of_many(uint64_t bits)
{
	const uint64_t align = (bits | PLAN_ALIGN) & -(bits | PLAN_ALIGN);

	return (struct plan_places){ .dst = align % PLAN_ALIGN, .src = align % PLAN_ALIGN, .many = true };
}

/* Returns the greatest power of two, at most PLAN_ALIGN, that divides both addresses. */
static inline uint32_t plan_places_align(struct plan_places places)
{
	const uint32_t bits = places.dst | places.src | PLAN_ALIGN;

	return bits & -bits;
}

/* The kinds of things that a key identifies. */
enum plan_kind {
	PLAN_KIND_SPEC,   /* a layout as requests give it */
	PLAN_KIND_ROUND,  /* the part of a transform that one round of a staged job moves */
	PLAN_KIND_MEMBER, /* the transform of another plan, as one of many moves that share a launch */
	PLAN_KIND_LIST,   /* the transform of another plan, applied to a list of blocks */
};

struct plan_key {
	uint64_t hash; /* 0: not set yet */
	uint32_t n;
	uint64_t word[PLAN_KEY_WORDS];
};

/* Makes a key of PLAN_KIND_SPEC. */
void plan_key_init(struct plan_key *key, const struct transform_spec *spec, struct plan_places places);

/* Makes a key of PLAN_KIND_ROUND. The transform must not convert. */
void plan_key_init_round(struct plan_key *key, const struct transform *transform, struct plan_places places);

/* Makes a key of one of the other kinds. serial is the serial number of the other plan, whose transform it is
 * for. */
void plan_key_init_of(struct plan_key *key, enum plan_kind kind, uint64_t serial, struct plan_places places);

/* Appends n values. n may be 0. */
void plan_key_add(struct plan_key *key, const int64_t *values, int n);

bool plan_key_is_same(const struct plan_key *a, const struct plan_key *b);

#endif
