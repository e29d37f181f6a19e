/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU engine: the worker threads, and engine_ops for memory, streams and probes.
 *
 * A stream whose job has work items left stands in the fair queue. A worker takes the next stream's next work
 * item, executes it without the lock, and comes back for another, so owners and their streams share the
 * threads whatever the size of their jobs. Workers wait while the queue is empty (idle.h).
 */
#include "kernels/engine.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/thread.h"
#include "kernels/host/holes.h"
#include "kernels/host/memory.h"
#include "kernels/host/threads.h"
#include "proto/clock.h"
#include "running_job.h"
#include "stream.h"

struct worker {
	struct cpu_engine *engine;
	pthread_t thread;
	struct cpu_scratch *scratch;
	struct work_item work_item;
	struct idle_thread idle;
	uint32_t answered; /* under the lock: the last probe that it saw */
};

struct cpu_engine {
	struct engine engine;
	struct streams streams;
	bool closing;   /* under the streams' lock, as the next */
	uint32_t asked; /* probes of the threads */
	uint32_t n_workers;
	struct worker worker[];
};

static const struct engine_ops cpu_ops;

static void *worker_main(void *arg);

static struct cpu_engine *cpu_engine(struct engine *engine)
{
	return (struct cpu_engine *)engine;
}

/* ---- Open and close --------------------------------------------------------------------------------- */

static int worker_start(struct worker *worker, struct cpu_engine *engine)
{
	worker->engine = engine;
	worker->scratch = cpu_scratch_new();
	if (!worker->scratch)
		return ENOMEM;
	int r = thread_start(&worker->thread, worker_main, worker);
	if (r)
		cpu_scratch_free(worker->scratch);
	return r;
}

/* All that have no work, under the lock: they look what there is. */
static void call_all(struct cpu_engine *engine)
{
	struct idle_threads asleep = SLIST_HEAD_INITIALIZER(asleep);
	idle_call(&engine->streams.idle, UINT_MAX, UINT_MAX, &asleep);
	idle_wake(&asleep);
}

/* The threads that were started, and what they share. */
static void stop(struct cpu_engine *engine)
{
	pthread_mutex_lock(&engine->streams.lock);
	engine->closing = true;
	call_all(engine);
	pthread_mutex_unlock(&engine->streams.lock);
	for (uint32_t i = 0; i < engine->n_workers; i++) {
		pthread_join(engine->worker[i].thread, NULL);
		cpu_scratch_free(engine->worker[i].scratch);
	}
	streams_deinit(&engine->streams);
}

static void cpu_close(struct engine *base)
{
	stop(cpu_engine(base));
	holes_deinit();
	fault_deinit();
	free(base);
}

static int start_workers(struct cpu_engine *engine, uint32_t threads, struct error *err)
{
	for (; engine->n_workers < threads; engine->n_workers++) {
		int r = worker_start(&engine->worker[engine->n_workers], engine);
		if (r)
			return error_set(err, STATUS_NO_MEMORY, "threads: %u cannot be started: %s", threads,
			                 strerror(r));
	}
	return 0;
}

int engine_cpu_open(struct engine **ret, const struct engine_options *options, struct error *err)
{
	uint32_t threads = options->threads ? options->threads : threads_default();
	struct cpu_engine *engine = calloc(1, sizeof(*engine) + threads * sizeof(engine->worker[0]));
	if (!engine)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	int r = fault_init();
	if (r < 0) {
		free(engine);
		return error_set(err, STATUS_INTERNAL, "SIGBUS cannot be handled: %s", strerror(-r));
	}
	r = streams_init(&engine->streams, options, threads, err);
	if (r < 0) {
		fault_deinit();
		free(engine);
		return r;
	}
	holes_init();
	engine->engine = (struct engine){
		.ops = &cpu_ops,
		.name = "cpu",
		.facts = { .engine = "cpu", .threads = threads, .align = CPU_ALIGN },
		.kind = REGION_KIND_MEMFD,
		.watches_holes = holes_can_watch(),
	};
	snprintf(engine->engine.device, sizeof(engine->engine.device), "%s, %u thread%s",
	         engine->streams.tuning.isa->name, threads, threads == 1 ? "" : "s");
	r = start_workers(engine, threads, err);
	if (r < 0) {
		cpu_close(&engine->engine);
		return r;
	}
	*ret = &engine->engine;
	return 0;
}

