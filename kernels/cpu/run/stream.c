/* SPDX-License-Identifier: Apache-2.0 */
/* Submits, starts and ends the jobs of a stream.
 *
 * Only one thread at a time advances a stream (is_advancing). Signals of its jobs are therefore given in
 * order, although that thread releases the lock to give them.
 */
#include "stream.h"

#include <assert.h>
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/host/backing.h"
#include "kernels/host/fault.h"
#include "proto/clock.h"
#include "small.h"

static bool on_watched(struct watched *watched, int status);

/* ---- Idle threads ----------------------------------------------------------------------------------- */

/* A thread's state is the word (futex) that it sleeps on. Only the thread itself changes it from looking to
 * asleep. Another thread ends either state: idle_call that of a thread that is looking, and idle_wake that of
 * a thread that is asleep, which does not touch its list entry before. */
static bool change(struct idle_thread *thread, unsigned from, unsigned to)
{
	return atomic_compare_exchange_strong(&thread->state, &from, to);
}

static unsigned state_of(struct idle_thread *thread)
{
	return atomic_load_explicit(&thread->state, memory_order_acquire);
}

void idle_add(struct idle *idle, struct idle_thread *thread)
{
	atomic_store_explicit(&thread->state, IDLE_LOOKING, memory_order_relaxed);
	SLIST_INSERT_HEAD(&idle->threads, thread, entry);
	idle->n++;
}

unsigned idle_call(struct idle *idle, unsigned n, unsigned most_asleep, struct idle_threads *asleep)
{
	unsigned called = 0;
	for (struct idle_thread *thread; called < n && (thread = SLIST_FIRST(&idle->threads)); called++) {
		/* A thread that was looking may go on before it has been removed from the list, but cannot be
		 * added again before, because adding it needs the lock. */
		bool sleeps = !change(thread, IDLE_LOOKING, IDLE_CALLED);
		if (sleeps && most_asleep == 0)
			break;
		SLIST_REMOVE_HEAD(&idle->threads, entry);
		idle->n--;
		if (!sleeps)
			continue;
		SLIST_INSERT_HEAD(asleep, thread, entry);
		most_asleep--;
	}
	return called;
}

