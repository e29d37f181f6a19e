/* SPDX-License-Identifier: Apache-2.0 */
/* A key packs everything that a plan depends on into words: equal keys mean equal plans.
 *
 * Besides the layout that is where the move takes place, as far as it matters: a GPU's plan depends on both
 * addresses modulo a sector, the CPU's on their alignment. A plan for one of many moves depends on their
 * common alignment alone.
 */
#ifndef KERNELS_PLAN_KEY_H
#define KERNELS_PLAN_KEY_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/transform/transform.h"

/* A sector of memory: what a base address is of it decides how rows are written. */
#define PLAN_PHASE 32

/* No plan depends on an alignment beyond this. */
#define PLAN_ALIGN 16

/* A key has room for six layouts, for perm, before, after and the blocks of amax, all of the greatest rank,
 * and for the fixed part, even if transform_init will refuse the spec. */
#define PLAN_KEY_WORDS (TENSOR_MAX_RANK * 16 + 24)

/* A plan's places are the addresses of elements [0, ..., 0], modulo PLAN_PHASE. */
struct plan_places {
	uint8_t dst;
	uint8_t src;
	bool many; /* The plan is for many moves, whose addresses are all multiples of these. */
};

/* Returns the places of one move. */
static inline struct plan_places plan_places(uint64_t dst, uint64_t src)
{
	return (struct plan_places){ .dst = dst % PLAN_PHASE, .src = src % PLAN_PHASE };
}

/* Returns the places of many moves. bits is the bitwise or of all their addresses. */
static inline struct plan_places plan_places_of_many(uint64_t bits)
{
	const uint64_t align = (bits | PLAN_ALIGN) & -(bits | PLAN_ALIGN);

	return (struct plan_places){ .dst = align % PLAN_ALIGN, .src = align % PLAN_ALIGN, .many = true };
}

/* Returns the power of two, at most PLAN_ALIGN, that both addresses are multiples of. */
static inline uint32_t plan_places_align(struct plan_places places)
{
	const uint32_t bits = places.dst | places.src | PLAN_ALIGN;

	return bits & -bits;
}

/* The kind says what the key identifies. */
enum plan_kind {
	PLAN_KIND_SPEC,   /* the plan of a layout as requests give it */
	PLAN_KIND_ROUND,  /* the plan of the part of a transform that a round moves */
	PLAN_KIND_MEMBER, /* another plan's transform as one of many moves of a launch */
	PLAN_KIND_LIST,   /* another plan's transform for a list of blocks */
};

struct plan_key {
	uint64_t hash; /* 0: not set */
	uint32_t n;
	uint64_t word[PLAN_KEY_WORDS];
};

/* Makes a key of PLAN_KIND_SPEC. */
void plan_key_init(struct plan_key *key, const struct transform_spec *spec, struct plan_places places);

/* Makes a key of PLAN_KIND_ROUND. The transform converts nothing. */
void plan_key_init_round(struct plan_key *key, const struct transform *transform, struct plan_places places);

/* Makes a key of one of the other kinds, from another plan's serial number. */
void plan_key_init_of(struct plan_key *key, enum plan_kind kind, uint64_t serial, struct plan_places places);

/* Appends n values, which may be 0. */
void plan_key_add(struct plan_key *key, const int64_t *values, int n);

bool plan_key_is_same(const struct plan_key *a, const struct plan_key *b);

#endif
