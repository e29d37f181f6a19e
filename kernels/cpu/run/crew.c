/* SPDX-License-Identifier: Apache-2.0 */
/* The workers' threads: starts them, runs them and ends them. Also moves streams to the crews of their
 * owners, and ends crews that have no streams any more. */
#include "crew.h"

#include <assert.h>
#include <errno.h>
#include <fenv.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/host/backing.h"
#include "kernels/host/memory.h"
#include "kernels/thread.h"
#include "proto/clock.h"
#include "running_job.h"

struct worker {
	struct crew *crew;
	pthread_t thread;
	struct cpu_scratch *scratch;
	struct work_item work_item;
	struct idle_thread idle;
	uint32_t answered; /* last probe that the worker saw; protected by the streams' lock */
};

static void *worker_main(void *arg);

/* ---- Start and end ---------------------------------------------------------------------------------- */

static int worker_start(struct worker *worker, struct crew *crew, bool is_apart)
{
	worker->crew = crew;
	worker->scratch = cpu_scratch_new();
	if (!worker->scratch)
		return ENOMEM;
	int r = (is_apart ? thread_start_apart : thread_start)(&worker->thread, worker_main, worker);
	if (r)
		cpu_scratch_free(worker->scratch);
	return r;
}

/* Makes all workers that have no work look for some. The caller must hold streams->lock. */
static void call_all(struct crew *crew)
{
	struct idle_threads asleep = SLIST_HEAD_INITIALIZER(asleep);
	idle_call(&crew->streams.idle, UINT_MAX, UINT_MAX, &asleep);
	idle_wake(&asleep);
}

/* Starts the watcher and those workers that have not been started. */
static int start_all(struct crew *crew, struct error *err)
{
	const uint32_t threads = crew->streams.threads;
	int r = watcher_start(&crew->streams.watcher);
	if (r)
		return error_set(err, STATUS_NO_MEMORY,
		                 "the thread that watches timelines cannot be started: %s", strerror(r));
	for (; crew->n_workers < threads; crew->n_workers++) {
		r = worker_start(&crew->workers[crew->n_workers], crew, crew->is_apart);
		if (r)
			return error_set(err, STATUS_NO_MEMORY, "threads: %u cannot be started: %s", threads,
			                 strerror(r));
	}
	return 0;
}

/* Starts the threads of a guest's crew. One worker is enough for a job; if others could not be started, that
 * is tried again for the next job. */
static int start_late(struct streams *streams)
{
	struct crew *crew = (struct crew *)streams;
	struct error ignored;

	if (crew->n_workers < streams->threads && start_all(crew, &ignored) < 0 && crew->n_workers == 0)
		return STATUS_NO_MEMORY;
	return 0;
}

int crew_init(struct crew *crew, const struct engine_options *options, uint32_t threads, bool is_apart,
              struct error *err)
{
	*crew = (struct crew){ .is_apart = is_apart, .workers = calloc(threads, sizeof(crew->workers[0])) };
	if (!crew->workers)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	int r = streams_init(&crew->streams, options, threads, is_apart, err);
	if (r < 0) {
		free(crew->workers);
		return r;
	}
	if (options->is_guest)
		crew->streams.start_threads = start_late;
	else
		r = start_all(crew, err);
	if (r < 0) {
		crew_close(crew);
		crew_deinit(crew);
	}
	return r;
}

void crew_close(struct crew *crew)
{
	pthread_mutex_lock(&crew->streams.lock);
	crew->closing = true;
	watcher_close(&crew->streams.watcher);
	call_all(crew);
	pthread_mutex_unlock(&crew->streams.lock);
}

void crew_deinit(struct crew *crew)
{
	for (uint32_t i = 0; i < crew->n_workers; i++) {
		pthread_join(crew->workers[i].thread, NULL);
		cpu_scratch_free(crew->workers[i].scratch);
	}
	streams_deinit(&crew->streams);
	free(crew->workers);
}

/* ---- Signs of life ---------------------------------------------------------------------------------- */

/* Returns the number of workers that have not answered the last probe. The caller must hold streams->lock. */
static uint32_t count_silent(const struct crew *crew)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < crew->n_workers; i++)
		n += crew->workers[i].answered != crew->asked;
	return n;
}

