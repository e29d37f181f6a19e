/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the engine's signs of life on a device that has nothing to do, that works, or that does not come
 * back. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "rig.h"

#define TRIES 20000

TestSuite(cuda_probe, .timeout = 60);

/* Waits until the last probe has been answered, and so a new one has been sent. */
static void wait_answer(void)
{
	struct error err;
	int i = 0;
	for (; i < TRIES && engine_probe(engine, &err) < 0; i++)
		usleep(1000);
	cr_assert_lt(i, TRIES, "%s", err.message);
}

static const int N = 64;

static void submit(struct work *work, struct engine_stream *stream, struct engine_memory *dst,
                   struct engine_memory *src)
{
	work_init(work, N, true, dst, src);
	engine_submit(engine, stream, &work->job);
}

Test(cuda_probe, of_a_device_with_nothing_to_do)
{
	open_engine(NULL);
	for (int i = 0; i < 5; i++)
		wait_answer();
	close_engine();
}

/* Each kernel takes long, and there is always one more to run. */
Test(cuda_probe, of_a_device_that_works)
{
	enum { JOBS = 4 };
	static struct work work[JOBS];
	setenv("SOFTGPU_SLOW_US", "2000", 1);
	open_engine(NULL);
	struct engine_stream *stream = engine_stream_new(engine, &owner);
	struct engine_memory *src = new_memory(REGION_KIND_CUDA_FD, (uint64_t)(N * N * 4));
	struct engine_memory *dst = new_memory(REGION_KIND_CUDA_FD, (uint64_t)(N * N * 4));
	size_t submitted = 0;
	for (int answers = 0; answers < 10 || submitted < 2 * JOBS;) {
		struct error err;
		for (; submitted < n_done + JOBS; submitted++)
			submit(&work[submitted % JOBS], stream, dst, src);
		answers += engine_probe(engine, &err) == 0;
		wait_done(n_done + 1);
		cr_assert_lt(n_done, MOST_JOBS - JOBS, "%d answers", answers);
	}
	wait_done(submitted);
	engine_unmap(engine, src);
	engine_unmap(engine, dst);
	engine_stream_free(engine, stream);
	close_engine();
}

Test(cuda_probe, of_a_device_that_is_stuck)
{
	static struct work work;
	struct error err = { 0 };
	bool was_silent = false;
	setenv("SOFTGPU_SLOW_US", "1000000", 1);
	setenv("SOFTGPU_STUCK", "1", 1);
	open_engine(NULL);
	struct engine_stream *stream = engine_stream_new(engine, &owner);
	struct engine_memory *src = new_memory(REGION_KIND_CUDA_FD, (uint64_t)(N * N * 4));
	struct engine_memory *dst = new_memory(REGION_KIND_CUDA_FD, (uint64_t)(N * N * 4));
	wait_answer();
	for (int i = 0; i < 10 && !was_silent; i++) {
		submit(&work, stream, dst, src);
		while (n_done <= (size_t)i) {
			was_silent |= engine_probe(engine, &err) < 0 && strstr(err.message, "the device:");
			usleep(10000);
			engine_reap(engine);
		}
	}
	cr_assert(was_silent, "%s", err.message);
	wait_answer();
	engine_unmap(engine, src);
	engine_unmap(engine, dst);
	engine_stream_free(engine, stream);
	close_engine();
}
