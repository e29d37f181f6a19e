/* SPDX-License-Identifier: Apache-2.0 */
/* Random tensor maps and tiles: legal ones of every kind, and ones that break a rule or two. A tile begins
 * where the unit accepts it, at a multiple of 16 bytes in dimension 0. */
#ifndef TESTS_GPU_CONFORMANCE_CONFORMANCE_DRAW_H
#define TESTS_GPU_CONFORMANCE_CONFORMANCE_DRAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cuda/strategy/tensor_map.h"

struct draw {
	struct tensor_map_layout layout;
	uint64_t offset; /* offset of the tensor's address from an address aligned to 256 bytes */
	int32_t at[TENSOR_MAP_MAX_RANK];
};

/* The state of splitmix64. */
struct rng {
	uint64_t state;
};

uint64_t rng_next(struct rng *rng);
uint32_t rng_below(struct rng *rng, uint32_t n);
void rng_fill(struct rng *rng, void *bytes, size_t n);

/* Draws a map that keeps every rule. */
void draw_legal(struct rng *rng, struct draw *ret);

/* Changes fields to their limits and beyond, so that most draws break a rule. */
void draw_spoil(struct rng *rng, struct draw *draw);

/* Returns whether a dimension is 2^32 long, which is legal, but see conformance_beyond.c. */
bool draw_is_huge(const struct draw *draw);

/* Writes a line that describes all of the draw. Returns text. */
char *draw_print(const struct draw *draw, char *text, size_t size);

#endif
