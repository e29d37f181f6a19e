/* SPDX-License-Identifier: Apache-2.0 */
/* The engine as its owner sees it: what it is, every way between memories, order within a stream, owners. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "rig.h"
#include "tests/support/oracle.h"
#include "tests/support/tap.h"

Test(engine, says_what_it_is)
{
	open_engine(NULL);
	cr_assert_str_eq(engine->name, "cuda");
	cr_assert_str_eq(engine->facts.engine, "cuda");
	cr_assert(engine->facts.tma);
	cr_assert_gt(engine->facts.threads, 0);
	cr_assert_gt(engine->facts.copy.bytes_per_ns, 0);
	cr_assert_eq(engine->kind, REGION_KIND_CUDA_FD);
	cr_assert_str_eq(engine->device, "softgpu, sm_90, driver 13.0");
	cr_assert_eq(strncmp(engine->uuid, "GPU-", 4), 0, "%s", engine->uuid);
	cr_assert_not(engine->lost);
	close_engine();
	engine_close(NULL);
}

Test(engine, refuses_a_device_that_is_not_there)
{
	struct engine_options options = { .device = "7" };
	struct error err;
	cr_assert_eq(engine_cuda_open(&engine, &options, &err), STATUS_NOT_FOUND);
	cr_assert_not_null(strstr(err.message, "device 7"), "%s", err.message);
}

/* ---- Every way ------------------------------------------------------------------------------------------
 */

struct place_row {
	char name[32];
	enum region_kind dst, src;
	uint64_t scratch_bytes;
	long seeds; /* of the full length */
};

ParameterizedTestParameters(engine, random_transforms)
{
	static struct place_row rows[] = {
		{ "device to device", REGION_KIND_CUDA_FD, REGION_KIND_CUDA_IPC, 0, 2500 },
		{ "host to device", REGION_KIND_CUDA_IPC, REGION_KIND_MEMFD, 64 << 10, 2500 },
		{ "device to host", REGION_KIND_MEMFD, REGION_KIND_CUDA_FD, 64 << 10, 2500 },
		{ "host to host", REGION_KIND_MEMFD, REGION_KIND_MEMFD, 64 << 10, 4000 },
		{ "host to host, little scratch", REGION_KIND_MEMFD, REGION_KIND_MEMFD, 8 << 10, 2500 },
		{ "host to host, no scratch", REGION_KIND_MEMFD, REGION_KIND_MEMFD, 0, 1000 },
	};
	return cr_make_param_array(struct place_row, rows, sizeof rows / sizeof *rows);
}

ParameterizedTest(struct place_row *row, engine, random_transforms)
{
	struct cuda_limits limits = small_limits();
	struct work *work = calloc(1, sizeof *work);
	static char text[2000];
	limits.scratch_bytes = row->scratch_bytes;
	open_engine(&limits);
	struct engine_stream *stream = engine_stream_new(engine, &owner);
	uint64_t seeds = (uint64_t)tap_portion(row->seeds);
	for (uint64_t seed = 1; seed <= seeds; seed++) {
		struct oracle_case c;
		oracle_random_case(seed, &c);
		oracle_case_text(&c, text, sizeof text);
		cr_assert(oracle_case_prepare(&c));
		size_t dst_bytes = c.dst_size + 2 * ORACLE_GUARD, src_bytes = c.src_size + 2 * ORACLE_GUARD;
		struct engine_memory *dst = new_memory(row->dst, dst_bytes);
		struct engine_memory *src = new_memory(row->src, src_bytes);
		memcpy(data(dst), c.dst, dst_bytes);
		memcpy(data(src), c.src, src_bytes);
		work_init_spec(work, &c.spec, dst, ORACLE_GUARD + c.dst_offset, src,
		               ORACLE_GUARD + c.src_offset);
		n_done = 0;
		engine_submit(engine, stream, &work->job);
		wait_done(1);
		cr_assert_eq(work->job.status, 0, "%s: %d: %s", row->name, work->job.status, text);
		memcpy(c.dst, data(dst), dst_bytes);
		cr_assert(oracle_case_check(&c, text, sizeof text), "%s: seed %lu: %s", row->name,
		          (unsigned long)seed, text);
		engine_unmap(engine, dst);
		engine_unmap(engine, src);
		oracle_case_free(&c);
	}
	engine_stream_free(engine, stream);
	close_engine();
	free(work);
}

/* ---- Order ----------------------------------------------------------------------------------------------
 */

struct order_row {
	char name[24];
	enum region_kind kind[3];
	int64_t n;
};

/* A chain of jobs of which each needs the one before: A to B transposed, B to C, C to A, ... */
ParameterizedTestParameters(engine, order_in_a_stream)
{
	static struct order_row rows[] = {
		{ "device", { REGION_KIND_CUDA_FD, REGION_KIND_CUDA_IPC, REGION_KIND_CUDA_FD }, 64 },
		{ "host", { REGION_KIND_MEMFD, REGION_KIND_MEMFD, REGION_KIND_MEMFD }, 33 },
		{ "mixed", { REGION_KIND_CUDA_FD, REGION_KIND_MEMFD, REGION_KIND_CUDA_IPC }, 40 },
		{ "small host", { REGION_KIND_MEMFD, REGION_KIND_MEMFD, REGION_KIND_MEMFD }, 7 },
		{ "no element", { REGION_KIND_CUDA_FD, REGION_KIND_MEMFD, REGION_KIND_CUDA_FD }, 0 },
	};
	return cr_make_param_array(struct order_row, rows, sizeof rows / sizeof *rows);
}

