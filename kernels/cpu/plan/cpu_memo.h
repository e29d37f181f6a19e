/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU engine's part of a plan has two kinds of facts: those known from the start (cpu_plan.h), and those
 * that a move of the layout finds out, so that the next move need not. */
#ifndef KERNELS_CPU_PLAN_CPU_MEMO_H
#define KERNELS_CPU_PLAN_CPU_MEMO_H

#include "partition.h"
#include "small_plan.h"

struct cpu_memo {
	struct cpu_plan plan;
	struct partition_memo partition; /* for any thread */
	struct small_memo small;         /* for the owner's thread */
};

static inline struct cpu_memo *cpu_memo(const struct engine_plan *plan)
{
	return plan->own;
}

#endif
