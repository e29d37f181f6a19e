/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA engine: implements engine_ops with the device, its memory and the scheduler's thread. */
#include "kernels/engine.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda_plan.h"
#include "kernels/cuda/driver/driver.h"
#include "kernels/cuda/strategy/plan.h"
#include "kernels/cuda/memory/memory.h"
#include "kernels/cuda/sched/scheduler.h"
#include "kernels/host/backing.h"

/* Maximum number of unanswered probes in a row that are tolerated while memory is being mapped or unmapped.
 * Pinning hundreds of gigabytes takes minutes, in which the driver may block all other calls. */
#define MOST_EXCUSED 30

struct cuda_engine {
	struct engine engine;
	struct device device;
	struct cuda_memories memories;
	struct cuda_plans plans;
	struct scheduler scheduler;
	atomic_uint mapping; /* calls under way that map or unmap memory */
	/* The owner's thread is, or is about to be, in the driver, where calls that map would block it. */
	atomic_bool driving;
	uint32_t excused; /* probes in a row that were not answered and were tolerated */
};

static const struct engine_ops cuda_ops;

static struct cuda_engine *cuda_engine(struct engine *engine)
{
	return (struct cuda_engine *)engine;
}

/* ---- Open and close --------------------------------------------------------------------------------- */

/* A device that is lost is not closed; it is released when the process ends. */
static void cuda_close(struct engine *base)
{
	struct cuda_engine *engine = cuda_engine(base);
	struct error ignored;
	enum cuda_health health = scheduler_stop(&engine->scheduler);

	if (health == CUDA_HEALTHY && device_enter(&engine->device, &ignored) == STATUS_DEVICE_LOST)
		health = CUDA_LOST;
	scheduler_deinit(&engine->scheduler, health);
	cuda_plans_deinit(&engine->plans);
	cuda_memories_deinit(&engine->memories, health);
	if (health == CUDA_HEALTHY)
		device_close(&engine->device);
	holes_deinit();
	free(engine);
}

static void describe(struct cuda_engine *engine)
{
	const struct device *device = &engine->device;

	engine->engine = (struct engine){
		.ops = &cuda_ops,
		.name = "cuda",
		.plans = &engine->plans.cache,
		.plans_by_phase = true,
		.multiprocessors = device->processors,
		.kind = REGION_KIND_CUDA_FD,
		.watches_holes = holes_can_watch(),
	};
	snprintf(engine->engine.device, sizeof engine->engine.device, "%.80s, sm_%d%d, driver %d.%d",
	         device->name, device->major, device->minor, device->driver_version / 1000,
	         device->driver_version % 1000 / 10);
	snprintf(engine->engine.device_name, sizeof engine->engine.device_name, "%.79s", device->name);
	engine->engine.memory_bytes = device->memory_bytes;
	snprintf(engine->engine.uuid, sizeof engine->engine.uuid, "%s", device->uuid);
}

int engine_cuda_open(struct engine **ret, const struct engine_options *options, struct error *err)
{
	struct cuda_engine *engine = calloc(1, sizeof *engine);
	int r;

	if (!engine)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	r = device_open(&engine->device, options->device, err);
	if (r < 0) {
		free(engine);
		return r;
	}
	holes_init();
	describe(engine);
	r = cuda_memories_init(&engine->memories, &engine->device, err);
	if (r == 0)
		r = cuda_plans_init(&engine->plans, &engine->device, options->plans, err);
	atomic_store(&engine->plans.tunes, options->tunes);
	if (r == 0)
		r = scheduler_init(&engine->scheduler, &engine->device, &engine->plans, options, err);
	if (r < 0) {
		cuda_close(&engine->engine);
		return r;
	}
	*ret = &engine->engine;
	return 0;
}

int engine_cuda_count(struct error *err)
{
	return device_count(err);
}

/* ---- Memory ----------------------------------------------------------------------------------------- */

static int enter(struct cuda_engine *engine, struct error *err)
{
	int r = queue_check(&engine->scheduler.queue, err);

	atomic_fetch_add(&engine->mapping, 1);
	while (atomic_load(&engine->driving))
		sched_yield();
	return r < 0 ? r : device_enter(&engine->device, err);
}

/* Tells the queue if a call has found the device lost, so that jobs end, too. */
static int leave(struct cuda_engine *engine, int r, const struct error *err)
{
	atomic_fetch_sub(&engine->mapping, 1);
	if (r == STATUS_DEVICE_LOST)
		queue_lose(&engine->scheduler.queue, err->message);
	return r;
}

