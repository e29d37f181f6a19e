/* SPDX-License-Identifier: Apache-2.0 */
/* How jobs end that do not just run: cancelled, on memory that fails; and the engine with nothing to do. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/host/memory.h"
#include "rig.h"

/* The only thread is held, so that no job of the stream can begin before it is cancelled. */
Test(engine_end, cancel_before_it_runs)
{
	enum { JOBS = 8, N = 100 };
	struct work *work = calloc(JOBS + 2, sizeof(*work));
	open_engine(1, 0);
	struct engine_stream *stream = engine_stream_new(engine, &owner),
			     *other = engine_stream_new(engine, &owner);
	struct engine_memory *dst = new_memory(N * N * 4), *src = new_memory(N * N * 4);
	memset(data(src), 1, N * N * 4);
	struct engine_memory *aside = new_memory(N * N * 4);
	hold_thread(&work[JOBS], other, aside, src);
	for (int i = 0; i < JOBS; i++) {
		work_init(&work[i], N, true, dst, src);
		engine_submit(engine, stream, &work[i].job);
	}
	engine_stream_cancel(engine, stream);
	engine_stream_cancel(engine, other); /* has nothing */
	atomic_store(&hold, false);
	wait_done(JOBS);
	for (int i = 0; i < JOBS; i++) {
		cr_assert_eq(done[i], &work[i].job, "job %d", i);
		cr_assert_eq(work[i].job.status, STATUS_CANCELED, "job %d: %d", i, work[i].job.status);
	}
	for (int i = 0; i < N * N * 4; i++)
		cr_assert_eq(data(dst)[i], 0);

	/* The stream is as good as new. */
	work_init(&work[JOBS + 1], N, true, dst, src);
	engine_submit(engine, stream, &work[JOBS + 1].job);
	wait_done(JOBS + 1);
	cr_assert_eq(work[JOBS + 1].job.status, 0);
	cr_assert_eq(data(dst)[N * N * 4 - 1], 1);
	engine_stream_free(engine, stream);
	engine_stream_free(engine, other);
	engine_unmap(engine, aside);
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	close_engine();
	free(work);
}

/* Wherever the threads are when it comes: what had ended has ended well, the rest is cancelled, in order. */
Test(engine_end, cancel_while_it_runs)
{
	enum { JOBS = 8, N = 1000, ROUNDS = 20 };
	struct work *work = calloc(JOBS, sizeof(*work));
	open_engine(2, 0);
	struct engine_stream *stream = engine_stream_new(engine, &owner);
	struct engine_memory *dst = new_memory(N * N * 4), *src = new_memory(N * N * 4);
	for (int round = 0; round < ROUNDS; round++) {
		n_done = 0;
		for (int i = 0; i < JOBS; i++) {
			work_init(&work[i], N, true, dst, src);
			engine_submit(engine, stream, &work[i].job);
		}
		usleep((useconds_t)(round * 100));
		engine_stream_cancel(engine, stream);
		wait_done(JOBS);
		for (int i = 0; i < JOBS; i++) {
			int status = work[i].job.status;
			cr_assert_eq(done[i], &work[i].job, "round %d, job %d", round, i);
			cr_assert(status == STATUS_CANCELED ||
			              (status == 0 && (i == 0 || !work[i - 1].job.status)),
			          "round %d, job %d: %d", round, i, status);
		}
	}
	engine_stream_free(engine, stream);
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	close_engine();
	free(work);
}

struct fault_row {
	char name[24];
	int64_t inline_bytes;
	bool source;
};

ParameterizedTestParameters(engine_end, memory_that_fails)
{
	static struct fault_row rows[] = {
		{ "source, threads", 0, true },
		{ "destination, threads", 0, false },
		{ "source, inline", 1 << 20, true },
		{ "destination, inline", 1 << 20, false },
	};
	return cr_make_param_array(struct fault_row, rows, sizeof(rows) / sizeof(rows[0]));
}

