/* SPDX-License-Identifier: Apache-2.0 */
/* Small jobs are moved as a whole by the thread that submits them. Layouts that recur get a small plan, which
 * is made once.
 *
 * Planning a small transform takes as long as moving it. A layout that is seen for the first time is
 * therefore moved by strategies that are planned fast. When it comes again, its plan is made with more care,
 * by tiles if those are faster, and is kept in the scratch memory of the owner's thread; the layout's memo
 * (struct small_memo) says where. If the space for such plans is used up, the oldest plan is overwritten.
 */
#ifndef KERNELS_CPU_RUN_SMALL_H
#define KERNELS_CPU_RUN_SMALL_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/engine.h"
#include "tuning.h"

/* Returns whether the job is small. */
bool small_is(const struct engine_job *job, const struct cpu_tuning *tuning);

/* Runs the job in the calling thread and fills its result. scratch is as for move_run. */
void small_run(struct engine_job *job, const struct cpu_tuning *tuning, struct cpu_scratch *scratch);

struct small_plan;

/* Returns the kept plan of the task's transform, which is for any place, or NULL if there is none. */
struct small_plan *small_plan_find(const struct task *task, struct small_memo *memo,
                                   struct cpu_scratch *scratch);

/* Runs the first n subregions of the plan between these places. If the transform does not convert, conversion
 * is not used and may be NULL. */
void small_plan_run(struct small_plan *plan, uint64_t n, char *dst, const char *src,
                    const struct convert_place *conversion, struct cpu_scratch *scratch);

#endif
