/* SPDX-License-Identifier: Apache-2.0 */
/* Explains plans: what a plan's tile is in memory, and all that `explain` prints. Pure. */
#ifndef KERNELS_CUDA_STRATEGY_EXPLAIN_H
#define KERNELS_CUDA_STRATEGY_EXPLAIN_H

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

/* For strategies: makes dimension d of the tile, counted from the outermost, the plan's dimension `of`. */
void plan_tile_set_dim(struct plan_tile *ret, const struct plan *plan, int d, int of);

/* Sets *ret to an explanation of the plan. */
void plan_explain(struct engine_explanation *ret, const struct plan *plan, const struct transform *transform,
                  const struct plan_facts *facts);

/* Returns the facts of an H200, for well aligned bases. */
struct plan_facts plan_facts_of_h200(void);

#endif