ParameterizedTest(struct order_row *row, engine, order_in_a_stream)
{
	enum { JOBS = 25 };
	struct cuda_limits limits = small_limits();
	struct work *work = calloc(JOBS, sizeof *work);
	struct engine_memory *memory[3];
	size_t count = (size_t)(row->n * row->n);
	uint32_t *start = calloc(count + 1, 4);
	open_engine(&limits);
	struct engine_stream *stream = engine_stream_new(engine, &owner);
	for (int i = 0; i < 3; i++)
		memory[i] = new_memory(row->kind[i], count * 4 + 4);
	for (size_t i = 0; i < count; i++)
		start[i] = (uint32_t)i + 1;
	memcpy(data(memory[0]), start, count * 4);
	for (int i = 0; i < JOBS; i++) {
		work_init(&work[i], row->n, i % 2 == 0, memory[(i + 1) % 3], memory[i % 3]);
		engine_submit(engine, stream, &work[i].job);
	}
	wait_done(JOBS);
	for (int i = 0; i < JOBS; i++) {
		cr_assert_eq(done[i], &work[i].job, "%s: job %d came out of order", row->name, i);
		cr_assert_eq(work[i].job.status, 0, "%s: job %d", row->name, i);
	}
	const uint32_t *last = (const uint32_t *)data(memory[JOBS % 3]);
	for (int64_t r = 0; r < row->n; r++) /* 13 transposes */
		for (int64_t c = 0; c < row->n; c++)
			cr_assert_eq(last[r * row->n + c], start[c * row->n + r], "%s: [%ld, %ld]", row->name,
			             (long)r, (long)c);
	cr_assert_eq(last[count], 0, "%s", row->name);
	engine_stream_free(engine, stream);
	for (int i = 0; i < 3; i++)
		engine_unmap(engine, memory[i]);
	close_engine();
	free(start);
	free(work);
}

/* More streams than may be in flight at once, each a chain of its own, alternately on the device and the
 * host. */
Test(engine, many_streams)
{
	enum { STREAMS = 40, JOBS = 6, N = 20 };
	struct cuda_limits limits = small_limits();
	struct work *work = calloc(STREAMS * JOBS, sizeof *work);
	struct engine_stream *stream[STREAMS];
	struct engine_memory *memory[STREAMS][2];
	open_engine(&limits);
	for (int s = 0; s < STREAMS; s++) {
		stream[s] = engine_stream_new(engine, &owner);
		for (int i = 0; i < 2; i++)
			memory[s][i] = new_memory(s % 2 ? REGION_KIND_MEMFD : REGION_KIND_CUDA_FD, N * N * 4);
		for (int i = 0; i < N * N; i++)
			((uint32_t *)data(memory[s][0]))[i] = (uint32_t)(s * 100000 + i);
	}
	for (int j = 0; j < JOBS; j++)
		for (int s = 0; s < STREAMS; s++) {
			struct work *w = &work[s * JOBS + j];
			work_init(w, N, true, memory[s][(j + 1) % 2], memory[s][j % 2]);
			engine_submit(engine, stream[s], &w->job);
		}
	wait_done(STREAMS * JOBS);
	for (int s = 0; s < STREAMS; s++) {
		for (int i = 0; i < N * N; i++)
			cr_assert_eq(((uint32_t *)data(memory[s][JOBS % 2]))[i], (uint32_t)(s * 100000 + i),
			             "stream %d, element %d", s, i);
		engine_stream_free(engine, stream[s]);
		engine_unmap(engine, memory[s][0]);
		engine_unmap(engine, memory[s][1]);
	}
	close_engine();
	free(work);
}

struct share_row {
	char name[24];
	enum region_kind kind;
};

ParameterizedTestParameters(engine, owners_share)
{
	static struct share_row rows[] = { { "device", REGION_KIND_CUDA_FD }, { "host", REGION_KIND_MEMFD } };
	return cr_make_param_array(struct share_row, rows, sizeof rows / sizeof *rows);
}

