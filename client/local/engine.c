/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the CPU's engine, lets one thread at a time use it, and starts over in a child of fork. */
#include "engine.h"

#include <fenv.h>
#include <pthread.h>
#include <stdlib.h>

#include "proto/clock.h"

/* maximum number of layouts that the engine remembers, at some 10 KiB each */
#define MOST_PLANS 1024

/* guards engine, owner, reaping and has_ended_others */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct engine *engine;
static struct engine_owner owner;
static const struct local_job *reaping; /* the job of the thread that is reaping */
static bool has_ended_others;
/* Identifies the engine: each fork increments it in the child, so that streams of the parent's engine can be
 * told from new ones. */
static uint64_t life = 1;

/* Guards wakes. It may be taken while `lock` is held, but not the other way round. It is the only lock that
 * the engine's threads take. */
static pthread_mutex_t woken_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t woken = PTHREAD_COND_INITIALIZER;
static uint64_t wakes;

/* ---- Fork --------------------------------------------------------------------------------------------- */

/* Runs in the child of a fork. The child has the parent's locks in an arbitrary state, and none of its
 * threads. Without those, the parent's engine cannot be closed, so it stays allocated. */
static void start_over(void)
{
	pthread_mutex_init(&lock, NULL);
	pthread_mutex_init(&woken_lock, NULL);
	pthread_cond_init(&woken, NULL);
	engine = NULL;
	life++;
}

/* Runs before any thread can use the library and hold its locks. */
__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, start_over);
}

/* ---- The engine --------------------------------------------------------------------------------------- */

static void wake(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&woken_lock);
	wakes++;
	pthread_cond_broadcast(&woken);
	pthread_mutex_unlock(&woken_lock);
}

/* Switches to the default floating-point environment: results must not depend on the rounding, traps or
 * treatment of denormals that the caller has set for its thread. */
static void environment_take(fenv_t *ret)
{
	fegetenv(ret);
	fesetenv(FE_DFL_ENV);
}

/* Opens the CPU's engine if necessary. The caller must hold lock. */
static int engine_need(struct error *err)
{
	const struct engine_options options = { .plans = MOST_PLANS, .wake = wake, .is_guest = true };

	if (engine)
		return 0;
	engine_owner_init(&owner);
	return engine_cpu_open(&engine, &options, err);
}

int local_stream_open(struct local_stream *ret, struct error *err)
{
	struct engine_stream *stream = NULL;
	int r;

	pthread_mutex_lock(&lock);
	r = engine_need(err);
	if (r == 0)
		stream = engine_stream_new(engine, &owner);
	pthread_mutex_unlock(&lock);
	if (r == 0 && !stream)
		r = error_set(err, STATUS_NO_MEMORY, "out of memory for a stream");
	if (r < 0)
		return r;
	ret->stream = stream;
	ret->life = life;
	return 0;
}

void local_stream_close(struct local_stream *stream)
{
	pthread_mutex_lock(&lock);
	if (stream->life == life)
		engine_stream_free(engine, stream->stream);
	pthread_mutex_unlock(&lock);
}

struct engine *local_stream_here(struct local_stream *stream, struct error *err)
{
	if (stream->life != life && local_stream_open(stream, err) < 0)
		return NULL;
	return engine;
}

struct engine *local_stream_engine(struct local_stream *stream, struct error *err)
{
	return stream->device ? stream->device : local_stream_here(stream, err);
}

/* ---- Jobs --------------------------------------------------------------------------------------------- */

/* Called within engine_reap: the thread that reaps ends the jobs of all waiting threads. */
static void on_done(struct engine_job *job)
{
	struct local_job *ended = (struct local_job *)job;

	ended->is_done = true;
	has_ended_others |= ended != reaping;
}

static void reap(const struct local_job *job)
{
	reaping = job;
	has_ended_others = false;
	engine_reap(engine);
	if (has_ended_others)
		wake(NULL);
}

static uint64_t count_wakes(void)
{
	uint64_t n;

	pthread_mutex_lock(&woken_lock);
	n = wakes;
	pthread_mutex_unlock(&woken_lock);
	return n;
}

static void await_wake(uint64_t since)
{
	pthread_mutex_lock(&woken_lock);
	while (wakes == since)
		pthread_cond_wait(&woken, &woken_lock);
	pthread_mutex_unlock(&woken_lock);
}

