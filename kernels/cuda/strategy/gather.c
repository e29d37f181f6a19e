/* SPDX-License-Identifier: Apache-2.0 */
/* `gather` moves element by element where runs are short. It is always legal. */
#include "strategy_launch.h"

static void set_gather(struct tma_route_plan *tma, const struct loop_nest *nest)
{
	int64_t row = nest->element;

	tma_set_dims(tma, nest, nest->rank - 1, -1);
	for (tma->run = 0; tma->run < tma->rank && tma->run < 3 && tma->dim[tma->run].dst == row; tma->run++)
		row *= tma->dim[tma->run].n;
	tma->slots = row_chunks((uint64_t)row);
	tma_count_tiles(tma, tma->slots, tma->run);
}

static bool probe(struct plan *plan, const struct strategy_case *c)
{
	tma_begin_strided(&plan->tma, c->nest);
	tma_set_whole(&plan->tma, c->nest);
	set_gather(&plan->tma, c->nest);
	return true;
}

static double cost(const struct plan *plan, enum pad_mode mode)
{
	(void)mode;
	return 6 + 12.0 / plan->tma.element; /* a sector for each element, at worst */
}

#ifdef HAVE_CUDA
static uint32_t kernel(const struct transform *transform, const struct tma_route_plan *tma)
{
	(void)transform;
	return by_element(KERNEL_strided_gather_1, tma->element);
}

static uint32_t slots(const struct tma_route_plan *tma, const struct strided_args *args)
{
	(void)tma;
	(void)args;
	return ROWS_THREADS * GATHER_BATCH;
}

static uint32_t kernel_of_many(const struct transform *transform, const struct tma_route_plan *tma)
{
	(void)transform;
	return by_element(KERNEL_many_gather_1, tma->element);
}
#endif

const struct strategy strategy_gather = {
	.name = "gather",
	.family = FAMILY_STRIDED,
	.turn = STRATEGY_FIRST,
	.has_border = true,
	.spreads = true,
	.probe = probe,
	.cost = cost,
	.launch = WITH_CUDA(strategy_launch_strided),
	.kernel = WITH_CUDA(kernel),
	.slots = WITH_CUDA(slots),
	.many_kernel = WITH_CUDA(kernel_of_many),
};
