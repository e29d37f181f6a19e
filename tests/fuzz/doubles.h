/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces threads and the clock for the session target, so that each step happens only when the input says
 * so: libuv's work queue, an engine whose jobs wait, and monotonic time on the main thread. */
#ifndef TESTS_FUZZ_DOUBLES_H
#define TESTS_FUZZ_DOUBLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/engine.h"

/* Completes the oldest waiting work item and calls back. Returns false if none waits. */
bool doubles_work(void);

/* Runs the oldest waiting job. Returns false if none waits. */
bool doubles_job(void);

/* Makes jobs wait to be run; otherwise they run where they are submitted. */
void doubles_hold_jobs(bool hold);

/* Stops the clock on the first call and advances it by ms. */
void doubles_pass(uint64_t ms);

/* Opens the CPU engine with jobs that wait. There can be one at a time. */
int doubles_engine_open(struct engine **ret, const struct engine_options *options, struct error *err);

#endif
