/* SPDX-License-Identifier: Apache-2.0 */
/* The definitions here take precedence over those of shared libraries, for all callers. */
#include "doubles.h"

#include <stdlib.h>
#include <sys/queue.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <uv.h>

#include "kernels/cpu/run/tuning.h"

#define VISIBLE __attribute__((visibility("default")))

/* ---- Work --------------------------------------------------------------------------------------------- */

struct work {
	STAILQ_ENTRY(work) entry;
	uv_work_t *request;
};

static STAILQ_HEAD(, work) works = STAILQ_HEAD_INITIALIZER(works);

VISIBLE int uv_queue_work(uv_loop_t *loop, uv_work_t *request, uv_work_cb work_cb,
                          uv_after_work_cb after_work_cb)
{
	struct work *work = malloc(sizeof *work);

	if (!work)
		abort();
	request->loop = loop;
	request->work_cb = work_cb;
	request->after_work_cb = after_work_cb;
	work->request = request;
	STAILQ_INSERT_TAIL(&works, work, entry);
	return 0;
}

bool doubles_work(void)
{
	struct work *work = STAILQ_FIRST(&works);
	uv_work_t *request;

	if (!work)
		return false;
	STAILQ_REMOVE_HEAD(&works, entry);
	request = work->request;
	free(work);
	request->work_cb(request);
	if (request->after_work_cb)
		request->after_work_cb(request, 0);
	return true;
}

/* ---- Time --------------------------------------------------------------------------------------------- */

static __thread struct timespec now; /* the time that the thread sees; 0: the real time */

VISIBLE int clock_gettime(clockid_t clock, struct timespec *ret)
{
	if (now.tv_sec && (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE)) {
		*ret = now;
		return 0;
	}
	return (int)syscall(SYS_clock_gettime, clock, ret);
}

void doubles_pass(uint64_t ms)
{
	if (now.tv_sec == 0)
		clock_gettime(CLOCK_MONOTONIC, &now);
	now.tv_sec += (time_t)(ms / 1000);
	now.tv_nsec += (long)(ms % 1000) * 1000000;
	if (now.tv_nsec >= 1000000000) {
		now.tv_nsec -= 1000000000;
		now.tv_sec++;
	}
}

/* ---- Jobs --------------------------------------------------------------------------------------------- */

struct held {
	STAILQ_ENTRY(held) entry;
	struct engine_stream *stream;
	struct engine_job *job;
};

STAILQ_HEAD(held_queue, held);

static struct {
	struct engine engine;
	struct engine *cpu;
	struct engine_options options;
	bool hold;
	struct held_queue waiting;
	struct held_queue canceled;
} twin;

void doubles_hold_jobs(bool hold)
{
	twin.hold = hold;
}

bool doubles_job(void)
{
	struct held *held = STAILQ_FIRST(&twin.waiting);

	if (!held)
		return false;
	STAILQ_REMOVE_HEAD(&twin.waiting, entry);
	engine_submit(twin.cpu, held->stream, held->job);
	free(held);
	return true;
}

static void twin_submit(struct engine_stream *stream, struct engine_job *job)
{
	struct held *held = twin.hold || !STAILQ_EMPTY(&twin.waiting) ? malloc(sizeof *held) : NULL;

	if (!held) {
		engine_submit(twin.cpu, stream, job);
		return;
	}
	*held = (struct held){ .stream = stream, .job = job };
	job->status = 0;
	STAILQ_INSERT_TAIL(&twin.waiting, held, entry);
}

static void twin_cancel(struct engine_stream *stream)
{
	struct held_queue waiting = STAILQ_HEAD_INITIALIZER(waiting);
	struct held *held;

	STAILQ_CONCAT(&waiting, &twin.waiting);
	while ((held = STAILQ_FIRST(&waiting))) {
		STAILQ_REMOVE_HEAD(&waiting, entry);
		if (held->stream == stream) {
			held->job->status = STATUS_CANCELED;
			STAILQ_INSERT_TAIL(&twin.canceled, held, entry);
			twin.options.wake(twin.options.wake_arg);
		} else {
			STAILQ_INSERT_TAIL(&twin.waiting, held, entry);
		}
	}
	engine_stream_cancel(twin.cpu, stream);
}

static bool twin_cancel_job(struct engine_stream *stream, struct engine_job *job)
{
	struct held *held;

	STAILQ_FOREACH(held, &twin.waiting, entry)
		if (held->job == job) {
			STAILQ_REMOVE(&twin.waiting, held, held, entry);
			job->status = STATUS_CANCELED;
			STAILQ_INSERT_TAIL(&twin.canceled, held, entry);
			twin.options.wake(twin.options.wake_arg);
			return true;
		}
	return engine_cancel(twin.cpu, stream, job);
}

static void twin_reap(struct engine *engine)
{
	struct held *held;

	(void)engine;
	engine_reap(twin.cpu);
	while ((held = STAILQ_FIRST(&twin.canceled))) {
		struct engine_job *job = held->job;

		STAILQ_REMOVE_HEAD(&twin.canceled, entry);
		free(held);
		job->on_done(job);
	}
}

static void twin_close(struct engine *engine)
{
	(void)engine;
	engine_close(twin.cpu);
}

static int twin_map(struct engine *engine, const struct engine_handle *handle, struct engine_memory **ret,
                    struct error *err)
{
	(void)engine;
	return engine_map(twin.cpu, handle, ret, err);
}

static int twin_create(struct engine *engine, const struct engine_handle *wanted, struct engine_memory **ret,
                       struct engine_export *ret_export, struct error *err)
{
	(void)engine;
	return engine_make(twin.cpu, wanted, ret, ret_export, err);
}

static bool twin_unmap(struct engine *engine, struct engine_memory *memory)
{
	(void)engine;
	return engine_unmap_step(twin.cpu, memory);
}

static struct engine_stream *twin_stream_new(struct engine *engine, struct engine_owner *owner)
{
	(void)engine;
	return engine_stream_new(twin.cpu, owner);
}

static void twin_stream_free(struct engine_stream *stream)
{
	engine_stream_free(twin.cpu, stream);
}

static int twin_probe(struct engine *engine, struct error *err)
{
	(void)engine;
	return engine_probe(twin.cpu, err);
}

/* Called by a chore, on its own thread. */
static int twin_explain(struct engine *engine, struct engine_plan *plan, struct engine_explanation *ret,
                        struct error *err)
{
	(void)engine;
	return engine_explain(twin.cpu, plan, ret, err);
}

int doubles_engine_open(struct engine **ret, const struct engine_options *options, struct error *err)
{
	static const struct engine_ops ops = {
		.close = twin_close,
		.map = twin_map,
		.create = twin_create,
		.unmap = twin_unmap,
		.stream_new = twin_stream_new,
		.stream_free = twin_stream_free,
		.submit = twin_submit,
		.stream_cancel = twin_cancel,
		.cancel = twin_cancel_job,
		.reap = twin_reap,
		.probe = twin_probe,
		.explain = twin_explain,
	};
	struct cpu_tuning tuning = cpu_tuning_get();
	int r;

	tuning.inline_bytes = INT64_MAX;
	cpu_tuning_force(&tuning);
	r = engine_cpu_open(&twin.cpu, options, err);
	cpu_tuning_force(NULL);
	if (r < 0)
		return r;
	twin.engine = *twin.cpu;
	twin.engine.ops = &ops;
	twin.options = *options;
	STAILQ_INIT(&twin.waiting);
	STAILQ_INIT(&twin.canceled);
	*ret = &twin.engine;
	return 0;
}
