/* SPDX-License-Identifier: Apache-2.0 */
/* Small jobs: moved whole by the thread that submits them. */
#ifndef KERNELS_CPU_RUN_SMALL_H
#define KERNELS_CPU_RUN_SMALL_H

#include <stdbool.h>

#include "kernels/cpu/move/scratch.h"
#include "kernels/engine.h"
#include "tuning.h"

bool small_is(const struct engine_job *job, const struct cpu_tuning *tuning);

/* Fills the job's result. scratch as for move_run. */
void small_run(struct engine_job *job, const struct cpu_tuning *tuning, struct cpu_scratch *scratch);

#endif
