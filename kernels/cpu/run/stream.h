/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of the CPU engine hold waiting and finished jobs. The owner's thread, the workers and the watcher
 * share them, under one lock that protects everything but the copying itself.
 *
 * A stream whose job has work items left stands in the fair queue. Its next job starts when the job before it
 * has ended, on the thread that ended that job. A job whose point has not come is left to the watcher, and
 * starts on the watcher's thread. Words of timelines are a client's memory: no thread holds the lock while it
 * touches them.
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

/* State of a thread that has no work and waits to be called.
 *
 * A thread first checks for a moment whether it has been called, and then sleeps. The thread that ran out of
 * work last is called first: most likely it is still looking, so that calling it takes a store instead of a
 * system call, and its caches are the warmest. The others sleep on undisturbed. Whoever calls decides how
 * many threads come, so that no thread comes for work that is already taken.
 */
enum idle_state {
	IDLE_CALLED, /* called, or never waited */
	IDLE_LOOKING,
	IDLE_ASLEEP
};

/* A waiting thread. The thread embeds this, zeroed at first. */
struct idle_thread {
	atomic_uint state; /* enum idle_state; also the futex on which the thread sleeps */
	SLIST_ENTRY(idle_thread) entry;
};

SLIST_HEAD(idle_threads, idle_thread);

/* The waiting threads, the most recent one first. A zeroed struct has none. */
struct idle {
	struct idle_threads threads;
	unsigned n;
};

/* Adds a thread to the waiting ones; it must then call idle_wait. The caller must hold the streams' lock. */
void idle_add(struct idle *idle, struct idle_thread *thread);

/* Calls up to n waiting threads, of which at most most_asleep may be asleep, and returns their number. Those
 * asleep are added to *asleep, for idle_wake; the others have been called already. The caller must hold the
 * streams' lock. */
unsigned idle_call(struct idle *idle, unsigned n, unsigned most_asleep, struct idle_threads *asleep);

/* Wakes the threads in *asleep. The caller need not hold the lock. */
void idle_wake(struct idle_threads *asleep);

/* Waits until the thread, which has been added, is called. The thread looks for awake_ns, during which it
 * yields its CPU to others, and then sleeps. The caller must not hold the lock. */
void idle_wait(struct idle_thread *thread, uint64_t awake_ns);

/* ---- Streams ---------------------------------------------------------------------------------------- */

/* The state that all streams of a crew share. */
struct streams {
	pthread_mutex_t lock;
	struct fair_queue fair_queue;
	struct idle idle;
	unsigned uncalled; /* number of threads for which there is work but which nobody has called yet */
	struct job_list done;
	struct watcher watcher;
	struct cpu_scratch *scratch; /* scratch of the owner's thread */
	struct cpu_tuning tuning;
	uint32_t threads;
	struct contention contention;
	TAILQ_HEAD(, engine_stream) posted; /* streams that a worker is to advance */
	void (*wake)(void *arg);
	void *wake_arg;
	/* Starts those threads of a guest that are missing, when a job needs them. Returns 0 or NO_MEMORY.
	 * Called with the lock held. NULL if all threads were started at once. */
	int (*start_threads)(struct streams *streams);
};

struct engine_stream {
	struct fair_stream fair; /* must be the first field, because fair_queue_next returns it */
	struct streams *streams;
	struct running_job running;
	struct job_list unstarted;
	struct watched watched; /* watch on the point of the first job; valid while is_watched */
	bool is_watched;
	bool has_come;     /* the point of the first job has come */
	bool is_advancing; /* a thread advances the stream, and may have released the lock */
	/* The worker that ended a work item of the stream takes the next one itself, and need not be called
	 * for it. */
	bool is_with_worker;
	uint64_t contention; /* value that contention_start returned when the running job started */
	bool is_posted;
	TAILQ_ENTRY(engine_stream) posted;

	/* The fields below are used by the owner's thread alone (crew.h). */
	struct owns *owns;
	struct own *own; /* the owner's crew, if the stream belongs to it; NULL: the engine's crew */
	uint64_t jobs;   /* number of jobs that were submitted to the stream's crew and not reaped */
	/* First job that waits to be submitted to the owner's crew; linked by next. */
	struct engine_job *held;
	struct engine_job **held_end;
};

/* Sets up streams for `threads` threads that take work items. The caller starts these threads and the
 * watcher, by thread_start_apart if is_apart is set. Returns 0 or NO_MEMORY. */
int streams_init(struct streams *streams, const struct engine_options *options, uint32_t threads,
                 bool is_apart, struct error *err);
/* Every stream must have been freed, nothing may be left to reap, and the watcher must have been closed. */
void streams_deinit(struct streams *streams);

/* ---- The owner's thread's: as engine_stream_new and its kin ----------------------------------------- */

struct engine_stream *stream_new(struct streams *streams, struct engine_owner *owner);
void stream_free(struct engine_stream *stream);
void stream_submit(struct engine_stream *stream, struct engine_job *job);

/* Submits the job without touching any of the job's memory in the calling thread. Only a worker touches it,
 * even if only to find out that the job is over. */
void stream_post(struct engine_stream *stream, struct engine_job *job);

/* Ends a job that has not been submitted, with the status that it has. */
void stream_end(struct engine_stream *stream, struct engine_job *job);

/* Moves the stream, which must be idle, to the set of streams `to`, and to `owner`, which must be an owner in
 * that set. */
void stream_move(struct engine_stream *stream, struct streams *to, struct engine_owner *owner);

void stream_cancel(struct engine_stream *stream);
bool stream_cancel_job(struct engine_stream *stream, struct engine_job *job);

/* Returns the jobs that have finished since the last call, linked by next. */
struct engine_job *streams_reap(struct streams *streams);

/* ---- A worker's, under the lock --------------------------------------------------------------------- */

/* Calls idle threads for the work that has come. Those that are asleep are put into *asleep, for idle_wake
 * once the lock has been released. They are only a few, because each thread that wakes calls more. */
void streams_call(struct streams *streams, struct idle_threads *asleep);

/* Advances the first stream that was posted. Returns false if there is none. Releases the lock meanwhile. */
bool streams_advance_posted(struct streams *streams);

/* Must be called after a work item has ended. If that was the job's last work item, ends the job and goes on
 * with the next job. Releases the lock meanwhile, so that the stream may have been freed afterwards. The
 * worker must then take a work item and call other threads (streams_call). */
void stream_finish(struct engine_stream *stream);

#endif