void idle_wake(struct idle_threads *asleep)
{
	for (struct idle_thread *thread; (thread = SLIST_FIRST(asleep));) {
		SLIST_REMOVE_HEAD(asleep, entry);
		atomic_store_explicit(&thread->state, IDLE_CALLED, memory_order_release);
		syscall(SYS_futex, &thread->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	}
}

void idle_wait(struct idle_thread *thread, uint64_t awake_ns)
{
	for (uint64_t end = awake_ns ? clock_ns() + awake_ns : 0;
	     end && state_of(thread) == IDLE_LOOKING && clock_ns() < end;)
		sched_yield();
	if (!change(thread, IDLE_LOOKING, IDLE_ASLEEP))
		return;
	while (state_of(thread) == IDLE_ASLEEP)
		syscall(SYS_futex, &thread->state, FUTEX_WAIT_PRIVATE, IDLE_ASLEEP, NULL, NULL, 0);
}

/* ---- All of them ------------------------------------------------------------------------------------ */

int streams_init(struct streams *streams, const struct engine_options *options, uint32_t threads,
                 bool is_apart, struct error *err)
{
	*streams = (struct streams){ .tuning = cpu_tuning_get(),
		                     .threads = threads,
		                     .wake = options->wake,
		                     .wake_arg = options->wake_arg };
	struct watcher_options watcher = {
		.lock = &streams->lock,
		.words = streams->tuning.wait_words,
		.is_apart = is_apart,
		.on_end = on_watched,
		.wake = options->wake,
		.wake_arg = options->wake_arg,
	};
	streams->scratch = cpu_scratch_new();
	if (!streams->scratch)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	job_list_init(&streams->done);
	TAILQ_INIT(&streams->posted);
	fair_queue_init(&streams->fair_queue);
	pthread_mutex_init(&streams->lock, NULL);
	watcher_init(&streams->watcher, &watcher);
	return 0;
}

void streams_deinit(struct streams *streams)
{
	assert(TAILQ_EMPTY(&streams->fair_queue.owners) && !streams->done.first);
	watcher_deinit(&streams->watcher);
	pthread_mutex_destroy(&streams->lock);
	cpu_scratch_free(streams->scratch);
}

/* ---- Advancing a stream: under the lock; bool: what job_list_add gave back -------------------------- */

/* Puts the stream into the fair queue if its job has work items, else removes it. work_items is their
 * number. */
static void offer(struct engine_stream *stream, unsigned work_items)
{
	struct streams *streams = stream->streams;
	if (work_items == 0)
		fair_queue_remove(&streams->fair_queue, &stream->fair);
	if (work_items == 0 || stream->fair.queued)
		return;
	stream->fair.priority = stream->running.job->share.priority;
	fair_queue_add(&streams->fair_queue, &stream->fair);
	streams->uncalled += work_items - stream->is_with_worker;
}

/* Wakes the first sleepers, without charging the owner for the time. Returns whether there may be more of
 * them. If the owner's last wake-up was slow, wakes nobody and returns true, so that all waking is done by
 * work items. */
static bool wake_first(struct engine_owner *owner, const struct engine_point *signal)
{
	uint64_t start_ns = clock_ns();
	if (timeline_wakes_are_slow(owner, start_ns))
		return true;
	uint32_t woken = timeline_wake(signal, TIMELINE_WAKE_FIRST);
	timeline_note_wake(owner, start_ns, clock_ns());
	return woken == TIMELINE_WAKE_FIRST;
}

/* Gives the job's signal, if it has one and has succeeded. Returns whether threads that sleep on the signal
 * may not have been woken yet. The caller must not hold the lock; signals of a stream's jobs still come in
 * order, because one thread at a time advances the stream. */
static bool give_signal(struct engine_stream *stream, struct engine_job *job)
{
	if (job->status || !job->signal.memory)
		return false;
	job->status = timeline_signal(&job->signal);
	return job->status == 0 && wake_first(stream->fair.owner, &job->signal);
}

/* Ends a job that has given its signal. If more threads sleep on the signal, waking them is a work item like
 * any other, for which the owner is charged. The job ends after that work item, and until then the stream's
 * next job does not start. Returns what job_list_add returns. */
static bool end_signalled(struct engine_stream *stream, struct engine_job *job, bool more_sleep)
{
	if (!more_sleep)
		return job_list_add(&stream->streams->done, job);
	running_job_start_waking(&stream->running, job);
	offer(stream, 1);
	return false;
}

/* Returns whether files have to be checked for the job. A job whose list names no block uses no memory: it
 * ends where it was submitted, without this check, which could take long for many files. */
static bool has_files(const struct engine_job *job)
{
	return backing_concerns(job) && !index_list_names_nothing(job);
}

static bool end_job(struct engine_stream *stream, struct engine_job *job)
{
	struct streams *streams = stream->streams;
	bool more_sleep = false;
	const bool looks = has_files(job);

	if ((job->status == 0 && job->signal.memory) || looks) {
		pthread_mutex_unlock(&streams->lock);
		if (looks)
			backing_check(job);
		more_sleep = give_signal(stream, job);
		pthread_mutex_lock(&streams->lock);
	}
	return end_signalled(stream, job, more_sleep);
}

/* Records whether a job that has been moved was alone. since is the value that contention_start returned. */
static void end_measuring(struct streams *streams, struct engine_job *job, uint64_t since)
{
	bool was_alone = contention_end(&streams->contention, since, true);
	job->is_measured = was_alone && !job->blocks && !job->moves;
}

static bool start(struct engine_stream *stream, struct engine_job *job)
{
	struct streams *streams = stream->streams;
	job->begun = true;
	stream->contention = contention_start(&streams->contention, true);
	running_job_start(&stream->running, job, &streams->tuning, streams->threads);
	unsigned work_items = running_job_work_items(&stream->running, streams->idle.n + 1);
	if (work_items == 0) {
		running_job_end(&stream->running, &job);
		end_measuring(streams, job, stream->contention);
		return end_job(stream, job);
	}
	offer(stream, work_items);
	return false;
}

/* Returns whether the stream's first job can start or end now. If not, its point is watched. Releases the
 * lock meanwhile. */
static bool first_is_free(struct engine_stream *stream)
{
	struct streams *streams = stream->streams;
	struct engine_job *job = stream->unstarted.first;
	uint32_t low;
	if (job->status || !job->wait.memory || stream->has_come)
		return true;
	pthread_mutex_unlock(&streams->lock);
	int r = timeline_read(&job->wait, &low);
	pthread_mutex_lock(&streams->lock);
	if (job->status) /* it was canceled meanwhile */
		return true;
	if (r < 0)
		job->status = r;
	if (r == 0) {
		watcher_add(&streams->watcher, &stream->watched, &job->wait, job_waits_until(job));
		stream->is_watched = true;
	}
	return r != 0;
}

static bool is_idle(const struct engine_stream *stream)
{
	return !stream->running.job && !stream->is_advancing;
}

/* Ends `ended`, a job that has run to its end, unless it is NULL. Then starts, or ends, each next job that
 * can be started or ended now. Releases the lock meanwhile. Returns whether the owner is to be woken. */
static bool advance(struct engine_stream *stream, struct engine_job *ended)
{
	bool wake = false;
	assert(is_idle(stream));
	stream->is_advancing = true;
	if (ended)
		wake = end_job(stream, ended);
	while (!stream->running.job && stream->unstarted.first && first_is_free(stream)) {
		struct engine_job *job = job_list_take(&stream->unstarted);
		stream->has_come = false;
		if (!job->status && job_is_late(job))
			job->status = STATUS_TIMEOUT;
		if (job->status) {
			job_end_all(job, job->status);
			wake |= job_list_add(&stream->streams->done, job);
		} else {
			wake |= start(stream, job);
		}
	}
	stream->is_advancing = false;
	return wake;
}

/* Called after a work item has ended or the job was stopped. If that was the last work item, ends the job.
 * Returns whether the owner is to be woken. */
static bool finish(struct engine_stream *stream)
{
	struct engine_job *job;
	bool is_signalled = stream->running.is_waking;
	offer(stream, running_job_work_items(&stream->running, stream->streams->idle.n + 1));
	if (!running_job_end(&stream->running, &job))
		return false;
	if (!is_signalled) {
		end_measuring(stream->streams, job, stream->contention);
		return advance(stream, job);
	}
	bool wake = job_list_add(&stream->streams->done, job);
	return advance(stream, NULL) || wake;
}

static bool on_watched(struct watched *watched, int status)
{
	struct engine_stream *stream =
	    (struct engine_stream *)((char *)watched - offsetof(struct engine_stream, watched));
	stream->is_watched = false;
	stream->has_come = status == 0;
	if (!stream->unstarted.first->status)
		stream->unstarted.first->status = status;
	bool wake = advance(stream, NULL);
	struct idle_threads asleep = SLIST_HEAD_INITIALIZER(asleep);
	streams_call(stream->streams, &asleep);
	idle_wake(&asleep); /* under the lock, because the watcher's thread keeps holding it */
	return wake;
}

static void unlock_and_wake(struct streams *streams, bool wake)
{
	struct idle_threads asleep = SLIST_HEAD_INITIALIZER(asleep);
	streams_call(streams, &asleep);
	pthread_mutex_unlock(&streams->lock);
	idle_wake(&asleep);
	if (wake)
		streams->wake(streams->wake_arg);
}

/* ---- The owner's ------------------------------------------------------------------------------------ */

struct engine_stream *stream_new(struct streams *streams, struct engine_owner *owner)
{
	struct engine_stream *stream = calloc(1, sizeof(*stream));
	if (!stream)
		return NULL;
	stream->streams = streams;
	stream->fair.owner = owner;
	job_list_init(&stream->unstarted);
	stream->held_end = &stream->held;
	owner->streams++;
	return stream;
}

void stream_free(struct engine_stream *stream)
{
	assert(!stream->running.job && !stream->unstarted.first && stream->fair.owner->streams > 0);
	stream->fair.owner->streams--;
	free(stream);
}

/* Runs a small job in the submitting thread. Returns false if the job's point has not come. */
static bool run_small(struct engine_stream *stream, struct engine_job *job, bool *ret_more_sleep)
{
	struct streams *streams = stream->streams;
	uint32_t low;
	int r = job->wait.memory ? timeline_read(&job->wait, &low) : 1;
	if (r == 0)
		return false;
	if (r > 0 && job_is_late(job))
		r = STATUS_TIMEOUT;
	job->status = r < 0 ? r : 0;
	job->begun = r > 0;
	if (r > 0) {
		small_run(job, &streams->tuning, streams->scratch);
		if (has_files(job))
			backing_check(job);
	} else {
		job_end_all(job, r);
	}
	*ret_more_sleep = give_signal(stream, job);
	return true;
}

void stream_submit(struct engine_stream *stream, struct engine_job *job)
{
	struct streams *streams = stream->streams;
	assert(job->moves || job->move.dst->writable);
	assert(!job->signal.memory || job->signal.memory->writable);
	running_job_clear(job);
	pthread_mutex_lock(&streams->lock);
	bool idle = is_idle(stream) && !stream->unstarted.first;
	if (idle && small_is(job, &streams->tuning)) {
		uint64_t since = contention_start(&streams->contention, true);
		pthread_mutex_unlock(&streams->lock);
		bool more_sleep;
		bool has_run = run_small(stream, job, &more_sleep);
		pthread_mutex_lock(&streams->lock);
		end_measuring(streams, job, since);
		if (has_run) {
			unlock_and_wake(streams, end_signalled(stream, job, more_sleep));
			return;
		}
	}
	int r = streams->start_threads ? streams->start_threads(streams) : 0;
	if (r < 0)
		job->status = r;
	job_list_add(&stream->unstarted, job);
	unlock_and_wake(streams, idle && advance(stream, NULL));
}

void stream_post(struct engine_stream *stream, struct engine_job *job)
{
	struct streams *streams = stream->streams;

	running_job_clear(job);
	pthread_mutex_lock(&streams->lock);
	if (is_idle(stream) && !stream->unstarted.first && !stream->is_posted) {
		stream->is_posted = true;
		TAILQ_INSERT_TAIL(&streams->posted, stream, posted);
		streams->uncalled++;
	}
	job_list_add(&stream->unstarted, job);
	unlock_and_wake(streams, false);
}

void stream_end(struct engine_stream *stream, struct engine_job *job)
{
	const int status = job->status;

	running_job_clear(job);
	job_end_all(job, status);
	pthread_mutex_lock(&stream->streams->lock);
	unlock_and_wake(stream->streams, job_list_add(&stream->streams->done, job));
}

void stream_move(struct engine_stream *stream, struct streams *to, struct engine_owner *owner)
{
	assert(is_idle(stream) && !stream->unstarted.first && !stream->is_posted);
	stream->fair.owner->streams--;
	stream->fair.owner = owner;
	owner->streams++;
	stream->streams = to;
}

/* Cancels the watch on the first job's point. The watcher then ends the job, because only it knows that
 * nobody touches the point's memory any more. */
static void cancel_watched(struct engine_stream *stream)
{
	if (stream->is_watched)
		watcher_cancel(&stream->streams->watcher, &stream->watched);
}

void stream_cancel(struct engine_stream *stream)
{
	bool wake = false;
	pthread_mutex_lock(&stream->streams->lock);
	job_list_end_all(&stream->unstarted, STATUS_CANCELED);
	cancel_watched(stream);
	if (stream->running.job) {
		running_job_stop(&stream->running, STATUS_CANCELED);
		wake = finish(stream);
	}
	unlock_and_wake(stream->streams, wake);
}

bool stream_cancel_job(struct engine_stream *stream, struct engine_job *job)
{
	pthread_mutex_lock(&stream->streams->lock);
	const bool waits = job_list_has(&stream->unstarted, job);
	if (waits && job->status == 0)
		job_end_all(job, STATUS_CANCELED);
	if (job == stream->unstarted.first)
		cancel_watched(stream);
	pthread_mutex_unlock(&stream->streams->lock);
	return waits;
}

struct engine_job *streams_reap(struct streams *streams)
{
	pthread_mutex_lock(&streams->lock);
	struct engine_job *first = job_list_take_all(&streams->done);
	pthread_mutex_unlock(&streams->lock);
	return first;
}

/* ---- A worker's ------------------------------------------------------------------------------------- */

void streams_call(struct streams *streams, struct idle_threads *asleep)
{
	if (TAILQ_EMPTY(&streams->fair_queue.owners) && TAILQ_EMPTY(&streams->posted))
		streams->uncalled = 0; /* all of the work has been taken */
	if (streams->uncalled > streams->idle.n)
		streams->uncalled = streams->idle.n;
	streams->uncalled -=
	    idle_call(&streams->idle, streams->uncalled, 1 + streams->tuning.more_wakes, asleep);
}

/* Wakes the owner if `wake`, which finish or advance has returned, is true. Releases the lock meanwhile. */
static void wake_owner(struct streams *streams, bool wake)
{
	if (!wake)
		return;
	pthread_mutex_unlock(&streams->lock);
	streams->wake(streams->wake_arg);
	pthread_mutex_lock(&streams->lock);
}

void stream_finish(struct engine_stream *stream)
{
	struct streams *streams = stream->streams;
	stream->is_with_worker = true;
	bool wake = finish(stream);
	stream->is_with_worker = false;
	wake_owner(streams, wake);
}

bool streams_advance_posted(struct streams *streams)
{
	struct engine_stream *stream = TAILQ_FIRST(&streams->posted);

	if (!stream)
		return false;
	TAILQ_REMOVE(&streams->posted, stream, posted);
	stream->is_posted = false;
	wake_owner(streams, advance(stream, NULL));
	return true;
}
