/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the times of in-flight jobs. Jobs that directly follow each other on a stream of the device share an
 * event: the end of one is the start of the next. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "kernels/cuda/driver/driver.h"
#include "proto/clock.h"
#include "rig.h"

enum { N = 64, BYTES = N * N * 4, JOBS = 4, ROUNDS = 50 };

static __typeof__(driver.cuEventRecord) record_event;
static __typeof__(driver.cuLaunchKernelEx) launch_kernel;
static int n_records, n_launches;

static CUresult count_record(CUevent event, CUstream stream)
{
	n_records++;
	return record_event(event, stream);
}

static CUresult count_launch(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
	n_launches++;
	return launch_kernel(config, function, params, extra);
}

static void open_counted(void)
{
	const struct cuda_limits limits = small_limits();
	struct error err;

	cr_assert_eq(driver_open(&err), 0, "%s", err.message);
	record_event = driver.cuEventRecord;
	driver.cuEventRecord = count_record;
	launch_kernel = driver.cuLaunchKernelEx;
	driver.cuLaunchKernelEx = count_launch;
	open_engine(&limits);
}

/* The jobs come in bursts, and the engine may launch the first of a burst before the others have come. */
Test(in_flight, those_that_follow_begin_with_the_end_of_the_one_before)
{
	static struct work work[ROUNDS * JOBS];
	uint64_t wall_ns = 0, ns = 0;

	open_counted();
	struct engine_stream *stream = engine_stream_new(engine, &owner);
	struct engine_memory *dst = new_memory(REGION_KIND_CUDA_FD, BYTES);
	struct engine_memory *src = new_memory(REGION_KIND_CUDA_FD, BYTES);

	n_records = n_launches = 0;
	for (size_t r = 0; r < ROUNDS; r++) {
		const uint64_t start = clock_ns();

		for (size_t i = 0; i < JOBS; i++) {
			work_init(&work[r * JOBS + i], N, true, dst, src);
			engine_submit(engine, stream, &work[r * JOBS + i].job);
		}
		wait_done((r + 1) * JOBS);
		wall_ns += clock_ns() - start;
	}
	for (int i = 0; i < ROUNDS * JOBS; i++) {
		cr_assert_eq(work[i].job.status, 0);
		cr_assert_gt(work[i].job.ns, 0, "job %d has no time", i);
		ns += work[i].job.ns;
	}
	cr_expect_leq(ns, wall_ns, "their times overlap");
	cr_expect_eq(n_launches, ROUNDS * JOBS);
	cr_expect_lt(n_records, 2 * ROUNDS * JOBS, "no job followed another");
	cr_expect_geq(n_records, ROUNDS * JOBS + ROUNDS);
	engine_stream_free(engine, stream);
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	close_engine();
}

/* Several engine streams share a stream of the device, and the engine may see their jobs end in any order. */
Test(in_flight, jobs_of_many_streams_have_their_own_times)
{
	enum { STREAMS = 40 };
	static struct work work[STREAMS * JOBS];
	struct engine_stream *stream[STREAMS];
	uint64_t start;

	open_counted();
	struct engine_memory *dst = new_memory(REGION_KIND_CUDA_FD, BYTES);
	struct engine_memory *src = new_memory(REGION_KIND_CUDA_FD, BYTES);

	for (int i = 0; i < STREAMS; i++)
		stream[i] = engine_stream_new(engine, &owner);
	start = clock_ns();
	for (int i = 0; i < STREAMS * JOBS; i++) {
		work_init(&work[i], N, true, dst, src);
		engine_submit(engine, stream[rand() % STREAMS], &work[i].job);
	}
	wait_done(STREAMS * JOBS);
	const uint64_t wall_ns = clock_ns() - start;

	for (int i = 0; i < STREAMS * JOBS; i++) {
		cr_assert_eq(work[i].job.status, 0);
		cr_assert_gt(work[i].job.ns, 0, "job %d has no time", i);
		cr_assert_lt(work[i].job.ns, wall_ns, "job %d has another one's time", i);
	}
	for (int i = 0; i < STREAMS; i++)
		engine_stream_free(engine, stream[i]);
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	close_engine();
}
