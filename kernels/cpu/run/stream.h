/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of the CPU engine with their waiting and finished jobs: what the owner's thread, the workers and
 * the watcher share, under one lock that guards everything but the copying itself.
 *
 * A stream whose job has work items left stands in the fair queue. Its next job starts when its last has
 * ended, on the thread that ended it; a job whose point has not come is left to the watcher, and starts
 * there. Words of timelines are a client's memory: no thread holds the lock while it touches them.
 */
#ifndef KERNELS_CPU_RUN_STREAM_H
#define KERNELS_CPU_RUN_STREAM_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "idle.h"
#include "kernels/engine.h"
#include "kernels/queue/contention.h"
#include "kernels/queue/fair_queue.h"
#include "kernels/queue/job_list.h"
#include "running_job.h"
#include "tuning.h"
#include "watcher.h"

/* What an engine's streams share. */
struct streams {
	pthread_mutex_t lock;
	struct fair_queue fair_queue;
	struct idle idle;
	unsigned uncalled; /* threads that there is work for, and that nobody has called */
	struct job_list done;
	struct watcher watcher;
	struct cpu_scratch *scratch; /* of the owner's thread */
	struct cpu_tuning tuning;
	uint32_t threads;
	struct contention contention;
	TAILQ_HEAD(, engine_stream) posted; /* streams that a worker is to advance */
	void (*wake)(void *arg);
	void *wake_arg;
	/* A guest's threads are started by the first job that needs them: this starts those that are missing,
	 * and returns 0 or NO_MEMORY. The caller holds the lock. It is NULL where threads have been started
	 * from the beginning. */
	int (*start_threads)(struct streams *streams);
};

struct engine_stream {
	struct fair_stream fair; /* first: fair_queue_next gives it back */
	struct streams *streams;
	struct running_job running;
	struct job_list unstarted;
	struct watched watched; /* the first job's point, while is_watched */
	bool is_watched;
	bool has_come;       /* the first job's point */
	bool is_advancing;   /* a thread does so, and may have let go of the lock */
	bool is_with_worker; /* who then takes a work item, and need not be called for one */
	uint64_t contention; /* since the running job's start */
	bool is_posted;
	TAILQ_ENTRY(engine_stream) posted;

	/* The owner's thread's (own.h). */
	struct owns *owns;
	struct own *own;         /* whose streams it is one of; NULL: it is one of the engine's */
	uint64_t jobs;           /* submitted to its streams, and not reaped */
	struct engine_job *held; /* to be submitted to its own, in this order */
	struct engine_job **held_end;
};

/* threads is how many take work items. The caller starts them and the watcher, by thread_start_apart if
 * is_apart is set. Returns 0 or NO_MEMORY. */
int streams_init(struct streams *streams, const struct engine_options *options, uint32_t threads,
                 bool is_apart, struct error *err);
/* Every stream must have been freed, nothing have been left to reap, and the watcher have been closed. */
void streams_deinit(struct streams *streams);

/* ---- The owner's thread's: as engine_stream_new and its kin ------------------------------------------- */

struct engine_stream *stream_new(struct streams *streams, struct engine_owner *owner);
void stream_free(struct engine_stream *stream);
void stream_submit(struct engine_stream *stream, struct engine_job *job);

/* The same, but the caller touches none of the job's memory: a worker does, even if that is to find out that
 * the job is over. */
void stream_post(struct engine_stream *stream, struct engine_job *job);

/* Ends a job, which has its status, as if it had never started. */
void stream_end(struct engine_stream *stream, struct engine_job *job);

/* The stream, which is idle, becomes one of other streams, and of an owner that these know. */
void stream_move(struct engine_stream *stream, struct streams *to, struct engine_owner *owner);

void stream_cancel(struct engine_stream *stream);
bool stream_cancel_job(struct engine_stream *stream, struct engine_job *job);

/* The finished jobs, linked by next. */
struct engine_job *streams_reap(struct streams *streams);

/* ---- A worker's, under the lock ---------------------------------------------------------------------- */

/* Calls threads for the work that has come. *asleep, for idle_wake once the lock has been let go of: those
 * that sleep; a few, as each of them calls more in turn. */
void streams_call(struct streams *streams, struct idle_threads *asleep);

/* Advances the first stream that was posted; false: there is none. Lets go of the lock on the way. */
bool streams_advance_posted(struct streams *streams);

/* After a work item has ended: ends the job when that was its last, and goes on with the next. Lets go of the
 * lock on the way; afterwards the stream may be gone, and the worker takes a work item and calls others. */
void stream_finish(struct engine_stream *stream);

#endif