static bool calculates(const struct engine_job *job)
{
	return (job->moves ? job->moves : &job->move)->transform->conversion.is;
}

/* Submits the job. The caller must hold lock. */
static void submit(const struct local_stream *stream, struct engine_job *job)
{
	fenv_t own;

	if (!calculates(job)) {
		engine_submit(engine, stream->stream, job);
		return;
	}
	environment_take(&own);
	engine_submit(engine, stream->stream, job);
	fesetenv(&own);
}

/* Submits the job and waits until it has ended. */
static void run(const struct local_stream *stream, struct local_job *job)
{
	uint64_t since;

	pthread_mutex_lock(&lock);
	submit(stream, &job->job);
	for (;;) {
		since = count_wakes();
		reap(job);
		if (job->is_done)
			break;
		pthread_mutex_unlock(&lock);
		await_wake(since);
		pthread_mutex_lock(&lock);
	}
	if (job->is_counted && job->job.status == 0)
		engine_plan_count(job->job.move.plan, job->job.ns, job->job.is_measured);
	pthread_mutex_unlock(&lock);
}

int local_stream_count(struct local_stream *stream, struct engine_counts *ret, struct error *err)
{
	struct engine_counts now = { 0 };
	struct engine_counts *seen = &stream->counters->seen;
	int r = engine_counts_read(stream->device, stream->counters->address, stream->cuda_stream, &now, err);

	if (r < 0)
		return r;
	*ret = (struct engine_counts){ .passed = now.passed - seen->passed,
		                       .beyond = now.beyond - seen->beyond,
		                       .changed = now.changed - seen->changed };
	*seen = now;
	return 0;
}

int local_stream_wait(struct local_stream *stream, struct error *err)
{
	if (!stream->has_wait)
		return 0;
	stream->has_wait = false;
	return engine_word_wait(stream->device, stream->wait_address, stream->wait_value, stream->cuda_stream,
	                        err);
}

/* Launches a job into the program's stream and, if is_awaited, waits until it has ended. */
static int launch(struct local_stream *stream, struct engine_job *job, struct error *err)
{
	const uint64_t start_ns = stream->is_awaited ? clock_ns() : 0;
	struct engine_counts counts;
	int r = local_stream_wait(stream, err);

	if (r == 0)
		r = engine_launch(stream->device, job, stream->cuda_stream, stream->counters->address, err);
	if (r < 0 || !stream->is_awaited)
		return r;
	r = local_stream_count(stream, &counts, err);
	if (r < 0)
		return r;
	job->ns = clock_ns() - start_ns;
	if (job->blocks && !job->blocks->index) {
		job->blocks->passed = counts.passed;
		job->blocks->beyond = counts.beyond;
	}
	(job->moves ? job->moves : &job->move)->changed = counts.changed;
	return counts.changed ? STATUS_OUT_OF_RANGE : 0;
}

/* Cancellation is disabled, because a thread that is canceled while it waits would leave its job behind. */
int local_stream_run_here(struct local_stream *stream, struct local_job *job, struct error *err)
{
	int before;

	job->is_done = false;
	job->job.on_done = on_done;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	run(stream, job);
	pthread_setcancelstate(before, NULL);
	if (job->job.status)
		error_set(err, job->job.status, "%s", status_meaning(job->job.status));
	return job->job.status;
}

int local_stream_run(struct local_stream *stream, struct local_job *job, struct error *err)
{
	int before;

	if (!stream->device)
		return local_stream_run_here(stream, job, err);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	job->job.status = launch(stream, &job->job, err);
	pthread_setcancelstate(before, NULL);
	return job->job.status;
}

struct engine_plan_runs local_plan_runs(const struct engine_plan *plan)
{
	struct engine_plan_runs runs;

	pthread_mutex_lock(&lock);
	runs = engine_plan_runs(plan);
	pthread_mutex_unlock(&lock);
	return runs;
}

void local_engine_stats(struct engine_cache_stats *plans, struct engine_cache_stats *maps)
{
	*plans = *maps = (struct engine_cache_stats){ 0 };
	pthread_mutex_lock(&lock);
	if (engine) {
		engine_plan_stats(engine, plans);
		engine_cache_stats(engine, maps);
	}
	pthread_mutex_unlock(&lock);
}