ParameterizedTest(struct fault_row *row, engine_end, memory_that_fails)
{
	static struct work bad, good;
	enum { N = 256 };
	open_engine(2, row->inline_bytes);
	struct engine_stream *stream = engine_stream_new(engine, &owner);
	struct engine_memory *dst = new_memory(N * N * 4), *src = new_memory(N * N * 4);
	struct engine_memory *broken = new_memory(N * N * 4);
	break_memory(broken, host_memory(broken)->mapped.size / 2);
	work_init(&bad, N, true, row->source ? dst : broken, row->source ? broken : src);
	work_init(&good, N, true, dst, src);
	engine_submit(engine, stream, &bad.job);
	engine_submit(engine, stream, &good.job);
	wait_done(2);
	cr_assert_eq(bad.job.status, STATUS_DEVICE, "%s: %d", row->name, bad.job.status);
	cr_assert_eq(good.job.status, 0, "%s: %d", row->name, good.job.status);
	engine_stream_free(engine, stream);
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	engine_unmap(engine, broken);
	close_engine();
}

/* A read-only source, mapped at an odd offset of the memfd that is the destination too. */
Test(engine_end, read_only_source_in_the_same_memory)
{
	static struct work work;
	struct error err;
	struct engine_memory *dst, *src;
	struct engine_export made;
	open_engine(2, 0);
	cr_assert_eq(engine_create(engine, REGION_KIND_MEMFD, 100000, &dst, &made, &err), 0);
	struct engine_handle handle = {
		.kind = REGION_KIND_MEMFD, .fd = made.fd, .offset = 50001, .size = 40000
	};
	cr_assert_eq(engine_map(engine, &handle, &src, &err), 0, "%s", err.message);
	close(made.fd);
	cr_assert_eq(src->memory[1], dst->memory[1]);
	for (int i = 0; i < 40000; i++)
		data(dst)[50001 + i] = (char)(i * 7);
	work_init(&work, 100, false, dst, src);
	work.job.move.dst_offset = 3;
	struct engine_stream *stream = engine_stream_new(engine, &owner);
	engine_submit(engine, stream, &work.job);
	wait_done(1);
	cr_assert_arr_eq(data(dst) + 3, data(dst) + 50001, 40000);
	cr_assert_eq(data(dst)[2], 0);
	cr_assert_eq(data(dst)[40003], 0);
	engine_stream_free(engine, stream);
	engine_unmap(engine, src);
	engine_unmap(engine, dst);
	close_engine();
}

/* One wake for a queue of finished jobs; another only after it was reaped. */
Test(engine_end, wakes_once_a_queue)
{
	enum { JOBS = 10 };
	static struct work work[2 * JOBS];
	uint64_t count;
	open_engine(1, 1 << 20);
	struct engine_stream *stream = engine_stream_new(engine, &owner);
	struct engine_memory *dst = new_memory(4096), *src = new_memory(4096);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < JOBS; i++) {
			work_init(&work[round * JOBS + i], 8, true, dst, src);
			engine_submit(engine, stream, &work[round * JOBS + i].job);
		}
		cr_assert_eq(n_done, (size_t)round * JOBS, "on_done is called from reap alone");
		cr_assert_eq(read(wakeups, &count, sizeof(count)), (ssize_t)sizeof(count));
		cr_assert_eq(count, 1, "round %d: %d wakes", round, (int)count);
		engine_reap(engine);
		cr_assert_eq(n_done, (size_t)(round + 1) * JOBS);
	}
	engine_reap(engine);
	cr_assert_eq(n_done, 2 * JOBS);
	engine_stream_free(engine, stream);
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

Test(engine_end, sleeps_when_idle)
{
	static struct work work;
	open_engine(4, 0);
	struct engine_stream *stream = engine_stream_new(engine, &owner);
	struct engine_memory *dst = new_memory(1 << 20), *src = new_memory(1 << 20);
	work_init(&work, 512, true, dst, src);
	engine_submit(engine, stream, &work.job);
	wait_done(1);
	usleep(20000);
	double before = cpu_seconds();
	usleep(200000);
	cr_assert_lt(cpu_seconds() - before, 0.005);
	engine_stream_free(engine, stream);
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	close_engine();
}
