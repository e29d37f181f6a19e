/* SPDX-License-Identifier: Apache-2.0 */
/* `short` moves rows that are contiguous on both sides, several at a time, by way of shared memory. */
#include "strategy_launch.h"

/* Rows with a border of a value take 5 us longer than elements do, however few there are. A copy writes so
 * many bytes meanwhile. */
#define BORDER_BYTES 10e6

static bool probe(struct plan *plan, const struct strategy_case *c)
{
	const uint64_t bytes = tma_row_bytes(c);
	struct tma_route_plan *tma = &plan->tma;

	if (bytes == 0 || bytes > SHORT_ROW_BYTES)
		return false;
	tma_begin_strided(tma, c->nest);
	tma->whole = tma_is_whole(c->nest);
	tma_set_dims(tma, c->nest, c->nest->rank - 1, -1);
	tma->slots = bytes / 16;
	tma_count_tiles(tma, 1, 1);
	return true;
}

static double cost(const struct plan *plan, enum pad_mode mode)
{
	const struct tma_route_plan *tma = &plan->tma;
	const double run = (double)tma->dim[0].n * tma->element, bytes = run * (double)tma->tiles;

	return (0.95 + 70 / run) * (tma->element <= 2 && tma_is_ragged(tma, 16) ? 1.5 : 1) *
	           (mode == PAD_MODE_CONSTANT ? 1 : 1.5) +
	       (mode == PAD_MODE_CONSTANT && !tma->whole ? BORDER_BYTES / bytes : 0);
}

#ifdef HAVE_CUDA
static uint32_t slots(const struct tma_route_plan *tma, const struct strided_args *args)
{
	(void)tma;
	return args->rows;
}

static uint32_t kernel_of_many(const struct transform *transform, const struct tma_route_plan *tma)
{
	(void)transform;
	return by_element(KERNEL_many_short_1, tma->element);
}
#endif

const struct strategy strategy_short = {
	.name = "short",
	.family = FAMILY_STRIDED,
	.turn = STRATEGY_EITHER,
	.has_border = true,
	.spreads = true,
	.probe = probe,
	.cost = cost,
	.launch = WITH_CUDA(strategy_launch_one),
	.slots = WITH_CUDA(slots),
	.many_kernel = WITH_CUDA(kernel_of_many),
};
