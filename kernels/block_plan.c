/* The alignment that all blocks have, and the plan with it. */
#include "block_plan.h"

#include "engine.h"

static uint64_t side_bits(const struct engine_blocks_side *side, uint32_t layers)
{
	uint64_t bits = side->step;

	if (!side->layers)
		return layers > 1 ? bits | side->layer_step : bits;
	for (uint32_t l = 0; l < layers; l++)
		bits |= (uint64_t)side->layers[l];
	return bits;
}

static uint32_t align_of(uint64_t bits)
{
	bits |= 16;
	return (uint32_t)(bits & -bits);
}

uint32_t block_align(const struct engine_blocks *blocks)
{
	return align_of(side_bits(&blocks->dst, blocks->layers) | side_bits(&blocks->src, blocks->layers));
}

bool block_plan_serves(const struct plan *plan, const struct engine_blocks *blocks)
{
	return plan->tma.route >= TMA_ROUTE_ROWS && plan->tma.route != TMA_ROUTE_CHANNELS &&
	       block_align(blocks) == 16;
}

void block_plan_init(struct plan *plan, const struct transform *transform, const struct engine_blocks *blocks,
                     const struct plan_facts *facts, uint64_t dst, uint64_t src)
{
	struct plan_facts own = *facts;

	own.align = align_of(dst | src | block_align(blocks));
	own.dst_phase = dst % 16;
	own.src_phase = src % 16;
	own.spread = true;
	plan_init(plan, transform, &own);
}
