/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of the CPU engine with their waiting and finished jobs: what the owner's thread, the workers and
 * the watcher share, under one lock that guards everything but the copying itself.
 *
 * A stream whose job has work items left stands in the fair queue. Its next job starts when its last has
 * ended, on the thread that ended it; a job whose point has not come is left to the watcher, and starts
 * there. Words of timelines are a client's memory: no thread holds the lock while it touches them.
 */
#ifndef KERNELS_CPU_STREAM_H
#define KERNELS_CPU_STREAM_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/contention.h"
#include "kernels/engine.h"
#include "kernels/fair_queue.h"
#include "idle.h"
#include "running_job.h"
#include "tuning.h"
#include "watcher.h"

/* What an engine's streams share. */
struct streams {
	pthread_mutex_t lock;
	struct fair_queue fair_queue;
	struct idle idle;
	unsigned uncalled; /* threads that there is work for, and that nobody has called */
	struct engine_job *done;
	struct engine_job **done_end;
	struct watcher watcher;
	struct cpu_scratch *scratch; /* of the owner's thread */
	struct cpu_tuning tuning;
	uint32_t threads;
	struct contention contention;
	void (*wake)(void *arg);
	void *wake_arg;
};

struct engine_stream {
	struct fair_stream fair; /* first: fair_queue_next gives it back */
	struct streams *streams;
	struct running_job running;
	struct engine_job *first; /* waiting */
	struct engine_job **end;
	struct watched watched; /* the first job's point, while is_watched */
	bool is_watched;
	bool has_come;       /* the first job's point */
	bool is_advancing;   /* a thread does so, and may have let go of the lock */
	bool is_with_worker; /* who then takes a work item, and need not be called for one */
	uint64_t contention; /* since the running job's start */
};

/* threads: that take work items; the caller starts them. The watcher starts. */
int streams_init(struct streams *streams, const struct engine_options *options, uint32_t threads,
                 struct error *err);
/* Every stream must have been freed, and nothing have been left to reap. */
void streams_deinit(struct streams *streams);

/* ---- The owner's thread's: as engine_stream_new and its kin ------------------------------------------- */

struct engine_stream *stream_new(struct streams *streams, struct engine_owner *owner);
void stream_free(struct engine_stream *stream);
void stream_submit(struct engine_stream *stream, struct engine_job *job);
void stream_cancel(struct engine_stream *stream);
bool stream_cancel_job(struct engine_stream *stream, struct engine_job *job);

/* The finished jobs, linked by next. */
struct engine_job *streams_reap(struct streams *streams);

/* ---- A worker's, under the lock ---------------------------------------------------------------------- */

/* Calls threads for the work that has come. *asleep, for idle_wake once the lock has been let go of: those
 * that sleep; a few, as each of them calls more in turn. */
void streams_call(struct streams *streams, struct idle_threads *asleep);

/* After a work item has ended: ends the job when that was its last, and goes on with the next. Lets go of the
 * lock on the way; afterwards the stream may be gone, and the worker takes a work item and calls others. */
void stream_finish(struct engine_stream *stream);

#endif
