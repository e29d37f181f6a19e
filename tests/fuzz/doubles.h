/* SPDX-License-Identifier: Apache-2.0 */
/* What the session target puts in the place of threads and of the clock, so that a step happens when it is
 * told to: libuv's work queue, an engine whose jobs wait, and monotonic time on the main thread. */
#ifndef TESTS_FUZZ_DOUBLES_H
#define TESTS_FUZZ_DOUBLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/engine.h"

/* Does what waits longest, and what follows; false: nothing waits. */
bool doubles_work(void);

/* Runs the job that waits longest. */
bool doubles_job(void);

/* Whether jobs wait to be run; else they run where they are submitted. */
void doubles_hold_jobs(bool hold);

/* From now on time stands still, but for what is added. */
void doubles_pass(uint64_t ms);

/* The CPU engine with jobs that wait. One at a time. */
int doubles_engine_open(struct engine **ret, const struct engine_options *options, struct error *err);

#endif