/* ---- Memory ----------------------------------------------------------------------------------------- */

static int cpu_map(struct engine *engine, const struct engine_handle *handle, struct engine_memory **ret,
                   struct error *err)
{
	(void)engine;
	return host_memory_map(handle, ret, err);
}

static int cpu_create(struct engine *engine, const struct engine_handle *wanted, struct engine_memory **ret,
                      struct engine_export *ret_export, struct error *err)
{
	(void)engine;
	return host_memory_create(wanted, ret, ret_export, err);
}

static bool cpu_unmap(struct engine *engine, struct engine_memory *memory)
{
	(void)engine;
	return host_memory_unmap_step(memory);
}

/* ---- Streams and jobs ------------------------------------------------------------------------------- */

static struct engine_stream *cpu_stream_new(struct engine *engine, struct engine_owner *owner)
{
	return stream_new(&cpu_engine(engine)->streams, owner);
}

static void cpu_reap(struct engine *engine)
{
	struct engine_job *job = streams_reap(&cpu_engine(engine)->streams);
	while (job) {
		struct engine_job *next = job->next;
		job->on_done(job);
		job = next;
	}
}

/* ---- Signs of life ----------------------------------------------------------------------------------- */

/* Under the lock. */
static uint32_t count_silent(const struct cpu_engine *engine)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < engine->n_workers; i++)
		n += engine->worker[i].answered != engine->asked;
	return n;
}

/* A thread answers when it next looks for work: one that sleeps is woken for it. */
static int cpu_probe(struct engine *base, struct error *err)
{
	struct cpu_engine *engine = cpu_engine(base);
	struct streams *streams = &engine->streams;
	pthread_mutex_lock(&streams->lock);
	uint32_t silent = count_silent(engine);
	if (silent == 0) {
		engine->asked++;
		call_all(engine);
	}
	bool watcher_answers = watcher_probe(&streams->watcher);
	pthread_mutex_unlock(&streams->lock);
	if (silent > 0)
		return error_set(err, STATUS_TIMEOUT, "%u of the %u threads that move bytes: no sign of life",
		                 silent, engine->n_workers);
	if (!watcher_answers)
		return error_set(err, STATUS_TIMEOUT, "the thread that watches timelines: no sign of life");
	return 0;
}

/* ---- Threads ---------------------------------------------------------------------------------------- */

/* The next work item goes to the worker; returns the stream that it belongs to, or NULL: there is none. */
static struct engine_stream *take_work_item(struct worker *worker)
{
	struct streams *streams = &worker->engine->streams;
	struct engine_stream *stream = (struct engine_stream *)fair_queue_next(&streams->fair_queue);
	if (!stream)
		return NULL;
	running_job_work_item(&stream->running, &worker->work_item);
	if (!running_job_work_items(&stream->running, 1))
		fair_queue_remove(&streams->fair_queue, &stream->fair);
	return stream;
}

/* Until there may be work, or something else to look at; awake_ns as of idle_wait. The lock is held before
 * and after. */
static void wait_for_work(struct worker *worker, uint64_t awake_ns)
{
	struct streams *streams = &worker->engine->streams;
	idle_add(&streams->idle, &worker->idle);
	pthread_mutex_unlock(&streams->lock);
	idle_wait(&worker->idle, awake_ns);
	pthread_mutex_lock(&streams->lock);
}

static void *worker_main(void *arg)
{
	struct worker *worker = arg;
	struct cpu_engine *engine = worker->engine;
	struct streams *streams = &engine->streams;
	/* After work, a client that asks one thing after the other is back sooner than a thread wakes up. */
	uint64_t awake_ns = 0;
	pthread_setname_np(pthread_self(), "engine-cpu");
	pthread_mutex_lock(&streams->lock);
	while (!engine->closing) {
		struct idle_threads asleep = SLIST_HEAD_INITIALIZER(asleep);
		worker->answered = engine->asked;
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

static const struct engine_ops cpu_ops = {
	.close = cpu_close,
	.map = cpu_map,
	.create = cpu_create,
	.unmap = cpu_unmap,
	.stream_new = cpu_stream_new,
	.stream_free = stream_free,
	.submit = stream_submit,
	.stream_cancel = stream_cancel,
	.cancel = stream_cancel_job,
	.reap = cpu_reap,
	.probe = cpu_probe,
};
