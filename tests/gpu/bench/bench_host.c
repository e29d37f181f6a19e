/* SPDX-License-Identifier: Apache-2.0 */
/* Measures traffic between host and device by the engine, one job at a time. For comparison, "before"
 * measures lists of blocks with the kernel that accesses host memory in place, and a transpose whose source
 * is copied as a whole first.
 *
 *   bench_host [RUNS [ONE-IN [THREADS [SLOTS [SLOT-KIB]]]]]
 *
 * RUNS is 7 by default. ONE-IN reduces the bytes for trials. The others default to the engine's values, as
 * does 0.
 *
 * The figures are GB/s of one direction, by the medians of the engine's own times and of the host's clock
 * from submission to completion. Every row is checked once; a wrong byte ends the program with 1.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "kernels/cuda/memory/memory.h"
#include "kernels/cuda/stage/jobs.h"
#include "kernels/engine.h"
#include "proto/clock.h"
#include "tests/gpu/rig.h"
#include "tests/support/plans.h"

#define MOST_RUNS 101
#define ROOM      (UINT64_C(1) << 30)

enum what { GATHER, SCATTER, COPY, TRANSPOSE };
enum place { DEVICE, HOST };

static const struct row {
	enum what what;
	enum place dst, src;
	uint32_t n, bytes; /* blocks of a list, and bytes of each */
	/* Permutes [16, 8, 128] to [8, 16, 128] elements of 2 bytes, repeated to fill the block. */
	bool permuted;
} rows[] = {
	{ GATHER, DEVICE, HOST, 8192, 4 << 10, false },
	{ GATHER, DEVICE, HOST, 8192, 16 << 10, false },
	{ GATHER, DEVICE, HOST, 8192, 64 << 10, false },
	{ GATHER, DEVICE, HOST, 4096, 32 << 10, true },
	{ SCATTER, DEVICE, HOST, 8192, 16 << 10, false },
	{ SCATTER, HOST, DEVICE, 8192, 4 << 10, false },
	{ SCATTER, HOST, DEVICE, 8192, 16 << 10, false },
	{ SCATTER, HOST, DEVICE, 8192, 64 << 10, false },
	{ GATHER, HOST, DEVICE, 8192, 16 << 10, false },
	{ SCATTER, HOST, DEVICE, 4096, 32 << 10, true },
	{ GATHER, HOST, HOST, 8192, 16 << 10, false },
	{ GATHER, DEVICE, HOST, 64, 16 << 10, false },
	{ GATHER, DEVICE, HOST, 256, 4 << 10, false },
	{ COPY, DEVICE, HOST, 0, 0, false },
	{ COPY, HOST, DEVICE, 0, 0, false },
	{ COPY, HOST, HOST, 0, 0, false },
	{ TRANSPOSE, DEVICE, HOST, 0, 0, false },
	{ TRANSPOSE, HOST, DEVICE, 0, 0, false },
	{ TRANSPOSE, HOST, HOST, 0, 0, false },
};

static struct engine *engine;
static struct engine_owner owner;
static struct engine_stream *stream;
static struct engine_memory *to[2], *from[2]; /* by index of the place */
static char *expected, *got;
static uint32_t one_in = 1;
static uint64_t room;
static int wakeups;
static bool is_done;

/* ---- The engine
 * ------------------------------------------------------------------------------------------ */

static void wake(void *arg)
{
	const uint64_t one = 1;

	(void)arg;
	if (write(wakeups, &one, sizeof one) != sizeof one)
		rig_die("the eventfd is full");
}

static void on_done(struct engine_job *job)
{
	(void)job;
	is_done = true;
}

static void run(struct engine_job *job)
{
	struct pollfd fd = { .fd = wakeups, .events = POLLIN };
	uint64_t count;

	is_done = false;
	engine_submit(engine, stream, job);
	while (!is_done) {
		if (poll(&fd, 1, 60000) != 1 || read(wakeups, &count, sizeof count) != sizeof count)
			rig_die("a job did not come back");
		engine_reap(engine);
	}
	if (job->status)
		rig_die("a job ended with %d", job->status);
}

static struct engine_memory *new_memory(enum place place)
{
	struct engine_memory *memory;
	struct engine_export made;
	struct error err;

	if (engine_create(engine, place == HOST ? REGION_KIND_MEMFD : REGION_KIND_CUDA_FD, room, &memory,
	                  &made, &err) < 0)
		rig_die("%s", err.message);
	if (made.fd >= 0)
		close(made.fd);
	return memory;
}

