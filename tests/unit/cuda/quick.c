/* SPDX-License-Identifier: Apache-2.0 */
/* Tests quick jobs: which of them the device times, and the times that are reported for the others. */
#include "kernels/cuda/sched/flight.h"

#include <stdlib.h>

#include <criterion/criterion.h>

#include "rig.h"

TestSuite(quick, .timeout = 60);

Test(quick, some_are_timed)
{
	struct quick quick = { 0 };

	for (int i = 0; i < 5 * QUICK_TIMED; i++)
		cr_assert_eq(quick_is_timed(&quick), i % QUICK_TIMED == 0, "%d", i);
}

Test(quick, times)
{
	struct quick quick = { 0 };

	cr_assert(quick_is_timed(&quick));
	quick_learn(&quick, 9000, 3000);
	cr_assert_eq(quick_ns(&quick, 10000), 4000);
	cr_assert_eq(quick_ns(&quick, 6500), QUICK_LEAST_NS);
	cr_assert_eq(quick_ns(&quick, 2000), QUICK_LEAST_NS);
	cr_assert_eq(quick_ns(&quick, 3000000), QUICK_MOST_NS);

	/* A job that waited for others has a long time before it starts; that one time does not make all
	 * later jobs appear to take none. */
	for (int i = 0; i < QUICK_TIMED; i++)
		quick_is_timed(&quick);
	quick_learn(&quick, 11000, 1000);
	cr_assert_eq(quick.extra_ns, 7000);
	quick_learn(&quick, 1000, 2000);
	cr_assert_eq(quick.extra_ns, 5250);
}

static struct engine_stream *stream;
static struct engine_memory *dst, *src;

static void open_all(const struct cuda_limits *limits)
{
	open_engine(limits);
	stream = engine_stream_new(engine, &owner);
	dst = new_memory(REGION_KIND_CUDA_FD, 4096);
	src = new_memory(REGION_KIND_CUDA_FD, 4096);
}

static void close_all(void)
{
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	engine_stream_free(engine, stream);
	close_engine();
}

/* Runs one job alone, by a kernel if it transposes, and checks the result. */
static const struct engine_job *run_one(uint32_t seed, bool transposed)
{
	enum { N = 8 };
	static struct work work;
	uint32_t *const from = (uint32_t *)data(src), *const to = (uint32_t *)data(dst);

	for (uint32_t i = 0; i < N * N; i++)
		from[i] = seed * 1000 + i;
	work_init(&work, N, transposed, dst, src);
	n_done = 0;
	engine_submit(engine, stream, &work.job);
	wait_done(1);
	cr_assert_eq(work.job.status, 0);
	for (uint32_t i = 0; i < N * N; i++)
		cr_assert_eq(to[i], from[transposed ? i % N * N + i / N : i], "%u", i);
	return &work.job;
}

/* With this slack no delay, on however slow a machine, is taken for another process that computes. */
Test(quick, alone)
{
	struct cuda_limits limits = cuda_limits_get(UINT64_C(1) << 30);
	int timed = 0;

	limits.sharing_slack_ns = UINT64_C(1000000000000);
	open_all(&limits);
	for (uint32_t i = 0; i < 2 * QUICK_TIMED; i++) {
		const struct engine_job *job = run_one(i, false);

		timed += job->is_measured;
		if (!job->is_measured)
			cr_assert(job->ns >= QUICK_LEAST_NS && job->ns <= QUICK_MOST_NS, "%lu",
			          (unsigned long)job->ns);
	}
	cr_assert_eq(timed, 2);
	close_all();
}

Test(quick, beside_others)
{
	setenv("SOFTGPU_SLOW_US", "2000", 1);
	open_all(NULL);
	for (int i = 0; i < 3 * QUICK_TIMED; i++) {
		const struct engine_job *job = run_one((uint32_t)i, true);

		cr_assert(job->is_measured, "%d", i);
	}
	close_all();
}
