/* SPDX-License-Identifier: Apache-2.0 */
/* This file has the threads of the workers, and starts and ends them. */
#include "crew.h"

#include <errno.h>
#include <fenv.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/thread.h"
#include "proto/clock.h"
#include "running_job.h"

struct worker {
	struct crew *crew;
	pthread_t thread;
	struct cpu_scratch *scratch;
	struct work_item work_item;
	struct idle_thread idle;
	uint32_t answered; /* It is the last probe that the worker saw. The streams' lock guards it. */
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

/* Has all workers that have no work look for some. The caller holds the streams' lock. */
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

/* A job needs one worker at least. Whoever else is missing is tried again with the next job. */
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

/* ---- Signs of life ----------------------------------------------------------------------------------- */

/* Counts the workers that have not answered the last probe. The caller holds the streams' lock. */
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

/* Gives the worker the next work item, and returns the stream that it belongs to, or NULL if there is none.
 * The caller holds the streams' lock. */
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

/* Waits until there may be work, or something else to look at, and stays awake for awake_ns of that time
 * (idle_wait). The caller holds the streams' lock, which is released while the worker waits. */
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
	/* After work, a client that asks one thing after the other is back sooner than a thread wakes up. */
	uint64_t awake_ns = 0;
	pthread_setname_np(pthread_self(), crew->is_apart ? "own-cpu" : "engine-cpu");
	/* Results do not depend on the rounding, traps or treatment of denormals of the thread that started
	 * this one. */
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
