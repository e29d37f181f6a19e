/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU engine's part of a plan holds what each move of the layout would otherwise have to find out again.
 * The way to move the interior is chosen when it is moved, because it depends on how the move is divided
 * among threads. */
#ifndef KERNELS_CPU_PLAN_CPU_PLAN_H
#define KERNELS_CPU_PLAN_CPU_PLAN_H

#include "kernels/nest/loop_nest.h"
#include "kernels/plan_cache.h"

struct cpu_plan {
	enum family family; /* of the interior */
	uint64_t n_subregions;
	struct loop_nest interior; /* rank 0 and fill when there is no interior */
};

extern const struct plan_cache_ops cpu_plan_ops;

static inline const struct cpu_plan *cpu_plan(const struct engine_plan *plan)
{
	return plan->own;
}

void cpu_plan_init(struct cpu_plan *ret, const struct transform *transform, uint32_t align);

#endif