static void move_all(uint64_t dst, uint64_t src)
{
	rig_call(cuMemcpyAsync, (dst, src, room, NULL));
	rig_call(cuStreamSynchronize, (NULL));
}

static void open_all(const struct cuda_limits *limits)
{
	const struct engine_options options = { .tensor_maps = 64, .wake = wake };
	struct error err;

	cuda_limits_force(limits);
	if (engine_cuda_open(&engine, &options, &err) < 0)
		rig_die("%s", err.message);
	engine_owner_init(&owner);
	stream = engine_stream_new(engine, &owner);
	for (enum place place = DEVICE; place <= HOST; place++) {
		to[place] = new_memory(place);
		from[place] = new_memory(place);
	}
	for (uint64_t i = 0; i < room; i += 8)
		memcpy(cuda_memory(from[HOST])->data + i, &(uint64_t){ i * 0x9e3779b97f4a7c15 }, 8);
	move_all(cuda_memory(from[DEVICE])->address, (uint64_t)cuda_memory(from[HOST])->data);
}

static void close_all(void)
{
	for (enum place place = DEVICE; place <= HOST; place++) {
		engine_unmap(engine, to[place]);
		engine_unmap(engine, from[place]);
	}
	engine_stream_free(engine, stream);
	plans_drop();
	engine_close(engine);
}

/* ---- Rows
 * ------------------------------------------------------------------------------------------------ */

struct work {
	struct engine_job job;
	struct transform transform;
	struct engine_blocks blocks;
	int32_t index[8192];
	int64_t side;   /* side of a transpose */
	uint64_t bytes; /* bytes moved one way */
};

static void set_spec(struct transform_spec *spec, int rank, const int64_t *shape, const int64_t *perm,
                     enum dtype dtype)
{
	int64_t made[4];
	struct error err;

	*spec = (struct transform_spec){ .n_perm = rank, .n_before = -1, .n_after = -1 };
	for (int d = 0; d < rank; d++) {
		spec->perm[d] = perm[d];
		made[d] = shape[perm[d]];
	}
	tensor_layout_init(&spec->src, dtype, rank, shape, NULL, "src", &err);
	tensor_layout_init(&spec->dst, dtype, rank, made, NULL, "dst", &err);
}

/* Lists all blocks once, in an order that jumps. */
static void set_list(struct work *work, const struct row *row)
{
	const uint32_t n = row->n / one_in > 0 ? row->n / one_in : 1;

	for (uint32_t i = 0; i < n; i++)
		work->index[i] = (int32_t)((uint64_t)i * 2654435761 % n);
	work->blocks = (struct engine_blocks){ .n = n,
		                               .layers = 1,
		                               .scatter = row->what == SCATTER,
		                               .index_bytes = 4,
		                               .limit = n,
		                               .index = work->index,
		                               .dst.step = row->bytes,
		                               .src.step = row->bytes };
	work->job.blocks = &work->blocks;
	work->bytes = (uint64_t)n * row->bytes;
}

static void work_init(struct work *work, const struct row *row)
{
	const bool list = row->what == GATHER || row->what == SCATTER;
	struct transform_spec spec;
	struct error err;

	work->side = 1;
	while (work->side * work->side * 16 <= (int64_t)room)
		work->side *= 2;
	if (row->permuted)
		set_spec(&spec, 4, (int64_t[]){ row->bytes / (32 << 10), 16, 8, 128 },
		         (int64_t[]){ 0, 2, 1, 3 }, DTYPE_INT16);
	else if (list)
		set_spec(&spec, 1, (int64_t[]){ row->bytes }, (int64_t[]){ 0 }, DTYPE_INT8);
	else if (row->what == COPY)
		set_spec(&spec, 1, (int64_t[]){ (int64_t)room }, (int64_t[]){ 0 }, DTYPE_INT8);
	else
		set_spec(&spec, 2, (int64_t[]){ work->side, work->side }, (int64_t[]){ 1, 0 }, DTYPE_FLOAT32);
	if (transform_init(&work->transform, &spec, &err) < 0)
		rig_die("%s", err.message);
	work->job = (struct engine_job){
		.on_done = on_done,
		.move = { .transform = &work->transform, .dst = to[row->dst], .src = from[row->src] }
	};
	work->bytes = (uint64_t)work->transform.count * work->transform.element;
	if (list)
		set_list(work, row);
	work->job.move.plan = list ? plan_for_list(engine, &work->transform, &work->blocks, 0, 0)
	                           : plan_for(engine, &work->transform, 0, 0);
}

