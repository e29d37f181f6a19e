/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the interior of a transform and its family. Explains how a large move would be moved, and which rules
 * excluded better families. */
#include "cpu_plan.h"

#include <stdio.h>

#include "cpu_choice.h"
#include "kernels/cpu/tile/tile.h"
#include "kernels/nest/loop_nest.h"

void cpu_plan_init(struct cpu_plan *ret, const struct transform *transform, uint32_t align)
{
	struct subregions subregions;
	int src_inner;

	*ret = (struct cpu_plan){ .interior = { .fill = true, .element = transform->element } };
	subregions_init(&subregions, transform);
	ret->n_subregions = subregions.n;
	subregions_interior(&subregions, align, &ret->interior);
	ret->family = loop_nest_family(&ret->interior, &src_inner);
}

static void init(struct engine_plan *plan)
{
	cpu_plan_init(plan->own, &plan->transform, plan_places_align(plan->places));
	cpu_plan(plan)->kept.room = plan->cache->arg;
}

static void deinit(struct engine_plan *plan)
{
	kept_forget(&cpu_plan(plan)->kept);
}

const struct plan_cache_ops cpu_plan_ops = {
	.own_bytes = sizeof(struct cpu_plan),
	.init = init,
	.deinit = deinit,
};

/* ---- Explaining ------------------------------------------------------------------------------------- */

/* Returns the strategy of the interior as far as it is known. If the transform is not written past the cache,
 * or costs are not compared for it, that is the first legal strategy without tiles. */
static const struct cpu_strategy *explain_strategy(struct engine_explanation *ret,
                                                   const struct loop_nest *nest, int64_t bytes,
                                                   struct cpu_tile *ret_tile)
{
	const struct cpu_case c = { .piece_bytes = CPU_PIECE_BYTES, .stream = bytes >= CPU_STREAM_BYTES };
	struct cpu_choice choice = { 0 };

	if (c.stream)
		cpu_choose(&choice, nest, &c);
	if (choice.cost == 0)
		return cpu_first_strategy(nest);
	ret->predicted = choice.cost;
	snprintf(ret->method, sizeof ret->method, "%s",
	         choice.strategy->microkernel ? "microkernel" : choice.strategy->name);
	*ret_tile = choice.tile;
	return choice.strategy;
}

void cpu_explain(struct engine_explanation *ret, const struct transform *transform, uint32_t align)
{
	const int64_t bytes = transform->count * transform->element;
	struct loop_nest nest = { .fill = true, .element = transform->element };
	struct subregions subregions;
	struct cpu_tile tile;
	const struct cpu_strategy *strategy;
	int src_inner;

	subregions_init(&subregions, transform);
	subregions_interior(&subregions, align, &nest);
	*ret = (struct engine_explanation){
		.family = loop_nest_family(&nest, &src_inner),
		.swizzle = "none",
		.grid = bytes > 0 ? (bytes - 1) / CPU_PIECE_BYTES + 1 : 1,
		.bytes = transform->bytes,
		.n_subregions = subregions.n,
	};
	explanation_set_interior(ret, &nest);
	if (ret->family == FAMILY_CONVERT)
		return;
	strategy = explain_strategy(ret, &nest, bytes, &tile);
	if (strategy->describe)
		strategy->describe(ret, &nest, &tile);
	if (ret->family == FAMILY_MEMCPY || ret->family == FAMILY_FILL)
		return; /* the nest may have no dimension */
	for (int i = 0; i < CPU_STRATEGY_COUNT; i++)
		if (cpu_strategies[i]->explain)
			cpu_strategies[i]->explain(&nest, &ret->rules);
}
