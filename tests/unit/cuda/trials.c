/* SPDX-License-Identifier: Apache-2.0 */
/* Tests jobs that run alternatives to their plan until the fastest is known; their bytes are right all the
 * while. */
#include <string.h>

#include <criterion/criterion.h>

#include "kernels/cuda/cuda_plan.h"
#include "rig.h"
#include "tests/support/oracle.h"

enum { N = 512, BYTES = N * N * 4, MOST_RUNS = 200 };

static struct engine_memory *dst, *src;
static struct engine_stream *stream;

static void open_all(bool tunes)
{
	open_engine(NULL);
	engine_tune(engine, tunes);
	stream = engine_stream_new(engine, &owner);
	dst = new_memory(REGION_KIND_CUDA_FD, BYTES);
	src = new_memory(REGION_KIND_CUDA_FD, BYTES);
	for (size_t i = 0; i < BYTES; i++)
		data(src)[i] = (unsigned char)(i * 7 + i / 256);
}

static void close_all(void)
{
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	engine_stream_free(engine, stream);
	close_engine();
}

static const struct cuda_plan *own_of(const struct work *work)
{
	return work->job.move.plan->own;
}

/* Makes the planner believe that copies are slow, so that the transform takes long enough for trials. */
static void slow_memory(struct work *work)
{
	struct cuda_plans *plans = work->job.move.plan->cache->arg;

	plans->facts.copy.bytes_per_ns = 1e-3;
}

static void run(struct work *work)
{
	const uint32_t *from = (const uint32_t *)data(src), *to = (const uint32_t *)data(dst);

	memset(data(dst), 0xa5, BYTES);
	n_done = 0;
	engine_submit(engine, stream, &work->job);
	wait_done(1);
	cr_assert_eq(work->job.status, 0);
	for (size_t i = 0; i < N; i++)
		for (size_t k = 0; k < N; k++)
			cr_assert_eq(to[i * N + k], from[k * N + i]);
}

Test(trials, settle, .timeout = 120)
{
	static struct work work;
	int runs = 0;

	open_all(true);
	work_init(&work, N, true, dst, src);
	slow_memory(&work);
	while (!own_of(&work)->is_settled && runs++ < MOST_RUNS)
		run(&work);
	cr_expect(own_of(&work)->is_settled, "%d runs", runs);
	cr_expect_gt(runs, 3);
	cr_expect_null(own_of(&work)->trials);
	run(&work);
	close_all();
}

Test(trials, of_a_plan_that_is_dropped, .timeout = 120)
{
	static struct work work;

	open_all(true);
	work_init(&work, N, true, dst, src);
	slow_memory(&work);
	for (int i = 0; i < MOST_RUNS && !own_of(&work)->trials && !own_of(&work)->is_settled; i++)
		run(&work);
	cr_expect_not_null(own_of(&work)->trials);
	close_all();
}

Test(trials, not_of_what_is_brief)
{
	static struct work work;

	open_all(true);
	work_init(&work, 32, true, dst, src);
	for (int i = 0; i < 5; i++) {
		n_done = 0;
		engine_submit(engine, stream, &work.job);
		wait_done(1);
	}
	cr_expect_null(own_of(&work)->trials);
	close_all();
}

Test(trials, not_when_they_are_switched_off)
{
	static struct work work;

	open_all(false);
	work_init(&work, N, true, dst, src);
	slow_memory(&work);
	for (int i = 0; i < 5; i++)
		run(&work);
	cr_expect_null(own_of(&work)->trials);
	cr_expect_eq(own_of(&work)->first_ns, 0);
	close_all();
}
