/* SPDX-License-Identifier: Apache-2.0 */
/* A crew is streams with the threads that execute their jobs: workers and a watcher.
 *
 * A stream whose job has work items left stands in the fair queue. A worker takes the next stream's next work
 * item, executes it without the lock, and comes back for another, so owners and their streams share the
 * threads whatever the size of their jobs. Workers wait while the queue is empty (idle.h).
 */
#ifndef KERNELS_CPU_RUN_CREW_H
#define KERNELS_CPU_RUN_CREW_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "stream.h"

struct worker;

struct crew {
	struct streams streams; /* first */
	/* The streams' lock guards these two. */
	bool closing;
	uint32_t asked; /* The threads have been probed so many times. */

	bool is_apart;
	uint32_t n_workers; /* that have been started */
	struct worker *workers;
};

/* Starts the threads, by thread_start_apart if is_apart is set; those of a guest (engine_options) start with
 * the first job that needs them. Returns 0 or NO_MEMORY. */
int crew_init(struct crew *crew, const struct engine_options *options, uint32_t threads, bool is_apart,
              struct error *err);

/* Tells the threads to end, which they do as soon as they come back from their work. Every stream must have
 * been freed, and nothing may be left to reap. */
void crew_close(struct crew *crew);

/* Waits for the threads to end, after crew_close. */
void crew_deinit(struct crew *crew);

/* Does what engine_probe does. A thread answers when it next looks for work; one that sleeps is woken for
 * that. */
int crew_probe(struct crew *crew, struct error *err);

#endif
