/* SPDX-License-Identifier: Apache-2.0 */
/* `channels` moves pixels of a few channels that lie together on one side and apart on the other. Everything
 * is aligned, and no map is needed. */
#include "strategy_launch.h"

#include <inttypes.h>

#include "explain.h"

static bool is_channels(int64_t n)
{
	return (n >= 2 && n <= 4) || n == 6 || n == 8;
}

static bool try_turned(struct plan *plan, const struct strategy_case *c)
{
	const struct loop_nest *nest = c->nest;
	const struct plan_facts *facts = c->facts;
	const int src_inner = c->src_inner;
	struct tma_route_plan *tma = &plan->tma;
	const int inner = nest->rank - 1;
	const int64_t element = nest->element;
	/* In the source, or in the destination. */
	const bool together =
	    !is_channels(nest->dim[inner].n) || nest->dim[src_inner].dst != element * nest->dim[inner].n;
	const int pixels = together ? inner : src_inner, channels = together ? src_inner : inner;
	const struct loop_nest_dim *pixel = &nest->dim[pixels], *channel = &nest->dim[channels];
	uint64_t bits = facts->dst_phase + (uint64_t)nest->dst_offset;

	bits |= facts->src_phase + (uint64_t)nest->src_offset;
	bits |= (uint64_t)(pixel->n * element);
	bits |= (uint64_t)(together ? channel->dst : channel->src);
	for (int d = 0; d < nest->rank; d++)
		if (d != pixels && d != channels)
			bits |= (uint64_t)nest->dim[d].dst | (uint64_t)nest->dim[d].src;
	if (!tma_is_whole(nest) || element > 8 || !is_channels(channel->n) || bits % 16 ||
	    (together ? pixel->src : pixel->dst) != channel->n * element ||
	    (together ? channel->src : channel->dst) != element)
		return false;
	family_rules_add(&plan->rules, FAMILY_TILE_TRANSPOSE,
	                 "pixels are %" PRId64 " bytes, but a tile's rows are of %d", channel->n * element,
	                 TRANSPOSE_ROW_BYTES);
	tma_set_dims(tma, nest, pixels, channels);
	tma->element = nest->element;
	tma->dst_offset = nest->dst_offset;
	tma->src_offset = nest->src_offset;
	tma->repeats = 1;
	tma->run = (uint32_t)channel->n;
	tma->slots = divide_up_u64((uint64_t)(pixel->n * element) / 16, 32);
	tma_count_tiles(tma, tma->slots, 2);
	plan->tile_rank = 2;
	plan->tile[0] = together ? channel->n : 512 / element;
	plan->tile[1] = together ? 512 / element : channel->n;
	return true;
}

static bool probe(struct plan *plan, const struct strategy_case *c)
{
	return nest_is_turned(c) && try_turned(plan, c);
}

static double cost(const struct plan *plan, enum pad_mode mode)
{
	const struct tma_route_plan *tma = &plan->tma;
	const double run = (double)tma->dim[0].n * tma->element;

	(void)mode;
	return 1.02 + 0.27 * ((double)tma->slots * 32 * 16 / run - 1); /* warps of 32 chunks */
}

/* The few channels are dimension 1 of the plan. */
static void describe(const struct plan *plan, struct plan_tile *ret)
{
	const bool is_first = plan->tile[0] == plan->tma.run;

	plan_tile_set_dim(ret, plan, 0, is_first ? 1 : 0);
	plan_tile_set_dim(ret, plan, 1, is_first ? 0 : 1);
}

#ifdef HAVE_CUDA
static uint32_t kernel(const struct transform *transform, const struct tma_route_plan *tma)
{
	(void)transform;
	return by_element(tma->run > CHANNELS_FEW ? KERNEL_strided_many_1 : KERNEL_strided_few_1,
	                  tma->element);
}

static uint32_t slots(const struct tma_route_plan *tma, const struct strided_args *args)
{
	(void)tma;
	(void)args;
	return ROWS_THREADS / WARP_THREADS;
}
#endif

const struct strategy strategy_channels = {
	.name = "channels",
	.family = FAMILY_STRIDED,
	.turn = STRATEGY_FIRST,
	.has_border = true,
	.probe = probe,
	.cost = cost,
	.describe = describe,
	.launch = WITH_CUDA(strategy_launch_strided),
	.kernel = WITH_CUDA(kernel),
	.slots = WITH_CUDA(slots),
};
