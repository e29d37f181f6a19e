/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU engine's part of a plan keeps what every move of the layout would otherwise have to compute again.
 * Some of it is known from the start; the rest is kept once a move has computed it. cpu_explain describes how
 * the engine moves a layout. */
#ifndef KERNELS_CPU_PLAN_CPU_PLAN_H
#define KERNELS_CPU_PLAN_CPU_PLAN_H

#include "kernels/nest/loop_nest.h"
#include "kernels/explanation.h"
#include "kernels/plan_cache.h"
#include "partition.h"

/* Says where the small plan of a layout is kept in the scratch of the owner's thread (small.h). Zeroed at
 * first. It is valid for one scratch and one instruction set, so a plan must not be used with another engine
 * than the one that made it. */
struct small_memo {
	uint64_t seen; /* number of times that the layout was seen while it had no small plan */
	uint64_t at;   /* position of the plan, in bytes that were ever written to the ring */
	int forced;    /* value of move_forced when the plan was made */
	bool has_plan; /* a plan was made; may have been overwritten since */
};

struct cpu_plan {
	enum family family; /* how the interior is moved */
	uint64_t n_subregions;
	struct loop_nest interior; /* the interior in canonical form; rank 0 and `fill` if there is none */
	struct kept_plans kept;    /* may be used by any thread */
	struct small_memo small;   /* used by the owner's thread alone */
};

/* Maximum number of bytes that all layouts of an engine keep together: enough for 100 to 200 kinds of tiles.
 * Other sizes were not measured. */
#define CPU_KEPT_BYTES (8 << 20)

/* Operations of the engine's plan cache. The cache's arg points to the number of bytes left out of
 * CPU_KEPT_BYTES, an atomic_llong. */
extern const struct plan_cache_ops cpu_plan_ops;

static inline struct cpu_plan *cpu_plan(const struct engine_plan *plan)
{
	return plan->own;
}

/* Sets what is known from the start. Nothing else is kept yet. */
void cpu_plan_init(struct cpu_plan *ret, const struct transform *transform, uint32_t align);

/* Explains how the CPU engine moves a transform, as far as that does not depend on how it is divided among
 * threads. align is a number of bytes that divides both base addresses; the interior's elements are widened
 * to at most that. The method stays empty if it is chosen only when the transform is moved, as for small
 * transforms and conversions. Has no side effects. */
void cpu_explain(struct engine_explanation *ret, const struct transform *transform, uint32_t align);

#endif