int crew_probe(struct crew *crew, struct error *err)
{
	struct streams *streams = &crew->streams;
	pthread_mutex_lock(&streams->lock);
	uint32_t silent = count_silent(crew);
	if (silent == 0) {
		crew->asked++;
		call_all(crew);
	}
	bool watcher_answers = !streams->watcher.started || watcher_probe(&streams->watcher);
	pthread_mutex_unlock(&streams->lock);
	if (silent > 0)
		return error_set(err, STATUS_TIMEOUT, "%u of the %u threads that move bytes: no sign of life",
		                 silent, crew->n_workers);
	if (!watcher_answers)
		return error_set(err, STATUS_TIMEOUT, "the thread that watches timelines: no sign of life");
	return 0;
}

/* ---- Threads ---------------------------------------------------------------------------------------- */

/* Sets the worker's work_item to the next one. Returns the stream to which it belongs, or NULL if there is
 * none. The caller must hold streams->lock. */
static struct engine_stream *take_work_item(struct worker *worker)
{
	struct streams *streams = &worker->crew->streams;
	struct engine_stream *stream = (struct engine_stream *)fair_queue_next(&streams->fair_queue);
	if (!stream)
		return NULL;
	running_job_work_item(&stream->running, &worker->work_item);
	if (!running_job_work_items(&stream->running, 1))
		fair_queue_remove(&streams->fair_queue, &stream->fair);
	return stream;
}

/* Waits until there may be work, or something else to look at, and stays awake for the first awake_ns of that
 * time (idle_wait). The caller must hold streams->lock, which is released while the worker waits. */
static void wait_for_work(struct worker *worker, uint64_t awake_ns)
{
	struct streams *streams = &worker->crew->streams;
	idle_add(&streams->idle, &worker->idle);
	pthread_mutex_unlock(&streams->lock);
	idle_wait(&worker->idle, awake_ns);
	pthread_mutex_lock(&streams->lock);
}

static void *worker_main(void *arg)
{
	struct worker *worker = arg;
	struct crew *crew = worker->crew;
	struct streams *streams = &crew->streams;
	/* Stay awake after work: a client that sends one request after the other is back sooner than a thread
	 * wakes up. */
	uint64_t awake_ns = 0;
	pthread_setname_np(pthread_self(), crew->is_apart ? "own-cpu" : "engine-cpu");
	/* Set the default environment, so that results do not depend on the rounding mode, traps or treatment
	 * of denormals of the thread that started this one. */
	fesetenv(FE_DFL_ENV);
	pthread_mutex_lock(&streams->lock);
	while (!crew->closing) {
		struct idle_threads asleep = SLIST_HEAD_INITIALIZER(asleep);
		worker->answered = crew->asked;
		if (streams_advance_posted(streams)) {
			awake_ns = streams->tuning.awake_ns;
			continue;
		}
		struct engine_stream *stream = take_work_item(worker);
		if (!stream) {
			wait_for_work(worker, awake_ns);
			awake_ns = 0;
			continue;
		}
		streams_call(streams, &asleep);
		pthread_mutex_unlock(&streams->lock);
		idle_wake(&asleep);

		awake_ns = streams->tuning.awake_ns;
		uint64_t start_ns = clock_ns();
		int status = work_item_execute(&worker->work_item, worker->scratch);
		uint64_t ns = clock_ns() - start_ns;

		pthread_mutex_lock(&streams->lock);
		running_job_end_work_item(&stream->running, &worker->work_item, status);
		fair_queue_charge(&streams->fair_queue, stream->fair.owner, ns);
		stream_finish(stream);
	}
	pthread_mutex_unlock(&streams->lock);
	return NULL;
}

/* ---- Crews of untrusted owners ---------------------------------------------------------------------- */

void owns_init(struct owns *owns, const struct engine_options *options, uint32_t threads)
{
	*owns = (struct owns){ .options = *options, .threads = threads };
	LIST_INIT(&owns->live);
	LIST_INIT(&owns->ending);
}

/* Frees crews that were told to end. Their threads have nothing left to do, so that waiting for them takes
 * hardly any time. */
static void free_ending(struct owns *owns)
{
	struct own *own;

	while ((own = LIST_FIRST(&owns->ending))) {
		LIST_REMOVE(own, entry);
		crew_deinit(&own->crew);
		free(own);
	}
}

void owns_deinit(struct owns *owns)
{
	assert(LIST_EMPTY(&owns->live));
	free_ending(owns);
}

static struct own *own_of(struct owns *owns, struct engine_owner *user)
{
	struct own *own;
	struct error err;

