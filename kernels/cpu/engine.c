/* The CPU engine: threads, streams, and the one door back to the owner.
 *
 * One lock guards everything but the copying itself. A stream whose job has claims left stands in the ring,
 * which says whose turn it is; a thread takes one claim at a time, so owners and their streams share the
 * threads whatever the size of their jobs. Threads sleep when the ring has been empty for a moment. A
 * stream's next job starts when its last has ended, on whichever thread ended it.
 */
#include "kernels/engine.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/ring.h"
#include "kernels/thread.h"
#include "memory.h"
#include "run.h"
#include "small.h"

struct engine_stream {
	struct ring_stream turn; /* first: ring_next gives it back */
	struct cpu_engine *engine;
	struct run run;
	struct engine_job *first; /* waiting */
	struct engine_job **end;
};

struct worker {
	struct cpu_engine *engine;
	pthread_t thread;
	char *scratch;
	struct claim claim;
};

struct cpu_engine {
	struct engine engine;
	struct cpu_tuning tuning;
	struct engine_options options;
	pthread_mutex_t lock;
	pthread_cond_t work;
	struct ring ring;
	unsigned idle;       /* threads that wait for work */
	atomic_uint offered; /* times that work came; changed under the lock, looked at without it */
	bool closing;
	struct engine_job *done;
	struct engine_job **done_end;
	char *scratch; /* of the owner's thread */
	uint32_t n_workers;
	struct worker worker[];
};

static const struct engine_ops cpu_ops;

static void *worker_main(void *arg);
static bool finish(struct engine_stream *stream);

static struct cpu_engine *cpu_engine(struct engine *engine)
{
	return (struct cpu_engine *)engine;
}

/* ---- Open and close --------------------------------------------------------------------------------- */

static uint32_t usable_cpus(void)
{
	cpu_set_t set;
	if (sched_getaffinity(0, sizeof(set), &set) < 0)
		return 1;
	return (uint32_t)CPU_COUNT(&set);
}

static int worker_start(struct worker *worker, struct cpu_engine *engine)
{
	worker->engine = engine;
	worker->scratch = aligned_alloc(CPU_LINE, CPU_SCRATCH);
	if (!worker->scratch)
		return ENOMEM;
	int r = thread_start(&worker->thread, worker_main, worker);
	if (r)
		free(worker->scratch);
	return r;
}

static void cpu_close(struct engine *base)
{
	struct cpu_engine *engine = cpu_engine(base);
	assert(TAILQ_EMPTY(&engine->ring.owners) && !engine->done);
	pthread_mutex_lock(&engine->lock);
	engine->closing = true;
	pthread_cond_broadcast(&engine->work);
	pthread_mutex_unlock(&engine->lock);
	for (uint32_t i = 0; i < engine->n_workers; i++) {
		pthread_join(engine->worker[i].thread, NULL);
		free(engine->worker[i].scratch);
	}
	free(engine->scratch);
	fault_deinit();
	pthread_cond_destroy(&engine->work);
	pthread_mutex_destroy(&engine->lock);
	free(engine);
}

int engine_cpu_open(struct engine **ret, const struct engine_options *options, struct error *err)
{
	uint32_t threads = options->threads ? options->threads : usable_cpus();
	struct cpu_engine *engine = calloc(1, sizeof(*engine) + threads * sizeof(engine->worker[0]));
	if (!engine)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	engine->scratch = aligned_alloc(CPU_LINE, CPU_SCRATCH);
	if (!engine->scratch) {
		free(engine);
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	}
	int r = fault_init();
	if (r < 0) {
		free(engine->scratch);
		free(engine);
		return error_set(err, STATUS_INTERNAL, "SIGBUS cannot be handled: %s", strerror(-r));
	}
	engine->options = *options;
	engine->tuning = cpu_tuning_get();
	engine->done_end = &engine->done;
	ring_init(&engine->ring);
	engine->engine = (struct engine){
		.ops = &cpu_ops,
		.name = "cpu",
		.facts = { .engine = "cpu", .threads = threads, .align = CPU_ALIGN },
		.kind = REGION_KIND_MEMFD,
	};
	snprintf(engine->engine.device, sizeof(engine->engine.device), "%s, %u thread%s",
	         engine->tuning.isa->name, threads, threads == 1 ? "" : "s");
	pthread_mutex_init(&engine->lock, NULL);
	pthread_cond_init(&engine->work, NULL);
	for (; engine->n_workers < threads; engine->n_workers++) {
		r = worker_start(&engine->worker[engine->n_workers], engine);
		if (r) {
			cpu_close(&engine->engine);
			return error_set(err, STATUS_NO_MEMORY, "threads: %u cannot be started: %s", threads,
			                 strerror(r));
		}
	}
	*ret = &engine->engine;
	return 0;
}

