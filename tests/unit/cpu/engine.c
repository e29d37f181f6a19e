/* SPDX-License-Identifier: Apache-2.0 */
/* The engine as its owner sees it: order within a stream, streams side by side, owners' shares. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/cpu/tuning.h"
#include "rig.h"

Test(engine, says_what_it_is)
{
	struct engine_options options = { .threads = 3, .wake = wake, .wake_arg = &wakeups };
	struct error err;
	cr_assert_eq(engine_cpu_open(&engine, &options, &err), 0);
	cr_assert_str_eq(engine->name, "cpu");
	cr_assert_not_null(strstr(engine->device, ", 3 threads"), "%s", engine->device);
	cr_assert_not_null(strstr(engine->device, cpu_isa_best()->name), "%s", engine->device);
#ifdef __aarch64__
	cr_assert_str_eq(engine->device, "neon, 3 threads");
#endif
	cr_assert_eq(engine->facts.threads, 3);
	cr_assert_eq(engine->kind, REGION_KIND_MEMFD);
	engine_close(engine);
	options.threads = 0;
	cr_assert_eq(engine_cpu_open(&engine, &options, &err), 0);
	cr_assert_geq(engine->facts.threads, 1);
	engine_close(engine);
	engine_close(NULL);
}

struct order_row {
	char name[24];
	uint32_t threads;
	int64_t inline_bytes;
	int64_t n;
};

/* A chain of jobs of which each needs the one before: A to B transposed, B to C, C to A, ... */
ParameterizedTestParameters(engine, order_in_a_stream)
{
	static struct order_row rows[] = {
		{ "one thread", 1, 0, 100 },
		{ "four threads", 4, 0, 100 },
		{ "where submitted", 2, 1 << 20, 100 },
		{ "large", 3, 0, 700 },
		{ "one element", 2, 0, 1 },
		{ "no element", 2, 0, 0 },
	};
	return cr_make_param_array(struct order_row, rows, sizeof(rows) / sizeof(rows[0]));
}

ParameterizedTest(struct order_row *row, engine, order_in_a_stream)
{
	enum { JOBS = 61 };
	struct work *work = calloc(JOBS, sizeof(*work));
	struct engine_memory *memory[3];
	size_t count = (size_t)(row->n * row->n);
	open_engine(row->threads, row->inline_bytes);
	struct engine_stream *stream = engine_stream_new(engine, &owner);
	for (int i = 0; i < 3; i++)
		memory[i] = new_memory(count * 4 + 4);
	uint32_t *start = calloc(count + 1, 4);
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
		cr_assert(work[i].job.is_measured, "%s: job %d: no other stream was there", row->name, i);
	}
	const uint32_t *last = (const uint32_t *)data(memory[JOBS % 3]);
	for (int64_t r = 0; r < row->n; r++) /* 31 transposes */
		for (int64_t c = 0; c < row->n; c++)
			cr_assert_eq(last[r * row->n + c], start[c * row->n + r], "%s: [%ld, %ld]", row->name,
			             (long)r, (long)c);
	cr_assert_eq(((uint32_t *)data(memory[JOBS % 3]))[count], 0, "%s", row->name);
	engine_stream_free(engine, stream);
	for (int i = 0; i < 3; i++)
		engine_unmap(engine, memory[i]);
	close_engine();
	free(start);
	free(work);
}

/* Streams at once, each a chain of its own. */
Test(engine, many_streams)
{
	enum { STREAMS = 24, JOBS = 20, N = 90 };
	struct work *work = calloc(STREAMS * JOBS, sizeof(*work));
	struct engine_stream *stream[STREAMS];
	struct engine_memory *memory[STREAMS][2];
	open_engine(4, 0);
	for (int s = 0; s < STREAMS; s++) {
		stream[s] = engine_stream_new(engine, &owner);
		memory[s][0] = new_memory(N * N * 4);
		memory[s][1] = new_memory(N * N * 4);
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

/* With one thread, a small job submitted after a large one on another stream comes back first. */
Test(engine, streams_share)
{
	static struct work first, large, small;
	open_engine(1, 0);
	struct engine_stream *a = engine_stream_new(engine, &owner), *b = engine_stream_new(engine, &owner);
	struct engine_memory *dst = new_memory(2048 * 2048 * 4), *src = new_memory(2048 * 2048 * 4);
	struct engine_memory *other = new_memory(64 * 64 * 4);
	work_init(&large, 2048, true, dst, src);
	work_init(&small, 64, false, other, src);
	hold_thread(&first, a, other, src);
	engine_submit(engine, a, &large.job);
	engine_submit(engine, b, &small.job);
	atomic_store(&hold, false);
	wait_done(2);
	cr_assert_eq(done[0], &small.job);
	cr_assert_gt(large.job.ns, 0);
	cr_assert(first.job.is_measured);
	cr_assert_not(large.job.is_measured);
	cr_assert_not(small.job.is_measured);
	engine_stream_free(engine, a);
	engine_stream_free(engine, b);
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	engine_unmap(engine, other);
	close_engine();
}

/* With one thread, one owner's many streams are one share: who has one stream and comes last still has half.
 */
Test(engine, owners_share)
{
	enum { STREAMS = 50, N = 512 };
	static struct work held, flood[STREAMS], polite;
	struct engine_stream *streams[STREAMS];
	struct engine_owner other;
	open_engine(1, 0);
	engine_owner_init(&other);
	struct engine_stream *stream = engine_stream_new(engine, &other);
	struct engine_memory *dst = new_memory(N * N * 4), *src = new_memory(N * N * 4);
	struct engine_memory *other_dst = new_memory(N * N * 4);
	for (int i = 0; i < STREAMS; i++)
		streams[i] = engine_stream_new(engine, &owner);
	hold_thread(&held, streams[0], dst, src);
	for (int i = 0; i < STREAMS; i++) {
		work_init(&flood[i], N, true, dst, src);
		engine_submit(engine, streams[i], &flood[i].job);
	}
	work_init(&polite, N, true, other_dst, src);
	engine_submit(engine, stream, &polite.job);
	atomic_store(&hold, false);
	wait_done(STREAMS + 1);
	size_t before = 0;
	while (done[before] != &polite.job)
		before++;
	cr_assert_lt(before, STREAMS / 2, "%zu of the other owner's %d jobs came first", before, STREAMS);
	for (int i = 0; i < STREAMS; i++)
		engine_stream_free(engine, streams[i]);
	engine_stream_free(engine, stream);
	engine_owner_deinit(&other);
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	engine_unmap(engine, other_dst);
	close_engine();
}

Test(engine, an_owner_outlives_its_streams, .signal = SIGABRT)
{
	open_engine(1, 0);
	engine_stream_new(engine, &owner);
	engine_owner_deinit(&owner);
}
