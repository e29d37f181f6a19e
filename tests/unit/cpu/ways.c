/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the benches: it opens an engine for each way and runs one job after the other on it. */
#include "ways.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "kernels/cpu/run/running_job.h"
#include "kernels/cpu/run/tuning.h"
#include "proto/clock.h"
#include "tests/support/plans.h"
#include "tests/support/tap.h"

#define MOST_FAILURES 10

const char *const way_names[WAYS] = { "inline",       "inline, staged",   "pieces",
	                              "pieces, cold", "pieces, streamed", "pieces, tiled" };

static bool finished;

void bench_die(const char *what)
{
	fprintf(stderr, "# %s\n", what);
	exit(1);
}

static void wake(void *arg)
{
	uint64_t one = 1;
	if (write(*(int *)arg, &one, sizeof(one)) < 0)
		bench_die("write");
}

static void on_done(struct engine_job *job)
{
	(void)job;
	finished = true;
}

static struct engine_memory *new_memory(struct engine *engine)
{
	struct engine_memory *memory;
	struct error err;
	struct engine_export made;
	if (engine_create(engine, REGION_KIND_MEMFD, BENCH_BYTES, &memory, &made, &err) < 0)
		bench_die(err.message);
	close(made.fd);
	return memory;
}

static void bench_open(struct bench *bench, const struct cpu_isa *isa, enum way way)
{
	struct error err;
	struct cpu_tuning tuning = { .isa = isa,
		                     .inline_bytes = way <= WAY_INLINE_STAGED ? INT64_MAX : 0,
		                     .fetch_bytes = way == WAY_INLINE ? INT64_MAX : 0,
		                     .piece_least = 256,
		                     .piece_most = 2048,
		                     .tiled_bytes = way % 2 ? 0 : 4096,
		                     .cold_ns = way == WAY_INLINE || way == WAY_PIECES ? UINT64_MAX : 0,
		                     .stream_bytes = way >= WAY_PIECES_STREAMED ? 0 : INT64_MAX };
	struct engine_options options = { .threads = 2, .wake = wake, .wake_arg = &bench->wakeups };
	cpu_tuning_force(&tuning);
	bench->isa = isa->name;
	bench->way = way;
	bench->wakeups = eventfd(0, EFD_CLOEXEC);
	if (engine_cpu_open(&bench->engine, &options, &err) < 0)
		bench_die(err.message);
	cpu_tuning_force(NULL);
	engine_owner_init(&bench->owner);
	bench->stream = engine_stream_new(bench->engine, &bench->owner);
	bench->dst = new_memory(bench->engine);
	bench->src = new_memory(bench->engine);
	bench->index = new_memory(bench->engine);
}

static void bench_close(struct bench *bench)
{
	engine_unmap(bench->engine, bench->dst);
	engine_unmap(bench->engine, bench->src);
	engine_unmap(bench->engine, bench->index);
	engine_stream_free(bench->engine, bench->stream);
	engine_owner_deinit(&bench->owner);
	engine_close(bench->engine);
	close(bench->wakeups);
}

size_t benches_open(struct bench bench[MOST_BENCHES])
{
	size_t n = 0;
	for (int level = 0; level < CPU_ISA_LEVELS; level++)
		for (int way = 0; way < WAYS && cpu_isa_get(level); way++)
			bench_open(&bench[n++], cpu_isa_get(level), way);
	return n;
}

void benches_close(struct bench *bench, size_t n)
{
	while (n > 0)
		bench_close(&bench[--n]);
}

int bench_run(struct bench *bench, struct engine_job *job)
{
	job->on_done = on_done;
	finished = false;
	engine_submit(bench->engine, bench->stream, job);
	while (!finished) {
		uint64_t count;
		if (read(bench->wakeups, &count, sizeof(count)) < 0)
			bench_die("read");
		engine_reap(bench->engine);
	}
	return job->status;
}

uint64_t bench_number(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);
	return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

void bench_try_all(bool (*try)(struct bench *bench, uint64_t seed), struct bench *bench, size_t n_benches,
                   uint64_t n, uint64_t seed, const char *what)
{
	uint64_t start_ns = clock_ns(), i = 0;
	int failed = 0;
	for (; i < n && failed < MOST_FAILURES; i++) {
		failed += !try(&bench[(seed + i) % n_benches], seed + i);
		plans_drop();
	}
	tap_case(failed == 0, "%s", what);
	tap_note("%" PRIu64 " cases from seed %" PRIu64 " in %.1f s, %d failed", i, seed,
	         (double)(clock_ns() - start_ns) / 1e9, failed);
}