/* ---- Memory ----------------------------------------------------------------------------------------- */

static int cpu_map(struct engine *engine, const struct engine_handle *handle, struct engine_memory **ret,
                   struct error *err)
{
	(void)engine;
	return cpu_memory_map(handle, ret, err);
}

static int cpu_create(struct engine *engine, const struct engine_handle *wanted, struct engine_memory **ret,
                      struct engine_export *ret_export, struct error *err)
{
	(void)engine;
	return cpu_memory_create(wanted, ret, ret_export, err);
}

static void cpu_unmap(struct engine *engine, struct engine_memory *memory)
{
	(void)engine;
	cpu_memory_unmap(memory);
}

/* ---- Streams and jobs ------------------------------------------------------------------------------- */

static struct engine_stream *cpu_stream_new(struct engine *engine, struct engine_owner *owner)
{
	struct engine_stream *stream = calloc(1, sizeof(*stream));
	if (!stream)
		return NULL;
	stream->engine = cpu_engine(engine);
	stream->turn.owner = owner;
	stream->end = &stream->first;
	owner->streams++;
	return stream;
}

static void cpu_stream_free(struct engine_stream *stream)
{
	assert(!stream->run.job && !stream->first && stream->turn.owner->streams > 0);
	stream->turn.owner->streams--;
	free(stream);
}

/* Whether the owner has to be woken: it drains the whole queue, so only for the first. */
static bool done_add(struct cpu_engine *engine, struct engine_job *job)
{
	bool wake = !engine->done;
	job->next = NULL;
	*engine->done_end = job;
	engine->done_end = &job->next;
	return wake;
}

/* The stream stands in the ring while its job has claims. */
static void offer(struct engine_stream *stream, unsigned claims)
{
	struct cpu_engine *engine = stream->engine;
	if (claims == 0)
		ring_remove(&engine->ring, &stream->turn);
	if (claims == 0 || stream->turn.in_ring)
		return;
	ring_add(&engine->ring, &stream->turn);
	atomic_fetch_add_explicit(&engine->offered, 1, memory_order_relaxed);
	for (; claims > 0; claims--)
		pthread_cond_signal(&engine->work);
}

/* Starts the first waiting job that has anything to do; gives back what done_add did. */
static bool start_next(struct engine_stream *stream)
{
	struct cpu_engine *engine = stream->engine;
	bool wake = false;
	while (!stream->run.job && stream->first) {
		struct engine_job *job = stream->first;
		stream->first = job->next;
		if (!stream->first)
			stream->end = &stream->first;
		run_start(&stream->run, job, &engine->tuning, engine->n_workers);
		if (job->status)
			run_stop(&stream->run, job->status);
		unsigned claims = run_claims(&stream->run, engine->idle + 1);
		if (claims == 0) {
			run_end(&stream->run, &job);
			wake |= done_add(engine, job);
			continue;
		}
		offer(stream, claims);
	}
	return wake;
}

/* After a claim has ended, or the run was stopped: ends the job when that was its last. */
static bool finish(struct engine_stream *stream)
{
	struct engine_job *job;
	offer(stream, run_claims(&stream->run, stream->engine->idle + 1));
	if (!run_end(&stream->run, &job))
		return false;
	bool wake = done_add(stream->engine, job);
	return start_next(stream) || wake;
}

static void unlock_and_wake(struct cpu_engine *engine, bool wake)
{
	pthread_mutex_unlock(&engine->lock);
	if (wake)
		engine->options.wake(engine->options.wake_arg);
}

