/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the engine as its owner sees it: the times that it reports, and that an idle engine sleeps. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "rig.h"

Test(engine, refuses_a_device_that_is_not_there)
{
	struct engine_options options = { .device = "7" };
	struct error err;
	cr_assert_eq(engine_cuda_open(&engine, &options, &err), STATUS_NOT_FOUND);
	cr_assert_not_null(strstr(err.message, "device 7"), "%s", err.message);
}

/* ---- Time, and rest -------------------------------------------------------------------------------- */

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

/* The jobs of two streams overlap, unless this thread is kept from running between their submissions for as
 * long as a job takes; then they are submitted again. */
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

/* The engine sleeps with scratch memory, too, and gives that back to the device meanwhile. */
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
