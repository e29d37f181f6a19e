/* SPDX-License-Identifier: Apache-2.0 */
/* Measures what it costs to run an engine in a separate process, compared with the same engine in this
 * process: the time from submitting a job to its end, one at a time, and jobs per second, many at a time.
 *
 * Usage: process [cpu|cuda [DEVICE]]
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "kernels/process/process.h"
#include "proto/clock.h"

#define BYTES    4096
#define MOST     (1 << 20)
#define WARM     2000
#define ROUNDS   5000
#define PAUSE_NS 40000 /* a client's pause between two requests */
#define DEEP     1000  /* jobs under way at once */
#define LAYOUTS  50    /* different layouts of the jobs */
#define RUN_NS   1000000000
#define DRIVE_NS 20000 /* as in the daemon */

static const struct engine_process_opener openers[] = {
	{ "cpu", engine_cpu_open },
#ifdef HAVE_CUDA
	{ "cuda", engine_cuda_open },
#endif
	{ NULL, NULL },
};

struct bench {
	struct engine *engine;
	struct engine_owner owner;
	struct engine_stream *stream;
	struct engine_memory *dst, *src;
	int wakeups;
	bool drives;
	uint64_t done;
};

struct work {
	struct engine_job job; /* must be the first member */
	struct bench *bench;
};

static struct transform transforms[LAYOUTS + 1]; /* the last one has MOST bytes */
static struct engine_plan *plans[LAYOUTS + 1];
static struct work work[DEEP];

static void die(const char *what)
{
	fprintf(stderr, "process: %s\n", what);
	exit(1);
}

static void wake(void *arg)
{
	const uint64_t one = 1;

	if (write(((struct bench *)arg)->wakeups, &one, sizeof one) < 0)
		die("no wake-up");
}

static void on_done(struct engine_job *job)
{
	if (job->status)
		die("a job failed");
	((struct work *)job)->bench->done++;
}

/* One iteration of the owner's event loop, like the daemon's: it does the engine's work, then sleeps. */
static void turn(struct bench *bench)
{
	struct pollfd fd = { .fd = bench->wakeups, .events = POLLIN };
	const uint64_t before = bench->done;
	uint64_t count;

	engine_reap(bench->engine);
	if (bench->done == before && engine_drive(bench->engine, DRIVE_NS)) {
		engine_reap(bench->engine);
		engine_drive(bench->engine, 0);
	}
	if (bench->done == before && poll(&fd, 1, 10000) != 1)
		die("no job came back");
	if (read(bench->wakeups, &count, sizeof count) < 0 && bench->done == before)
		die("no wake-up came");
}

static struct engine_memory *make(struct bench *bench)
{
	struct engine_memory *memory;
	struct engine_export made;
	struct error err;

	if (engine_create(bench->engine, bench->engine->kind, DEEP * BYTES + MOST, &memory, &made, &err) < 0)
		die(err.message);
	if (made.fd >= 0)
		close(made.fd);
	return memory;
}

/* Plans copies of BYTES bytes and slightly fewer, so that there are LAYOUTS layouts. */
static void plan_all(struct engine *engine)
{
	for (int64_t i = 0; i <= LAYOUTS; i++) {
		struct transform_spec spec = { .n_perm = -1, .n_before = -1, .n_after = -1 };
		const int64_t n = i < LAYOUTS ? BYTES - i * 16 : MOST;
		struct error err;

		tensor_layout_init(&spec.dst, DTYPE_UINT8, 1, &n, NULL, "dst", &err);
		tensor_layout_init(&spec.src, DTYPE_UINT8, 1, &n, NULL, "src", &err);
		if (transform_init(&transforms[i], &spec, &err) < 0 ||
		    engine_prepare(engine, &spec, plan_places(0, 0), &plans[i], &err) < 0)
			die(err.message);
	}
}

static void submit(struct bench *bench, uint32_t i, uint32_t layout)
{
	work[i].bench = bench;
	work[i].job = (struct engine_job){ .move = { .transform = &transforms[layout],
		                                     .plan = plans[layout],
		                                     .dst = bench->dst,
		                                     .src = bench->src,
		                                     .dst_offset = i * BYTES,
		                                     .src_offset = i * BYTES },
		                           .on_done = on_done };
	engine_submit(bench->engine, bench->stream, &work[i].job);
}

