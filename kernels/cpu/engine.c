/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU engine: its engine_ops for memory, streams and probes. Its threads are those of crews: one crew
 * that all users share, and one for each owner whose memory may stall (crew.h). */
#include "kernels/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/cpu/run/crew.h"
#include "kernels/host/fault.h"
#include "kernels/host/backing.h"
#include "kernels/host/memory.h"
#include "kernels/host/threads.h"

struct cpu_engine {
	struct engine engine;
	struct crew crew;
	struct owns owns;
	struct plan_cache plans;
	atomic_llong room; /* bytes left for plans of tiles, out of CPU_KEPT_BYTES */
	uint32_t threads;
	bool is_guest;
	struct host_memory own; /* all memory of the process; set only if the engine is a guest */
};

static const struct engine_ops cpu_ops;

static struct cpu_engine *cpu_engine(struct engine *engine)
{
	return (struct cpu_engine *)engine;
}

/* ---- Open and close --------------------------------------------------------------------------------- */

/* Sets up what clients' files need in this process: a SIGBUS handler, and watches for holes. A guest needs
 * neither. */
static int host_init(bool is_guest, struct error *err)
{
	int r = is_guest ? 0 : fault_init();

	if (r < 0)
		return error_set(err, STATUS_INTERNAL, "SIGBUS cannot be handled: %s", strerror(-r));
	if (!is_guest)
		holes_init();
	return 0;
}

static void host_deinit(bool is_guest)
{
	if (is_guest)
		return;
	holes_deinit();
	fault_deinit();
}

static void cpu_close(struct engine *base)
{
	struct cpu_engine *engine = cpu_engine(base);

	owns_deinit(&engine->owns);
	crew_close(&engine->crew);
	crew_deinit(&engine->crew);
	plan_cache_deinit(&engine->plans);
	host_deinit(engine->is_guest);
	free(base);
}

int engine_cpu_open(struct engine **ret, const struct engine_options *options, struct error *err)
{
	uint32_t threads = options->threads ? options->threads : threads_default();
	struct cpu_engine *engine = calloc(1, sizeof(*engine));
	if (!engine)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	int r = host_init(options->is_guest, err);
	if (r < 0) {
		free(engine);
		return r;
	}
	atomic_init(&engine->room, CPU_KEPT_BYTES);
	r = plan_cache_init(&engine->plans, options->plans, &cpu_plan_ops, &engine->room);
	if (r < 0)
		error_set(err, r, "out of memory");
	else
		r = crew_init(&engine->crew, options, threads, false, err);
	if (r < 0) {
		plan_cache_deinit(&engine->plans);
		host_deinit(options->is_guest);
		free(engine);
		return r;
	}
	engine->threads = threads;
	engine->is_guest = options->is_guest;
	owns_init(&engine->owns, options, threads);
	engine->engine = (struct engine){
		.ops = &cpu_ops,
		.name = "cpu",
		.plans = &engine->plans,
		.kind = REGION_KIND_MEMFD,
		.watches_holes = !options->is_guest && holes_can_watch(),
	};
	if (options->is_guest) {
		host_memory_init_own(&engine->own);
		engine->engine.own = &engine->own.base;
	}
	snprintf(engine->engine.device, sizeof(engine->engine.device), "%s, %u thread%s",
	         engine->crew.streams.tuning.isa->name, threads, threads == 1 ? "" : "s");
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

static struct engine_stream *cpu_stream_new(struct engine *base, struct engine_owner *owner)
{
	struct cpu_engine *engine = cpu_engine(base);
	struct engine_stream *stream = stream_new(&engine->crew.streams, owner);

	if (stream)
		stream->owns = &engine->owns;
	return stream;
}

static void cpu_stream_free(struct engine_stream *stream)
{
	owns_stream_free(stream->owns, stream);
}

static void cpu_submit(struct engine_stream *stream, struct engine_job *job)
{
	owns_submit(stream->owns, stream, job);
}

static void cpu_stream_cancel(struct engine_stream *stream)
{
	owns_cancel_held(stream);
	stream_cancel(stream);
}

static bool cpu_cancel(struct engine_stream *stream, struct engine_job *job)
{
	return owns_cancel_held_job(stream, job) || stream_cancel_job(stream, job);
}

static void end_all(struct owns *owns, struct engine_job *job)
{
	while (job) {
		struct engine_job *next = job->next;
		owns_on_reaped(owns, job->stream);
		job->on_done(job);
		job = next;
	}
}

static void cpu_reap(struct engine *base)
{
	struct cpu_engine *engine = cpu_engine(base);

	end_all(&engine->owns, streams_reap(&engine->crew.streams));
	end_all(&engine->owns, owns_reap(&engine->owns));
}

/* The crews of untrusted owners are not probed: if one is silent, only its owner suffers, and the rest of the
 * engine works. */
static int cpu_probe(struct engine *base, struct error *err)
{
	return crew_probe(&cpu_engine(base)->crew, err);
}

static void cpu_note_stuck(struct engine *base)
{
	owns_note_stuck(&cpu_engine(base)->owns);
}

/* ---- Plans ------------------------------------------------------------------------------------------ */

static int explain(struct engine *base, struct engine_plan *own, struct engine_explanation *ret,
                   struct error *err)
{
	(void)base;
	(void)err;
	cpu_explain(ret, &own->transform, plan_places_align(own->places));
	return 0;
}

static const struct engine_ops cpu_ops = {
	.explain = explain,
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
	.probe = cpu_probe,
	.note_stuck = cpu_note_stuck,
};
