/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU engine's part of a plan keeps what each move of the layout would otherwise have to find out again.
 * Some of that is known from the start; the rest is kept once a move of the layout has found it out.
 * cpu_explain tells how the engine moves a layout. */
#ifndef KERNELS_CPU_PLAN_CPU_PLAN_H
#define KERNELS_CPU_PLAN_CPU_PLAN_H

#include "kernels/nest/loop_nest.h"
#include "kernels/explanation.h"
#include "kernels/plan_cache.h"
#include "partition.h"

/* A small transform's plan is kept in the scratch of the owner's thread (small.h). The memo of its layout,
 * which begins as zeros, says where; it is for one scratch and instruction set: a plan may not be used with
 * another engine than the one that made it. */
struct small_memo {
	uint64_t seen; /* how many times the layout was seen while it had no plan */
	uint64_t at;   /* where the plan begins, counted in all bytes that were ever written */
	int forced;    /* what move_forced returned when the plan was made */
	bool has_plan; /* a plan was made; it may have been overwritten since */
};

struct cpu_plan {
	enum family family; /* family of the interior */
	uint64_t n_subregions;
	struct loop_nest interior; /* rank 0 and fill when there is no interior */
	struct kept_plans kept;    /* used by any thread */
	struct small_memo small;   /* used by the owner's thread */
};

/* All layouts of an engine together keep at most so many bytes, which is room for 100 to 200 kinds of tiles.
 * Other sizes were not measured. */
#define CPU_KEPT_BYTES (8 << 20)

/* The cache's arg is the room that is left of them, an atomic_llong. */
extern const struct plan_cache_ops cpu_plan_ops;

static inline struct cpu_plan *cpu_plan(const struct engine_plan *plan)
{
	return plan->own;
}

/* Sets what is known from the start; nothing else is kept yet. */
void cpu_plan_init(struct cpu_plan *ret, const struct transform *transform, uint32_t align);

/* Says how the CPU engine moves a transform, as far as that does not depend on how the transform is divided
 * among threads. Pure. align is what both base addresses are multiples of, in bytes; the interior's elements
 * are widened by it at most. The method stays empty where it is chosen when the transform is moved: for small
 * transforms, and for conversions. */
void cpu_explain(struct engine_explanation *ret, const struct transform *transform, uint32_t align);

#endif
