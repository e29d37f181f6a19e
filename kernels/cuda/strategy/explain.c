/* SPDX-License-Identifier: Apache-2.0 */
/* Explains plans. A tile's dimensions are those of the strategy that moves it. */
#include "explain.h"

#include <stdio.h>
#include <string.h>

#include "kernels/transform/transform.h"
#include "strategy.h"

#define H200_PROCESSORS 132
#define H200_MEMORY_KHZ 3201000
#define H200_BUS_BITS   6016
#define H200_ALIGN      16 /* bytes, of base addresses; elements are widened by no more */

void plan_tile_set_dim(struct plan_tile *ret, const struct plan *plan, int d, int of)
{
	ret->dst[d] = plan->tma.dim[of].dst;
	ret->src[d] = plan->tma.dim[of].src;
}

void plan_tile_of(const struct plan *plan, struct plan_tile *ret)
{
	*ret = (struct plan_tile){ .rank = plan->tile_rank };
	if (plan->tile_rank == 0)
		return;
	memcpy(ret->n, plan->tile, (size_t)plan->tile_rank * sizeof *ret->n);
	ret->element = plan->tma.element;
	if (strategy_of(plan)->describe)
		strategy_of(plan)->describe(plan, ret);
}

struct plan_facts plan_facts_of_h200(void)
{
	return (struct plan_facts){ .threads = H200_PROCESSORS,
		                    .align = H200_ALIGN,
		                    .copy = copy_speed_of(H200_MEMORY_KHZ, H200_BUS_BITS) };
}

static void explain_tile(struct engine_explanation *ret, const struct plan *plan)
{
	struct plan_tile tile;

	plan_tile_of(plan, &tile);
	ret->tile.rank = tile.rank;
	ret->tile.element = tile.element;
	ret->tile.row_bytes = tile.row_bytes;
	memcpy(ret->tile.n, tile.n, sizeof tile.n);
	memcpy(ret->tile.dst, tile.dst, sizeof tile.dst);
	memcpy(ret->tile.src, tile.src, sizeof tile.src);
}

void plan_explain(struct engine_explanation *ret, const struct plan *plan, const struct transform *transform,
                  const struct plan_facts *facts)
{
	*ret = (struct engine_explanation){
		.family = plan->family,
		.grid = plan->grid,
		.bytes = transform->bytes,
		.n_subregions = plan->n_subregions,
		.predicted_ns = (uint64_t)(plan_predict_ns(plan, transform->bytes, &facts->copy) + 0.5),
		.copy_fixed_ns = facts->copy.fixed_ns,
		.copy_bytes_per_ns = facts->copy.bytes_per_ns,
		.predicted = plan->predicted,
		.rules = plan->rules,
	};
	snprintf(ret->swizzle, sizeof ret->swizzle, "%s", plan->swizzle);
	explain_tile(ret, plan);
	explanation_set_interior(ret, &plan->interior);
}
