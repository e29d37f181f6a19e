/* SPDX-License-Identifier: Apache-2.0 */
/* This file finds the alignment that all blocks share, and the lists that have kernels of their own. */
#include "block_plan.h"

#include "kernels/transform/blocks.h"
#include "planner.h"

#define MOST_BLOCKS (1 << 30) /* that a map counts: tensor_map.h says why */
#define RUN_LEAST   1024      /* bytes of a run, below which a warp does several */

static uint32_t align_of(uint64_t bits)
{
	bits |= 16;
	return (uint32_t)(bits & -bits);
}

uint32_t block_align(const struct engine_blocks *blocks)
{
	return align_of(blocks_side_bits(&blocks->dst, UINT64_MAX, blocks->layers) |
	                blocks_side_bits(&blocks->src, UINT64_MAX, blocks->layers));
}

bool block_plan_map(const struct tensor_map_layout *one, const struct engine_blocks *blocks,
                    enum block_side side, struct tensor_map_layout *ret)
{
	const struct engine_blocks_side *own = side == BLOCK_DST ? &blocks->dst : &blocks->src;
	const uint64_t n = (side == BLOCK_DST) == blocks->scatter ? blocks->limit : blocks->n;
	struct tensor_map_rules rules;

	*ret = *one;
	if (own->layers || n > MOST_BLOCKS || one->rank + 1 + (blocks->layers > 1) > TENSOR_MAP_MAX_RANK)
		return false;
	const struct {
		uint64_t n, step;
	} more[] = { { n, own->step }, { blocks->layers, own->layer_step } };

	for (int i = 0; i < 1 + (blocks->layers > 1); i++, ret->rank++) {
		ret->dim[ret->rank] = more[i].n;
		/* One index has no stride, and a map wants one. */
		ret->stride[ret->rank - 1] = more[i].n > 1 ? more[i].step : 16;
		ret->box[ret->rank] = ret->element_stride[ret->rank] = 1;
	}
	tensor_map_check(ret, 0, &rules);
	return rules.n == 0;
}

bool block_plan_has_kernel(const struct plan *plan, const struct engine_blocks *blocks)
{
	const struct tma_route_plan *tma = &plan->tma;
	const uint64_t items = blocks->n * blocks->layers, run = (uint64_t)tma->dim[0].n;
	struct tensor_map_layout map;

	if (tma->border_rank > 0 || tma->patched)
		return false;
	if (tma->strategy == STRATEGY_memcpy)
		return run >= RUN_LEAST && run % 16 == 0 && tma->dst_offset % 16 == 0 &&
		       tma->src_offset % 16 == 0;
	return tma->strategy == STRATEGY_copy && tma->tiles < UINT32_MAX / items &&
	       block_plan_map(&tma->load, blocks, BLOCK_SRC, &map) &&
	       block_plan_map(&tma->store, blocks, BLOCK_DST, &map);
}
