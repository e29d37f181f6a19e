/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan's tile is in memory, for tools that explain or draw it; and the facts to plan with for an
 * engine that is not here. Pure. */
#ifndef KERNELS_PLAN_PLAN_TILE_H
#define KERNELS_PLAN_PLAN_TILE_H

#include <stdbool.h>
#include <stdint.h>

#include "plan.h"

/* Dimensions outermost first: those of plan->tile; of a tile of many axes those in which it has more than one
 * element. */
struct plan_tile {
	int rank;
	int64_t n[PLAN_TILE_RANK];   /* elements */
	uint32_t element;            /* bytes of one of the tile's elements */
	uint32_t row_bytes;          /* in shared memory; 0: it is in none, or not in rows */
	int64_t dst[PLAN_TILE_RANK]; /* bytes from an element to the next in the destination */
	int64_t src[PLAN_TILE_RANK]; /* and in the source */
};

/* Zeros for a plan without tiles. */
void plan_tile_of(const struct plan *plan, struct plan_tile *ret);

/* "cpu": one thread; "cuda": an H200. false: there is no engine of that name, which need not end with a NUL.
 * Both are for well aligned bases. */
bool plan_facts_of(const char *engine, size_t len, struct plan_facts *ret);

#endif