static void cpu_submit(struct engine_stream *stream, struct engine_job *job)
{
	struct cpu_engine *engine = stream->engine;
	assert(job->moves || job->move.dst->writable);
	job->status = 0;
	job->ns = 0;
	job->next = NULL;
	pthread_mutex_lock(&engine->lock);
	bool idle = !stream->run.job;
	if (idle && small_is(job, &engine->tuning)) {
		pthread_mutex_unlock(&engine->lock);
		small_run(job, &engine->tuning, engine->scratch);
		pthread_mutex_lock(&engine->lock);
		unlock_and_wake(engine, done_add(engine, job));
		return;
	}
	*stream->end = job;
	stream->end = &job->next;
	unlock_and_wake(engine, idle && start_next(stream));
}

static void cpu_stream_cancel(struct engine_stream *stream)
{
	bool wake = false;
	pthread_mutex_lock(&stream->engine->lock);
	for (struct engine_job *job = stream->first; job; job = job->next)
		job->status = STATUS_CANCELED;
	if (stream->run.job) {
		run_stop(&stream->run, STATUS_CANCELED);
		wake = finish(stream);
	}
	unlock_and_wake(stream->engine, wake);
}

static bool cpu_cancel(struct engine_stream *stream, struct engine_job *wanted)
{
	struct engine_job *job;
	pthread_mutex_lock(&stream->engine->lock);
	for (job = stream->first; job && job != wanted;)
		job = job->next;
	if (job)
		job->status = STATUS_CANCELED;
	pthread_mutex_unlock(&stream->engine->lock);
	return job != NULL;
}

static void cpu_reap(struct engine *base)
{
	struct cpu_engine *engine = cpu_engine(base);
	pthread_mutex_lock(&engine->lock);
	struct engine_job *job = engine->done;
	engine->done = NULL;
	engine->done_end = &engine->done;
	pthread_mutex_unlock(&engine->lock);
	while (job) {
		struct engine_job *next = job->next;
		job->on_done(job);
		job = next;
	}
}

/* ---- Threads ---------------------------------------------------------------------------------------- */

/* After work, before sleep: a client that asks one thing after the other is back sooner than a thread wakes
 * up. Whoever else wants the CPU has it meanwhile. The lock is held before and after. */
static void stay_awake(struct cpu_engine *engine)
{
	unsigned seen = atomic_load_explicit(&engine->offered, memory_order_relaxed);
	uint64_t end = run_now_ns() + engine->tuning.awake_ns;
	pthread_mutex_unlock(&engine->lock);
	while (atomic_load_explicit(&engine->offered, memory_order_relaxed) == seen && run_now_ns() < end)
		sched_yield();
	pthread_mutex_lock(&engine->lock);
}

static void *worker_main(void *arg)
{
	struct worker *worker = arg;
	struct cpu_engine *engine = worker->engine;
	pthread_setname_np(pthread_self(), "engine-cpu");
	bool awake = false;
	pthread_mutex_lock(&engine->lock);
	while (!engine->closing) {
		struct engine_stream *stream = (struct engine_stream *)ring_next(&engine->ring);
		if (!stream && awake) {
			awake = false;
			stay_awake(engine);
			continue;
		}
		if (!stream) {
			engine->idle++;
			pthread_cond_wait(&engine->work, &engine->lock);
			engine->idle--;
			continue;
		}
		awake = true;
		run_claim(&stream->run, &worker->claim);
		if (!run_claims(&stream->run, 1))
			ring_remove(&engine->ring, &stream->turn);
		pthread_mutex_unlock(&engine->lock);

		uint64_t start_ns = run_now_ns();
		int status = claim_execute(&worker->claim, worker->scratch);
		uint64_t ns = run_now_ns() - start_ns;

		pthread_mutex_lock(&engine->lock);
		run_end_claim(&stream->run, &worker->claim, status);
		ring_charge(&engine->ring, stream->turn.owner, ns);
		bool wake = finish(stream);
		if (wake) {
			unlock_and_wake(engine, true);
			pthread_mutex_lock(&engine->lock);
		}
	}
	pthread_mutex_unlock(&engine->lock);
	return NULL;
}

static const struct engine_ops cpu_ops = {
	.close = cpu_close,
	.map = cpu_map,
	.create = cpu_create,
	.unmap = cpu_unmap,
	.stream_new = cpu_stream_new,
	.stream_free = cpu_stream_free,
	.submit = cpu_submit,
	.stream_cancel = cpu_stream_cancel,
	.cancel = cpu_cancel,
	.reap = cpu_reap,
};
