/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the engine's signs of life with threads that sleep, that work without a pause, and that do not come
 * back. */
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "kernels/cpu/run/running_job.h"
#include "proto/clock.h"
#include "rig.h"

TestSuite(probe, .timeout = 60);

/* Waits until the last probe has been answered, and so a new one has been sent. */
static void wait_answer(void)
{
	uint64_t until = clock_ns() + 20000000000u;
	struct error err;
	while (engine_probe(engine, &err) < 0) {
		cr_assert_lt(clock_ns(), until, "%s", err.message);
		usleep(1000);
	}
}

/* Other threads that have been asked may need a moment to answer. */
static void expect_silence(const char *of)
{
	uint64_t until = clock_ns() + 20000000000u;
	struct error err;
	while (engine_probe(engine, &err) == 0 || !strstr(err.message, of)) {
		cr_assert_lt(clock_ns(), until, "%s: has answered", of);
		usleep(1000);
	}
	for (int i = 0; i < 3; i++, usleep(10000))
		cr_assert_eq(engine_probe(engine, &err), STATUS_TIMEOUT);
}

Test(probe, of_threads_that_sleep)
{
	open_engine(3, 0);
	for (int i = 0; i < 10; i++)
		wait_answer();
	close_engine();
}

/* There is always one more job to run, of many pieces. */
Test(probe, of_threads_that_work)
{
	enum { N = 1024, JOBS = 4 };
	static struct work work[JOBS];
	open_engine(2, 0);
	struct engine_stream *stream = engine_stream_new(engine, &owner);
	struct engine_memory *src = new_memory(N * N * 4), *dst = new_memory(N * N * 4);
	const uint64_t until = clock_ns() + 20000000000u;
	size_t submitted = 0;
	bool has_begun_again = false;
	for (int answers = 0; answers < 10 || (submitted < 2 * JOBS && !has_begun_again);) {
		struct error err;
		if (n_done > MOST_JOBS - 2 * JOBS) { /* done has no room for more */
			wait_done(submitted);
			n_done = submitted = 0;
			has_begun_again = true;
		}
		for (; submitted < n_done + JOBS; submitted++) {
			work_init(&work[submitted % JOBS], N, true, dst, src);
			engine_submit(engine, stream, &work[submitted % JOBS].job);
		}
		answers += engine_probe(engine, &err) == 0;
		wait_done(n_done + 1);
		cr_assert_lt(clock_ns(), until, "%d answers", answers);
	}
	wait_done(submitted);
	engine_unmap(engine, src);
	engine_unmap(engine, dst);
	engine_stream_free(engine, stream);
	close_engine();
}

Test(probe, of_a_thread_that_is_stuck)
{
	static struct work work;
	open_engine(1, 0);
	struct engine_stream *stream = engine_stream_new(engine, &owner);
	struct engine_memory *src = new_memory(32 * 32 * 4), *dst = new_memory(32 * 32 * 4);
	wait_answer();
	wait_answer();
	hold_thread(&work, stream, dst, src);
	expect_silence("1 of the 1 threads that move bytes");
	atomic_store(&hold, false);
	wait_answer();
	engine_unmap(engine, src);
	engine_unmap(engine, dst);
	engine_stream_free(engine, stream);
	close_engine();
}

/* The job's deadline passes, and the owner's wake function does not let the watcher go that reports it. */
Test(probe, of_a_watcher_that_is_stuck)
{
	static struct work work;
	open_engine(1, 0);
	struct engine_stream *stream = engine_stream_new(engine, &owner);
	struct engine_memory *src = new_memory(32 * 32 * 4), *dst = new_memory(32 * 32 * 4);
	struct engine_memory *word = new_memory(8);
	wait_answer();
	wait_answer();
	atomic_store(&hold, true);
	work_init(&work, 32, true, dst, src);
	work.job.wait = (struct engine_point){ .memory = word, .value = 1 };
	work.job.wait_until_ns = clock_ns() + 1000000;
	engine_submit(engine, stream, &work.job);
	wait_done(1);
	cr_assert_eq(work.job.status, STATUS_TIMEOUT);
	expect_silence("watches timelines");
	atomic_store(&hold, false);
	wait_answer();
	engine_unmap(engine, word);
	engine_unmap(engine, src);
	engine_unmap(engine, dst);
	engine_stream_free(engine, stream);
	close_engine();
}