static void expect_block(const struct work *work, const struct row *row, char *dst, const char *src)
{
	if (!row->permuted) {
		memcpy(dst, src, row->bytes);
		return;
	}
	for (uint32_t i = 0; i < row->bytes / (32 << 10); i++, dst += 32 << 10, src += 32 << 10)
		for (int b = 0; b < 8; b++)
			for (int a = 0; a < 16; a++)
				memcpy(dst + (b * 16 + a) * 256, src + (a * 8 + b) * 256, 256);
	(void)work;
}

static void expect(const struct work *work, const struct row *row)
{
	const char *src = cuda_memory(from[HOST])->data;

	memset(expected, 0xa5, room);
	if (row->what == COPY)
		memcpy(expected, src, room);
	for (uint64_t i = 0; work->job.blocks && i < work->blocks.n; i++) {
		const uint64_t named = (uint64_t)work->index[i], dst = row->what == SCATTER ? named : i,
			       of = row->what == SCATTER ? i : named;

		expect_block(work, row, expected + dst * row->bytes, src + of * row->bytes);
	}
	for (int64_t i = 0; row->what == TRANSPOSE && i < work->side; i++)
		for (int64_t j = 0; j < work->side; j++)
			((float *)expected)[i * work->side + j] = ((const float *)src)[j * work->side + i];
}

static void check(struct work *work, const struct row *row)
{
	const uint64_t dst = cuda_memory(to[row->dst])->address;

	memset(got, 0xa5, room);
	move_all(dst, (uint64_t)got);
	run(&work->job);
	move_all((uint64_t)got, dst);
	expect(work, row);
	if (memcmp(got, expected, room) != 0)
		rig_die("wrong bytes");
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void run_row(const struct row *row, int runs, const char *way)
{
	static const char *const whats[] = { "gather", "scatter", "copy", "transpose" }, *const places[] = {
		"device", "host"
	};
	static struct work work;
	double own[MOST_RUNS], wall[MOST_RUNS];

	work_init(&work, row);
	check(&work, row);
	for (int i = 0; i < runs; i++) {
		const uint64_t start = clock_ns();

		run(&work.job);
		wall[i] = (double)(clock_ns() - start);
		own[i] = (double)work.job.ns;
	}
	qsort(own, (size_t)runs, sizeof *own, by_value);
	qsort(wall, (size_t)runs, sizeof *wall, by_value);
	printf("%-7s %-9s %-6s to %-6s %5u x %3u KiB%s  %7.1f MiB %6.1f GB/s %6.1f by the clock\n", way,
	       whats[row->what], places[row->src], places[row->dst], row->n, row->bytes >> 10,
	       row->permuted ? " permuted" : "", (double)work.bytes / (1 << 20),
	       (double)work.bytes / own[runs / 2], (double)work.bytes / wall[runs / 2]);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	const int runs = argc > 1 ? atoi(argv[1]) : 7;
	struct cuda_limits limits = cuda_limits_get(UINT64_C(1) << 37);
	const uint32_t slots = limits.pack_slots;

	if (runs < 1 || runs > MOST_RUNS)
		rig_die("from 1 to %d runs", MOST_RUNS);
	if (argc > 2)
		one_in = (uint32_t)atoi(argv[2]);
	if (argc > 3 && atoi(argv[3]) > 0)
		limits.pack_threads = (uint32_t)atoi(argv[3]);
	limits.pack_alone = true;
	limits.pack_slots = argc > 4 && atoi(argv[4]) > 0 ? (uint32_t)atoi(argv[4]) : slots;
	if (argc > 5 && atoi(argv[5]) > 0)
		limits.pack_slot_bytes = (uint64_t)atoi(argv[5]) << 10;
	room = ROOM / one_in;
	expected = malloc(room);
	got = malloc(room);
	wakeups = eventfd(0, EFD_CLOEXEC);
	if (!expected || !got || wakeups < 0)
		rig_die("out of memory");
	printf("%u threads, %u slots of %lu KiB\n", limits.pack_threads, limits.pack_slots,
	       (unsigned long)(limits.pack_slot_bytes >> 10));
	open_all(&limits);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		run_row(&rows[i], runs, "now");
	close_all();
	limits.pack_slots = 0;
	limits.row_bytes = 0;
	open_all(&limits);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (rows[i].n > 0 || (rows[i].what == TRANSPOSE && rows[i].dst == rows[i].src))
			run_row(&rows[i], runs, "before");
	close_all();
	free(expected);
	free(got);
	return 0;
}
