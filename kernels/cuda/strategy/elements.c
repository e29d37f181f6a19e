/* SPDX-License-Identifier: Apache-2.0 */
/* `elements` moves elements of 4 bytes and more one by one, without shared memory. It also writes borders of
 * a value. */
#include "strategy_launch.h"

#include <math.h>

#define SECTOR    32
#define LINE      128
#define WARP_LINE 0.275   /* time of a line that a warp reads, in that in which a copy moves a byte */
#define FEW_SPLIT 0.26    /* sectors that a warp reads in part, by those that its elements fill */
#define CACHED    32768.0 /* bytes that a block finds again in its multiprocessor's cache */
#define BORDER    0.4 /* time to find an element's place in a border, for each dimension but one, of 4 bytes */

static bool probe(struct plan *plan, const struct strategy_case *c)
{
	const struct loop_nest *nest = c->nest;
	struct tma_route_plan *tma = &plan->tma;
	const uint64_t block = ROWS_THREADS * ELEMENTS_BATCH(nest->element);
	uint64_t count = 1;
	int64_t row = nest->element;

	if (nest->element < 4 || nest->rank == 0 || (!tma_is_whole(nest) && c->mode != PAD_MODE_CONSTANT))
		return false;
	for (int d = 0; d < nest->rank; d++) {
		if (nest->dim[d].n > TMA_LONGEST)
			return false;
		count *= (uint64_t)nest->dim[d].n;
		if (count > INT32_MAX - block)
			return false;
	}
	tma_begin_strided(tma, nest);
	tma->whole = tma_is_whole(nest);
	tma_set_dims(tma, nest, nest->rank - 1, -1);
	for (tma->run = 0; tma->run < tma->rank && tma->dim[tma->run].dst == row; tma->run++)
		row *= tma->dim[tma->run].n;
	tma->slots = tma->tiles = count;
	return true;
}

/* Returns the bytes of the runs that a block of so many of the destination's elements has on one side. */
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

/* Returns the time of two things at once, which is that of the longer one unless they take about as
 * long. */
static double together(double a, double b)
{
	const double longer = a > b ? a : b, shorter = a > b ? b : a, share = shorter / longer;

	return longer * (1 + 0.19 * share * share * share * share);
}

/* Returns whether runs of the source begin where a pair of sectors does, provided that the first run does.
 * A run that is read again and again does not count, because only its first reading is from memory. */
static bool has_whole_sectors(const struct tma_route_plan *tma, double load)
{
	for (uint32_t d = 0; d < tma->rank; d++) {
		const uint64_t stride = magnitude_i64(tma->dim[d].src);

		if (tma->dim[d].n == 1)
			continue;
		if (stride == 0 || ((double)stride >= load && stride % (2 * SECTOR) != 0))
			return false;
	}
	return tma->src_offset % (2 * SECTOR) == 0 && fmod(load, 2 * SECTOR) == 0;
}

/* Where runs of either side have only a part of a sector, or of two that are fetched together, it is moved
 * more than once; what a block reads has to stay in the cache of its multiprocessor while it is needed; and
 * that takes a cycle for each line of a warp. */
static double cost(const struct plan *plan, enum pad_mode mode)
{
	const struct tma_route_plan *tma = &plan->tma;
	const uint64_t elements = ROWS_THREADS * ELEMENTS_BATCH(tma->element);
	const double bytes = (double)elements * tma->element, own = tma->element == 16 ? 1.025 : 1.005;
	const double load = run_of_block(tma, elements, true), row = run_of_block(tma, elements, false);
	const double lines = bytes / load * (load / LINE + 1) * LINE;
	const double warp = run_of_block(tma, WARP_THREADS, true);
	const double warps = WARP_THREADS * tma->element / warp; /* runs of a warp */
	const double split = warps * SECTOR / (WARP_THREADS * tma->element);
	const double cache = warps * (double)divide_up_u64((uint64_t)warp, LINE) * WARP_LINE / tma->element;

	const double border = tma->whole ? 0 : 0.02 + BORDER * (tma->rank - 1) * 4 / tma->element;
	const double ends = has_whole_sectors(tma, load) ? 0 : 0.5 * (2 * SECTOR - tma->element) / load;

	(void)mode;
	return together(own, cache) + border + ends + (split > FEW_SPLIT ? 3 * (split - FEW_SPLIT) : 0) +
	       (row < bytes ? 30 / row : 0) + (lines > CACHED ? 0.5 * (lines / CACHED - 1) : 0);
}

#ifdef HAVE_CUDA
static uint32_t kernel(const struct transform *transform, const struct tma_route_plan *tma)
{
	(void)transform;
	return by_element(KERNEL_strided_elements_4, tma->element / 4);
}

static uint32_t slots(const struct tma_route_plan *tma, const struct strided_args *args)
{
	(void)args;
	return ROWS_THREADS * ELEMENTS_BATCH(tma->element);
}
#endif

const struct strategy strategy_elements = {
	.name = "elements",
	.family = FAMILY_STRIDED,
	.turn = STRATEGY_INSTEAD,
	.has_border = true,
	.probe = probe,
	.cost = cost,
	.launch = WITH_CUDA(strategy_launch_strided),
	.kernel = WITH_CUDA(kernel),
	.slots = WITH_CUDA(slots),
};