static int cuda_map(struct engine *base, const struct engine_handle *handle, struct engine_memory **ret,
                    struct error *err)
{
	struct cuda_engine *engine = cuda_engine(base);
	int r = enter(engine, err);

	if (r == 0)
		r = cuda_memory_map(&engine->memories, handle, ret, err);
	return leave(engine, r, err);
}

static int cuda_create(struct engine *base, const struct engine_handle *wanted, struct engine_memory **ret,
                       struct engine_export *ret_export, struct error *err)
{
	struct cuda_engine *engine = cuda_engine(base);
	int r = enter(engine, err);

	if (r == 0)
		r = cuda_memory_create(&engine->memories, wanted, ret, ret_export, err);
	return leave(engine, r, err);
}

static int cuda_settle(struct engine *base, struct engine_memory *memory, const atomic_bool *unwanted,
                       struct error *err)
{
	struct cuda_engine *engine = cuda_engine(base);
	int r = enter(engine, err);

	if (r == 0)
		r = cuda_memory_settle(&engine->memories, memory, unwanted, err);
	return leave(engine, r, err);
}

static bool cuda_unmap(struct engine *base, struct engine_memory *memory)
{
	struct cuda_engine *engine = cuda_engine(base);
	struct error err;
	int r = enter(engine, &err);

	if (r == 0)
		r = cuda_memory_unmap(&engine->memories, memory, &err);
	else
		cuda_memory_leave(&engine->memories, memory);
	leave(engine, r, &err);
	return r != CUDA_MEMORY_LEFT;
}

/* ---- Streams and jobs ------------------------------------------------------------------------------- */

static struct engine_stream *cuda_stream_new(struct engine *engine, struct engine_owner *owner)
{
	return queue_stream_new(&cuda_engine(engine)->scheduler.queue, owner);
}

/* The owner's thread does not drive the engine while memory is being mapped, because mapping may hold the
 * driver's locks for minutes. Each side sets its own flag before it checks the other's. */
static bool cuda_drive(struct engine *base, uint64_t ns)
{
	struct cuda_engine *engine = cuda_engine(base);
	bool any;

	atomic_store(&engine->driving, true);
	any = scheduler_drive(&engine->scheduler, atomic_load(&engine->mapping) == 0 ? ns : 0);
	atomic_store(&engine->driving, false);
	return any;
}

static void cuda_reap(struct engine *engine)
{
	jobs_call_back(queue_reap(&cuda_engine(engine)->scheduler.queue, &engine->lost, engine->lost_why,
	                          sizeof engine->lost_why));
}

static int cuda_probe(struct engine *base, struct error *err)
{
	struct cuda_engine *engine = cuda_engine(base);
	int r = heartbeat_probe(&engine->scheduler.heartbeat, &engine->scheduler.queue, err);

	if (r == 0 || atomic_load(&engine->mapping) == 0)
		engine->excused = 0;
	else if (engine->excused++ < MOST_EXCUSED)
		return 0;
	return r;
}

static void cuda_cache_stats(struct engine *engine, struct engine_cache_stats *ret)
{
	map_cache_stats(&cuda_engine(engine)->scheduler.equipment.maps, ret);
}

static void cuda_tune(struct engine *engine, bool tunes)
{
	atomic_store(&cuda_engine(engine)->plans.tunes, tunes);
}

static int cuda_explain(struct engine *base, struct engine_plan *own, struct engine_explanation *ret,
                        struct error *err)
{
	const struct plan_facts *facts = &cuda_engine(base)->plans.facts;

	(void)err;
	plan_explain(ret, cuda_plan(own), &own->transform, facts);
	return 0;
}

static void cuda_link(struct engine *engine, const char *uuid, struct engine_link *ret)
{
	device_link(&cuda_engine(engine)->device, uuid, ret);
}

static const struct engine_ops cuda_ops = {
	.close = cuda_close,
	.map = cuda_map,
	.create = cuda_create,
	.settle = cuda_settle,
	.unmap = cuda_unmap,
	.stream_new = cuda_stream_new,
	.stream_free = queue_stream_free,
	.submit = queue_submit,
	.stream_cancel = queue_cancel,
	.cancel = queue_cancel_job,
	.reap = cuda_reap,
	.drive = cuda_drive,
	.probe = cuda_probe,
	.cache_stats = cuda_cache_stats,
	.link = cuda_link,
	.explain = cuda_explain,
	.tune = cuda_tune,
};
