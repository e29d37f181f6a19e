/* SPDX-License-Identifier: Apache-2.0 */
/* Small jobs are moved whole by the thread that submits them. Those that recur have a plan, which is made
 * once.
 *
 * Planning a small transform takes as long as moving it. So one that is seen for the first time is moved in
 * ways that are planned fast. When it comes again, its plan is made with more care, by tiles where those are
 * faster, and is kept in the scratch of the owner's thread; the memo of its layout says where. When there is
 * no more room, the oldest plan is overwritten.
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

/* Runs the job and fills its result. scratch is as for move_run. */
void small_run(struct engine_job *job, const struct cpu_tuning *tuning, struct cpu_scratch *scratch);

struct small_plan;

/* Returns the plan of the task's transform, for any place, or NULL if none is kept. */
struct small_plan *small_plan_find(const struct task *task, struct small_memo *memo,
                                   struct cpu_scratch *scratch);

/* Runs its subregions, up to the n-th, between these places. conversion is not used if the transform does not
 * convert, and may then be NULL. */
void small_plan_run(struct small_plan *plan, uint64_t n, char *dst, const char *src,
                    const struct convert_place *conversion, struct cpu_scratch *scratch);

#endif