/* One owner's many streams are one share: who has one stream and comes last does not wait for all of them. */
ParameterizedTest(struct share_row *row, engine, owners_share)
{
	enum { STREAMS = 60, N = 40 };
	struct cuda_limits limits = small_limits();
	struct work *work = calloc(STREAMS + 1, sizeof *work);
	struct engine_stream *streams[STREAMS];
	struct engine_owner other;
	setenv("SOFTGPU_SLOW_US", "3000", 1);
	open_engine(&limits);
	engine_owner_init(&other);
	struct engine_stream *stream = engine_stream_new(engine, &other);
	struct engine_memory *dst = new_memory(row->kind, N * N * 4), *src = new_memory(row->kind, N * N * 4);
	struct engine_memory *other_dst = new_memory(row->kind, N * N * 4);
	for (int i = 0; i < STREAMS; i++) {
		streams[i] = engine_stream_new(engine, &owner);
		work_init(&work[i], N, true, dst, src);
		engine_submit(engine, streams[i], &work[i].job);
	}
	work_init(&work[STREAMS], N, true, other_dst, src);
	engine_submit(engine, stream, &work[STREAMS].job);
	wait_done(STREAMS + 1);
	size_t before = 0;
	while (done[before] != &work[STREAMS].job)
		before++;
	cr_assert_lt(before, STREAMS / 2, "%s: %zu of the other owner's %d jobs came first", row->name,
	             before, STREAMS);
	for (int i = 0; i < STREAMS; i++)
		engine_stream_free(engine, streams[i]);
	engine_stream_free(engine, stream);
	engine_owner_deinit(&other);
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	engine_unmap(engine, other_dst);
	close_engine();
	free(work);
}

/* ---- Time, and rest --------------------------------------------------------------------------------------
 */

Test(engine, says_how_long_it_took)
{
	static struct work work;
	setenv("SOFTGPU_SLOW_US", "5000", 1);
	open_engine(NULL);
	struct engine_stream *stream = engine_stream_new(engine, &owner);
	struct engine_memory *dst = new_memory(REGION_KIND_CUDA_FD, 65536),
			     *src = new_memory(REGION_KIND_CUDA_FD, 65536);
	work_init(&work, 100, true, dst, src);
	engine_submit(engine, stream, &work.job);
	wait_done(1);
	cr_assert_geq(work.job.ns, 5000000);
	cr_assert_lt(work.job.ns, 60000000000);
	engine_stream_free(engine, stream);
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	close_engine();
}

struct measured_row {
	char name[40];
	enum region_kind dst, src;
	int streams;
	bool measured;
};

ParameterizedTestParameters(engine, says_whether_that_is_what_the_move_takes)
{
	static struct measured_row rows[] = {
		{ "one stream", REGION_KIND_CUDA_FD, REGION_KIND_CUDA_IPC, 1, true },
		{ "two streams", REGION_KIND_CUDA_FD, REGION_KIND_CUDA_IPC, 2, false },
		{ "from the host", REGION_KIND_CUDA_FD, REGION_KIND_MEMFD, 1, false },
		{ "to the host", REGION_KIND_MEMFD, REGION_KIND_CUDA_FD, 1, false },
	};
	return cr_make_param_array(struct measured_row, rows, sizeof rows / sizeof *rows);
}

/* The jobs of two streams meet unless this thread sleeps between their submissions for as long as one takes:
 * then they are submitted again. */
ParameterizedTest(struct measured_row *row, engine, says_whether_that_is_what_the_move_takes)
{
	enum { JOBS = 4, TRIES = 10 };
	static struct work work[JOBS];
	struct engine_stream *stream[2];
	size_t measured;
	setenv("SOFTGPU_SLOW_US", "5000", 1);
	open_engine(NULL);
	for (int i = 0; i < 2; i++)
		stream[i] = engine_stream_new(engine, &owner);
	struct engine_memory *dst = new_memory(row->dst, 65536), *src = new_memory(row->src, 65536);
	for (int i = 0; i < TRIES; i++) {
		measured = n_done = 0;
		for (int j = 0; j < JOBS; j++) {
			work_init(&work[j], 100, true, dst, src);
			engine_submit(engine, stream[j % row->streams], &work[j].job);
		}
		wait_done(JOBS);
		for (int j = 0; j < JOBS; j++)
			measured += work[j].job.is_measured;
		if (measured == (row->measured ? JOBS : 0))
			break;
	}
	cr_assert_eq(measured, row->measured ? JOBS : 0, "%s: %zu of %d", row->name, measured, JOBS);
	for (int i = 0; i < 2; i++)
		engine_stream_free(engine, stream[i]);
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	close_engine();
}

static double cpu_seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Also with scratch memory, which goes back to the device meanwhile. */
Test(engine, sleeps_when_idle)
{
	static struct work work;
	struct cuda_limits limits = small_limits();
	limits.scratch_idle_ns = 50000000;
	open_engine(&limits);
	struct engine_stream *stream = engine_stream_new(engine, &owner);
	struct engine_memory *dst = new_memory(REGION_KIND_MEMFD, 65536),
			     *src = new_memory(REGION_KIND_MEMFD, 65536);
	for (size_t round = 1; round <= 2; round++) {
		memset(data(src), (int)round, 65536);
		work_init(&work, 100, true, dst, src);
		engine_submit(engine, stream, &work.job);
		wait_done(round);
		cr_assert_eq(work.job.status, 0);
		cr_assert_eq(data(dst)[39999], round);
		usleep(150000);
		double before = cpu_seconds();
		usleep(200000);
		cr_assert_lt(cpu_seconds() - before, 0.01);
	}
	engine_stream_free(engine, stream);
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	close_engine();
}
