/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the interior of a transform and its family. */
#include "cpu_plan.h"

#include "kernels/nest/nest_family.h"

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
}

const struct plan_cache_ops cpu_plan_ops = {
	.own_bytes = sizeof(struct cpu_plan),
	.init = init,
};