	LIST_FOREACH(own, &owns->live, entry)
		if (own->user == user)
			return own;
	free_ending(owns);
	own = calloc(1, sizeof *own);
	if (!own)
		return NULL;
	if (crew_init(&own->crew, &owns->options, owns->threads, true, &err) < 0) {
		free(own);
		return NULL;
	}
	own->user = user;
	engine_owner_init(&own->owner);
	LIST_INSERT_HEAD(&owns->live, own, entry);
	return own;
}

/* Moves the stream to the crew of its owner. The owner's number of streams still includes it. Returns false
 * if there is no memory for a crew. */
static bool join(struct owns *owns, struct engine_stream *stream)
{
	struct engine_owner *user = stream->fair.owner;
	struct own *own = own_of(owns, user);

	if (!own)
		return false;
	stream_move(stream, &own->crew.streams, &own->owner);
	user->streams++;
	stream->own = own;
	return true;
}

void owns_stream_free(struct owns *owns, struct engine_stream *stream)
{
	struct own *own = stream->own;

	assert(!stream->held && stream->jobs == 0);
	if (own)
		own->user->streams--;
	stream_free(stream);
	if (!own || own->owner.streams > 0)
		return;
	own->user->is_stuck = false;
	LIST_REMOVE(own, entry);
	LIST_INSERT_HEAD(&owns->ending, own, entry);
	crew_close(&own->crew);
}

/* ---- Their jobs -----------------------------------------------------------------------------------------
 */

static inline bool memory_may_stall(struct engine_memory *memory, void *arg)
{
	(void)arg;
	return atomic_load_explicit(&memory->may_stall, memory_order_relaxed) &&
	       engine_memory_may_stall(memory);
}

static bool may_stall(const struct engine_job *job)
{
	return memory_is(job->wait.memory, memory_may_stall, NULL) ||
	       job_any_memory(job, memory_may_stall, NULL);
}

static void hold(struct engine_stream *stream, struct engine_job *job)
{
	job->status = 0;
	job->next = NULL;
	*stream->held_end = job;
	stream->held_end = &job->next;
}

static void end_held(struct engine_stream *stream, struct engine_job *job, int status)
{
	if (!job->status)
		job->status = status;
	stream->jobs++;
	stream_end(stream, job);
}

/* Submits the held jobs of a stream that has no other jobs. If there is no memory for a crew, they end as
 * NO_MEMORY. */
static void let_go(struct owns *owns, struct engine_stream *stream)
{
	const bool joined = stream->own || join(owns, stream);
	struct engine_job *job = stream->held, *next;

	stream->held = NULL;
	stream->held_end = &stream->held;
	for (; job; job = next) {
		next = job->next;
		if (!joined || job->status) {
			end_held(stream, job, STATUS_NO_MEMORY);
			continue;
		}
		stream->jobs++;
		stream_post(stream, job);
	}
}

void owns_submit(struct owns *owns, struct engine_stream *stream, struct engine_job *job)
{
	job->stream = stream;
	if (stream->own && !stream->held) {
		stream->jobs++;
		stream_post(stream, job);
		return;
	}
	if (!stream->held && (!stream->fair.owner->is_untrusted || !may_stall(job))) {
		stream->jobs++;
		stream_submit(stream, job);
		return;
	}
	hold(stream, job);
	if (stream->jobs == 0)
		let_go(owns, stream);
}

void owns_on_reaped(struct owns *owns, struct engine_stream *stream)
{
	assert(stream->jobs > 0);
	if (--stream->jobs == 0 && stream->held)
		let_go(owns, stream);
}

void owns_cancel_held(struct engine_stream *stream)
{
	for (struct engine_job *job = stream->held; job; job = job->next)
		job->status = STATUS_CANCELED;
}

bool owns_cancel_held_job(struct engine_stream *stream, const struct engine_job *wanted)
{
	for (struct engine_job *job = stream->held; job; job = job->next)
		if (job == wanted) {
			job->status = STATUS_CANCELED;
			return true;
		}
	return false;
}

struct engine_job *owns_reap(struct owns *owns)
{
	struct engine_job *first = NULL, **end = &first;
	struct own *own;

	LIST_FOREACH(own, &owns->live, entry) {
		*end = streams_reap(&own->crew.streams);
		while (*end)
			end = &(*end)->next;
	}
	return first;
}

void owns_note_stuck(struct owns *owns)
{
	struct own *own;
	struct error err;

	LIST_FOREACH(own, &owns->live, entry)
		own->user->is_stuck = crew_probe(&own->crew, &err) < 0;
	free_ending(owns);
}
