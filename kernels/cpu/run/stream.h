/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of the CPU engine hold waiting and finished jobs. The owner's thread, the workers and the watcher
 * share them, under one lock that guards everything but the copying itself.
 *
 * A stream whose job has work items left stands in the fair queue. Its next job starts when its last has
 * ended, on the thread that ended it; a job whose point has not come is left to the watcher, and starts
 * there. Words of timelines are a client's memory: no thread holds the lock while it touches them.
 */
#ifndef KERNELS_CPU_RUN_STREAM_H
#define KERNELS_CPU_RUN_STREAM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "kernels/engine.h"
#include "kernels/queue/fair_queue.h"
#include "running_job.h"
#include "tuning.h"
#include "watcher.h"

/* ---- Idle threads ----------------------------------------------------------------------------------- */

/* Threads that have no work wait, and are called when work comes.
 *
 * A thread first looks whether it has been called, for a moment, and then sleeps. The one that ran out of
 * work last is called first: most likely it still looks, which makes a call a store instead of a system call,
 * and its caches are the warmest. The others sleep on undisturbed. Who calls decides how many come, so
 * threads that come at once do not meet where there is nothing left. */
enum idle_state {
	IDLE_CALLED, /* or never waited */
	IDLE_LOOKING,
	IDLE_ASLEEP
};

/* The thread embeds this, zeroed. */
struct idle_thread {
	atomic_uint state; /* its futex; enum idle_state */
	SLIST_ENTRY(idle_thread) entry;
};

SLIST_HEAD(idle_threads, idle_thread);

/* These wait, the last one first. Zeroed, there are none. */
struct idle {
	struct idle_threads threads;
	unsigned n;
};

/* The callers of these two hold the lock. idle_add has the thread wait from now on; it goes to idle_wait. */
void idle_add(struct idle *idle, struct idle_thread *thread);

/* idle_call calls up to n of those that wait, of which at most most_asleep sleep, and returns how many. Those
 * that sleep are added to *asleep, for idle_wake; the others are on their way. */
unsigned idle_call(struct idle *idle, unsigned n, unsigned most_asleep, struct idle_threads *asleep);

/* The callers of these two do not hold it. idle_wake wakes those that were called asleep. */
void idle_wake(struct idle_threads *asleep);

/* idle_wait waits until the thread, which was added, is called: it looks for awake_ns, and yields its CPU to
 * whoever else wants it meanwhile, and then sleeps. */
void idle_wait(struct idle_thread *thread, uint64_t awake_ns);

/* ---- Streams ---------------------------------------------------------------------------------------- */

/* The streams of an engine share this. */
struct streams {
	pthread_mutex_t lock;
	struct fair_queue fair_queue;
	struct idle idle;
	unsigned uncalled; /* threads that there is work for, but that nobody has called yet */
	struct job_list done;
	struct watcher watcher;
	struct cpu_scratch *scratch; /* the owner's thread's */
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
	struct watched watched; /* point of the first job; valid while is_watched */
	bool is_watched;
	bool has_come;     /* The first job's point has come. */
	bool is_advancing; /* a thread advances the stream, and may have released the lock */
	/* The worker that has it takes a work item next, and need not be called for one. */
	bool is_with_worker;
	uint64_t contention; /* from contention_start, at the running job's start */
	bool is_posted;
	TAILQ_ENTRY(engine_stream) posted;

	/* The owner's thread alone uses these (crew.h). */
	struct owns *owns;
	struct own *own; /* the crew that it belongs to; NULL: the engine's */
	uint64_t jobs;   /* jobs that were submitted to its crew and not reaped */
	/* First job that waits to be submitted to its own crew; linked by next. */
	struct engine_job *held;
	struct engine_job **held_end;
};

/* threads is how many take work items. The caller starts them and the watcher, by thread_start_apart if
 * is_apart is set. Returns 0 or NO_MEMORY. */
int streams_init(struct streams *streams, const struct engine_options *options, uint32_t threads,
                 bool is_apart, struct error *err);
/* Every stream must have been freed, nothing have been left to reap, and the watcher have been closed. */
void streams_deinit(struct streams *streams);

/* ---- The owner's thread's: as engine_stream_new and its kin ----------------------------------------- */

struct engine_stream *stream_new(struct streams *streams, struct engine_owner *owner);
void stream_free(struct engine_stream *stream);
void stream_submit(struct engine_stream *stream, struct engine_job *job);

/* Submits the job, but the caller touches none of the job's memory: a worker does, even if that is to find
 * out that the job is over. */
void stream_post(struct engine_stream *stream, struct engine_job *job);

/* Ends a job, which has its status, as if it had never started. */
void stream_end(struct engine_stream *stream, struct engine_job *job);

/* Makes the stream, which must be idle, one of other streams, and of an owner that these know. */
void stream_move(struct engine_stream *stream, struct streams *to, struct engine_owner *owner);

void stream_cancel(struct engine_stream *stream);
bool stream_cancel_job(struct engine_stream *stream, struct engine_job *job);

/* Returns the finished jobs, linked by next. */
struct engine_job *streams_reap(struct streams *streams);

/* ---- A worker's, under the lock --------------------------------------------------------------------- */

/* Calls threads for the work that has come. Those that sleep are put into *asleep, for idle_wake once the
 * lock has been released; they are few, because each of them calls more in turn. */
void streams_call(struct streams *streams, struct idle_threads *asleep);

/* Advances the first stream that was posted. Returns false if there is none. Releases the lock meanwhile. */
bool streams_advance_posted(struct streams *streams);

/* Must be called after a work item has ended. Ends the job if that was its last, and goes on with the next.
 * Releases the lock meanwhile; afterwards the stream may be gone, and the worker takes a work item and calls
 * others. */
void stream_finish(struct engine_stream *stream);

#endif
