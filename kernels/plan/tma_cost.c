/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan's moves cost, by formulas that were fitted to measurements (tests/bench/EXPERIMENTS.md). */
#include "tma_route.h"

#include "permute_plan.h"

#define SMALL_TILE 15000.0 /* bytes of a box, below which too few are in flight */
#define SMALL_BULK 6000.0  /* of a plain copy */
#define WARP_LINE  0.275   /* time of a line that a warp reads, in that in which a copy moves a byte */
#define FEW_SPLIT  0.26    /* sectors that a warp reads in part, by those that its elements fill */
#define CACHED     32768.0 /* bytes that a block finds again in its multiprocessor's cache */
#define LAUNCH     6e6     /* bytes that a copy writes in the time that a second launch takes */
#define FIXED      17e6    /* and in the time that a copy of any size takes (predict.c) */

static double box_bytes(const struct tma_route_plan *tma)
{
	double bytes = tensor_map_type_size(tma->load.type);

	for (uint32_t d = 0; d < tma->load.rank; d++)
		bytes *= (double)tma->load.box[d];
	return bytes;
}

/* How much more a transpose's tiles hold than there is. */
static double tile_waste(const struct plan *plan)
{
	const struct tma_route_plan *tma = &plan->tma;
	double waste = 1;

	for (uint32_t d = 0; d < tma->rank && d < (uint32_t)plan->tile_rank; d++) {
		const uint64_t n = (uint64_t)tma->dim[d].n;
		const uint64_t tile = (uint64_t)plan->tile[plan->tile_rank - 1 - (int)d];

		waste *= (double)(divide_up_u64(n, tile) * tile) / (double)n;
	}
	return waste;
}

static double window_bytes(const struct tma_route_plan *tma)
{
	double bytes = tma->element;

	for (uint32_t d = 0; d < tma->rank; d++)
		bytes *= (double)tma->dim[d].n;
	return bytes;
}

/* Rows of the destination are not multiples of `align` apart. */
static bool is_ragged(const struct tma_route_plan *tma, uint64_t align)
{
	uint64_t bits = (uint64_t)tma->dst_offset;

	for (uint32_t d = 0; d < tma->rank; d++)
		bits |= tma->dim[d].dst == tma->element ? 0 : (uint64_t)tma->dim[d].dst;
	return bits % align != 0;
}

/* How long the runs are that a block of so many of the destination's elements has of one side, in bytes. */
static double run_of_block(const struct tma_route_plan *tma, uint64_t elements, bool is_src)
{
	uint64_t run = tma->element;
	bool is_longer = true;

	while (is_longer) {
		uint64_t left = elements;

		is_longer = false;
		for (uint32_t d = 0; d < tma->rank && left > 1; d++) {
			const uint64_t n = (uint64_t)tma->dim[d].n, part = min_u64(n, left);
			const int64_t stride = is_src ? tma->dim[d].src : tma->dim[d].dst;

			left = divide_up_u64(left, n);
			if (part < 2 || (uint64_t)magnitude_i64(stride) != run)
				continue;
			run *= part;
			is_longer = part == n;
		}
	}
	return (double)run;
}

/* The time of two things at once, which is that of the longer one unless they take about as long. */
static double together(double a, double b)
{
	const double longer = a > b ? a : b, shorter = a > b ? b : a, share = shorter / longer;

	return longer * (1 + 0.19 * share * share * share * share);
}

/* What runs of either side have of a sector, or of two that are fetched together, is moved more than once;
 * what a block reads has to stay in the cache of its multiprocessor while it is needed; and that takes a
 * cycle for each line of a warp. */
static double elements_cost(const struct tma_route_plan *tma)
{
	const uint64_t elements = ROWS_THREADS * ELEMENTS_BATCH(tma->element);
	const double bytes = (double)elements * tma->element, own = tma->element == 16 ? 1.025 : 1.005;
	const double load = run_of_block(tma, elements, true), row = run_of_block(tma, elements, false);
	const double lines = bytes / load * (load / LINE + 1) * LINE;
	const double warp = run_of_block(tma, WARP_THREADS, true);
	const double warps = WARP_THREADS * tma->element / warp; /* runs of a warp */
	const double split = warps * SECTOR / (WARP_THREADS * tma->element);
	const double cache = warps * (double)divide_up_u64((uint64_t)warp, LINE) * WARP_LINE / tma->element;

	return together(own, cache) + (tma->whole ? 0 : 0.02) + 0.5 * (2 * SECTOR - tma->element) / load +
	       (split > FEW_SPLIT ? 3 * (split - FEW_SPLIT) : 0) + (row < bytes ? 30 / row : 0) +
	       (lines > CACHED ? 0.5 * (lines / CACHED - 1) : 0);
}

static double route_cost(const struct plan *plan, enum pad_mode mode)
{
	const struct tma_route_plan *tma = &plan->tma;
	const double run = (double)tma->dim[0].n * tma->element;
	const double box = box_bytes(tma);

	switch (tma->route) {
	case TMA_ROUTE_NONE: /* writes alone */
		return 1.15;
	case TMA_ROUTE_PERMUTE:
		return tma->cost;
	case TMA_ROUTE_BULK:
		return 1.07 + (tma->chunk < SMALL_BULK ? (SMALL_BULK - tma->chunk) / 2000 : 0);
	case TMA_ROUTE_COPY:
		return (1.05 + 20 / run) * box * (double)tma->tiles / window_bytes(tma) *
		       (box < SMALL_TILE ? SMALL_TILE / box : 1);
	case TMA_ROUTE_TRANSPOSE:
		return 1.09 + (tma->element <= 4 ? 0.25 : 0.45) * (tile_waste(plan) - 1) +
		       (tma->element <= 2 && is_ragged(tma, SECTOR) ? 0.5 : 0);
	case TMA_ROUTE_CHANNELS: /* warps of 32 chunks */
		return 1.02 + 0.27 * ((double)tma->slots * 32 * 16 / run - 1);
	case TMA_ROUTE_ROWS: /* likewise, each for a row */
		return 0.01 + (double)divide_up_u64((uint64_t)run, 512) * 512 / run + 150 / run +
		       (tma->element == 1 ? 0.06 : 0);
	case TMA_ROUTE_SHORT:
		return (0.95 + 70 / run) * (tma->element <= 2 && is_ragged(tma, 16) ? 1.5 : 1) *
		       (mode == PAD_MODE_CONSTANT ? 1 : 1.5);
	case TMA_ROUTE_TILES:
		return 4 + 10.0 / tma->element;
	case TMA_ROUTE_ELEMENTS:
		return elements_cost(tma);
	case TMA_ROUTE_GATHER: /* a sector for each element, at worst */
		return 6 + 12.0 / tma->element;
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

static double nest_bytes(const struct loop_nest *nest)
{
	double bytes = nest->element;

	for (int d = 0; d < nest->rank; d++)
		bytes *= (double)nest->dim[d].n;
	return bytes;
}

double tma_cost(const struct plan *plan, const struct loop_nest *nest, int outer, enum pad_mode mode)
{
	double window = 1, border;

	if (plan->tma.border_rank == 0 || plan->tma.route == TMA_ROUTE_NONE)
		return route_cost(plan, mode);
	for (int d = 0; d < outer; d++)
		window *= (double)nest->dim[d].source / (double)nest->dim[d].n;
	border = 1 - window;
	return route_cost(plan, mode) * window + border_cost(nest, mode) * border +
	       LAUNCH / (FIXED + nest_bytes(nest));
}