static int compare(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void measure_one_at_a_time(struct bench *bench, const char *name, uint32_t layout, uint64_t pause_ns)
{
	static uint64_t ns[ROUNDS];

	for (uint32_t i = 0; i < WARM + ROUNDS; i++) {
		const uint64_t pause_until_ns = clock_ns() + pause_ns;

		while (clock_ns() < pause_until_ns)
			continue;
		const uint64_t start_ns = clock_ns(), before = bench->done;

		submit(bench, 0, layout);
		while (bench->done == before)
			turn(bench);
		if (i >= WARM)
			ns[i - WARM] = clock_ns() - start_ns;
	}
	qsort(ns, ROUNDS, sizeof *ns, compare);
	printf("%-24s one at a time   %4" PRIu64
	       " KiB, %2.0f us apart   median %7.2f us   99 of 100 within %7.2f us\n",
	       name, transforms[layout].bytes / 2048, (double)pause_ns / 1e3, (double)ns[ROUNDS / 2] / 1e3,
	       (double)ns[ROUNDS / 100 * 99] / 1e3);
}

static void measure_many(struct bench *bench, const char *name)
{
	const uint64_t start_ns = clock_ns(), start = bench->done;
	uint64_t now_ns;

	do {
		const uint64_t before = bench->done;

		for (uint32_t i = 0; i < DEEP; i++)
			submit(bench, i, i % LAYOUTS);
		while (bench->done < before + DEEP)
			turn(bench);
		now_ns = clock_ns();
	} while (now_ns - start_ns < RUN_NS);
	printf("%-24s %4d at a time   %7.0f jobs a second\n", name, DEEP,
	       (double)(bench->done - start) * 1e9 / (double)(now_ns - start_ns));
}

static void measure(struct bench *bench, const char *name)
{
	engine_owner_init(&bench->owner);
	bench->stream = engine_stream_new(bench->engine, &bench->owner);
	bench->dst = make(bench);
	bench->src = make(bench);
	plan_all(bench->engine);
	measure_one_at_a_time(bench, name, 0, 0);
	measure_one_at_a_time(bench, name, 0, PAUSE_NS);
	measure_one_at_a_time(bench, name, LAYOUTS, 0);
	measure_one_at_a_time(bench, name, LAYOUTS, PAUSE_NS);
	measure_many(bench, name);
	engine_unmap(bench->engine, bench->dst);
	engine_unmap(bench->engine, bench->src);
	engine_stream_free(bench->engine, bench->stream);
	engine_owner_deinit(&bench->owner);
	for (int i = 0; i <= LAYOUTS; i++)
		engine_plan_unref(plans[i]);
	engine_close(bench->engine);
}

int main(int argc, char **argv)
{
	const char *engine = argc > 1 ? argv[1] : "cpu";
	const struct engine_process_opener *opener = openers;

	if (engine_process_is_child(argv))
		return engine_process_run(openers);
	while (opener->name && strcmp(opener->name, engine) != 0)
		opener++;
	if (!opener->name)
		die("no such engine in this build");
	for (int i = 0; i < 4; i++) {
		struct bench bench = { .wakeups = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .drives = i % 2 };
		const struct engine_options options = { .device = argc > 2 ? argv[2] : NULL,
			                                .tensor_maps = 64,
			                                .wake = wake,
			                                .wake_arg = &bench,
			                                .wake_fd = bench.wakeups,
			                                .drives = bench.drives };
		char name[40];
		struct error err;
		int r;

		snprintf(name, sizeof name, "%s, %s", i < 2 ? "here" : "in a process",
		         bench.drives ? "driven" : "woken");
		r = i < 2 ? opener->open(&bench.engine, &options, &err)
		          : engine_process_start(&bench.engine, engine, &options, &err);
		if (r == 0 && i >= 2)
			r = engine_process_await(bench.engine, &err);
		if (r < 0)
			die(err.message);
		measure(&bench, name);
		close(bench.wakeups);
	}
	return 0;
}
