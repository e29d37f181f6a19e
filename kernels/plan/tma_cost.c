/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan's moves cost, by formulas that were fitted to measurements (tests/bench/EXPERIMENTS.md). */
#include "tma_route.h"

#include "permute_plan.h"

#define SMALL_TILE 8192 /* bytes, below which too few are in flight */

/* How much more the tiles of a map hold than there is of the tensor. */
static double tile_waste(const struct plan *plan)
{
	const struct tma_route_plan *tma = &plan->tma;
	double waste = 1;

	for (uint32_t d = 0; d < tma->rank && d < (uint32_t)plan->tile_rank; d++) {
		const uint64_t n = (uint64_t)tma->dim[d].n,
			       tile = (uint64_t)plan->tile[plan->tile_rank - 1 - (int)d];

		waste *= (double)(divide_up_u64(n, tile) * tile) / (double)n;
	}
	return waste;
}

static double tile_bytes(const struct plan *plan)
{
	double bytes = plan->tma.element;

	for (int d = 0; d < plan->tile_rank; d++)
		bytes *= (double)plan->tile[d];
	return bytes;
}

static double route_cost(const struct plan *plan)
{
	const struct tma_route_plan *tma = &plan->tma;
	const double run = (double)tma->dim[0].n * tma->element;
	double own;

	switch (tma->route) {
	case TMA_ROUTE_PERMUTE:
		return tma->cost;
	case TMA_ROUTE_BULK:
	case TMA_ROUTE_COPY:
		own = tile_bytes(plan);
		return 1.04 * tile_waste(plan) * (own < SMALL_TILE ? SMALL_TILE / own : 1);
	case TMA_ROUTE_TRANSPOSE:
		return 1.06 * (0.62 + 0.38 * tile_waste(plan));
	case TMA_ROUTE_CHANNELS: /* warps of 32 chunks */
		return 1.02 + 0.4 * ((double)tma->slots * 32 * 16 / run - 1);
	case TMA_ROUTE_ROWS: /* warps of 32 chunks, each for a row */
		return 0.5 + 0.5 * (double)divide_up_u64((uint64_t)run, 512) * 512 / run;
	case TMA_ROUTE_SHORT:
		return 0.95 + 70 / run;
	case TMA_ROUTE_TILES:
		return 3;
	case TMA_ROUTE_GATHER:
		return 5;
	default:
		return 1;
	}
}

/* The border is written by another launch: in rows of the destination that are as long as what follows its
 * padded dimensions. */
static double border_cost(const struct loop_nest *nest, enum pad_mode mode)
{
	double run = nest->element;

	for (int d = nest->rank - 1; d >= 0 && nest->dim[d].source == nest->dim[d].n; d--)
		run *= (double)nest->dim[d].n;
	return mode == PAD_MODE_CONSTANT ? 0.6 + 100 / run : 20;
}

double tma_cost(const struct plan *plan, const struct loop_nest *nest, enum pad_mode mode)
{
	double all = 1, window = 1, border;

	if (plan->tma.border_rank == 0)
		return route_cost(plan);
	for (int d = 0; d < nest->rank; d++) {
		all *= (double)nest->dim[d].n;
		window *= (double)nest->dim[d].source;
	}
	border = 1 - window / all;
	return route_cost(plan) * (1 - border) + border_cost(nest, mode) * border;
}
