/* SPDX-License-Identifier: Apache-2.0 */
/* Small transforms that come again are moved by a plan that is made once.
 *
 * Planning a small transform takes as long as moving it. So one that is seen for the first time is moved in
 * ways that are planned fast. When it comes again, its plan is made with more care, by tiles where those are
 * faster, and is kept in the scratch of the owner's thread; the memo of its layout says where. When there is
 * no more room, the oldest plan is overwritten.
 */
#ifndef KERNELS_CPU_PLAN_SMALL_PLAN_H
#define KERNELS_CPU_PLAN_SMALL_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "partition.h"

struct small_plan;

/* The memo of a layout is for the owner's thread alone. It begins as zeros, and is for one scratch and
 * instruction set: a plan may not be used with another engine than the one that made it. */
struct small_memo {
	uint64_t seen; /* how often the layout was seen without a plan */
	uint64_t at;   /* where the plan begins, counted in all bytes that were ever written */
	int forced;    /* as move_forced had it */
	bool has_plan; /* unless it has been written over since */
};

/* Returns the plan of the task's transform, for any place, or NULL if none is kept. */
struct small_plan *small_plan_find(const struct task *task, struct small_memo *memo,
                                   struct cpu_scratch *scratch);

/* Runs its subregions, up to the n-th, between these places. */
void small_plan_run(struct small_plan *plan, uint64_t n, char *dst, const char *src,
                    struct cpu_scratch *scratch);

#endif
