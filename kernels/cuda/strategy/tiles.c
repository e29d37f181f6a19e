/* SPDX-License-Identifier: Apache-2.0 */
/* `tiles` moves tiles without a tensor map, whatever the alignment, where the two sides are contiguous along
 * different dimensions. */
#include "strategy_launch.h"

#include <stdlib.h>

#include "plan.h"

#define TILES_LEAST 32 /* bytes of a run; with shorter runs, a tile is not worth it */
#define GATHER_MOST 16 /* maximum elements of a run with which a gathering warp reads whole sectors */

/* Returns the dimension other than the innermost with the least source stride, or -1 if there is none. */
static int source_inner(const struct loop_nest *nest)
{
	int best = -1;

	for (int d = nest->rank - 2; d >= 0; d--)
		if (nest->dim[d].src && nest->dim[d].n > 1 &&
		    (best < 0 || llabs(nest->dim[d].src) < llabs(nest->dim[best].src)))
			best = d;
	return best;
}

/* Returns whether lanes that write neighbouring chunks read neighbouring elements of the source, so that
 * `gather` is the better choice. That is so if the destination's runs are whole chunks, but so short that
 * those of a warp span many indices of the dimension around them, along which the source is contiguous. A
 * tile would be nearly empty. */
static bool gathers_sectors(const struct loop_nest *nest, int other)
{
	const struct loop_nest_dim *inner = &nest->dim[nest->rank - 1], *around = &nest->dim[other];

	return inner->n <= GATHER_MOST && inner->n * nest->element % 16 == 0 && inner->dst == nest->element &&
	       llabs(around->src) == nest->element && around->dst == inner->n * inner->dst;
}

static void set_tiles(struct plan *plan, const struct loop_nest *nest, int src_inner)
{
	struct tma_route_plan *tma = &plan->tma;
	const uint32_t element = nest->element;
	uint64_t columns, rows;

	tma_set_dims(tma, nest, nest->rank - 1, src_inner);
	if (tma->rank == 1)
		tma->dim[tma->rank++] = tma_unit_dim(nest->element);
	/* The last chunk of a row may begin up to a margin later than in an aligned row. */
	columns = divide_up_u64((uint64_t)tma->dim[0].n + TILES_MARGIN(element), TILES_X(element));
	rows = divide_up_u64((uint64_t)tma->dim[1].n, TILES_Y(element));
	tma->grid[0] = (uint32_t)columns;
	tma->grid[1] = (uint32_t)rows;
	tma_count_tiles(tma, columns * rows, 2);
	plan->tile_rank = 2;
	plan->tile[0] = TILES_Y(element);
	plan->tile[1] = TILES_X(element);
}

static bool probe(struct plan *plan, const struct strategy_case *c)
{
	const struct loop_nest *nest = c->nest;
	const struct loop_nest_dim *inner = &nest->dim[nest->rank - 1];
	const int64_t element = nest->element;
	const int other = source_inner(nest);
	const bool pair = other >= 0 && llabs(nest->dim[other].src) < llabs(inner->src) &&
	                  inner->n * element >= TILES_LEAST && nest->dim[other].n * element >= TILES_LEAST &&
	                  !gathers_sectors(nest, other);

	if (inner->dst == element && !pair)
		return false;
	tma_begin_strided(&plan->tma, nest);
	tma_set_whole(&plan->tma, nest);
	set_tiles(plan, nest, other);
	return true;
}

static double cost(const struct plan *plan, enum pad_mode mode)
{
	(void)mode;
	return 4 + 10.0 / plan->tma.element;
}

static void describe(const struct plan *plan, struct plan_tile *ret)
{
	plan_tile_set_dim(ret, plan, 0, 1);
	plan_tile_set_dim(ret, plan, 1, 0);
}

#ifdef HAVE_CUDA
static uint32_t slots(const struct tma_route_plan *tma, const struct strided_args *args)
{
	(void)tma;
	(void)args;
	return 1;
}

static uint32_t kernel_of_many(const struct transform *transform, const struct tma_route_plan *tma)
{
	(void)transform;
	return by_element(KERNEL_many_tiles_1, tma->element);
}
#endif

const struct strategy strategy_tiles = {
	.name = "tiles",
	.family = FAMILY_STRIDED,
	.turn = STRATEGY_FIRST,
	.has_border = true,
	.spreads = true,
	.probe = probe,
	.cost = cost,
	.describe = describe,
	.launch = WITH_CUDA(strategy_launch_one),
	.slots = WITH_CUDA(slots),
	.many_kernel = WITH_CUDA(kernel_of_many),
};
