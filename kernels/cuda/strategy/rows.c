/* SPDX-License-Identifier: Apache-2.0 */
/* `rows` moves rows that are contiguous on both sides, one to a warp. It also writes borders of any mode. */
#include "strategy_launch.h"

static bool probe(struct plan *plan, const struct strategy_case *c)
{
	struct tma_route_plan *tma = &plan->tma;

	if (tma_row_bytes(c) <= SHORT_ROW_BYTES)
		return false;
	tma_begin_strided(tma, c->nest);
	tma_set_dims(tma, c->nest, c->nest->rank - 1, -1);
	tma->slots = divide_up_u64(tma_row_bytes(c), ROW_BYTES);
	tma_count_tiles(tma, tma->slots, 1);
	return true;
}

static double cost(const struct plan *plan, enum pad_mode mode)
{
	const struct tma_route_plan *tma = &plan->tma;
	const double run = (double)tma->dim[0].n * tma->element;

	(void)mode;
	/* A warp takes 32 chunks of one row at a time. */
	return 0.01 + (double)divide_up_u64((uint64_t)run, 512) * 512 / run + 150 / run +
	       (tma->element == 1 ? 0.06 : 0);
}

#ifdef HAVE_CUDA
static uint32_t kernel(const struct transform *transform, const struct tma_route_plan *tma)
{
	return by_element(transform->mode == PAD_MODE_CONSTANT ? KERNEL_strided_rows_1
	                                                       : KERNEL_strided_modes_1,
	                  tma->element);
}

static uint32_t kernel_of_many(const struct transform *transform, const struct tma_route_plan *tma)
{
	return by_element(transform->mode == PAD_MODE_CONSTANT ? KERNEL_many_rows_1 : KERNEL_many_modes_1,
	                  tma->element);
}

static uint32_t slots(const struct tma_route_plan *tma, const struct strided_args *args)
{
	(void)tma;
	(void)args;
	return ROWS_THREADS / WARP_THREADS;
}
#endif

const struct strategy strategy_rows = {
	.name = "rows",
	.family = FAMILY_STRIDED,
	.turn = STRATEGY_EITHER,
	.has_border = true,
	.spreads = true,
	.probe = probe,
	.cost = cost,
	.launch = WITH_CUDA(strategy_launch_strided),
	.kernel = WITH_CUDA(kernel),
	.slots = WITH_CUDA(slots),
	.many_kernel = WITH_CUDA(kernel_of_many),
};
