/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the engine as its owner sees it: what it reports of itself, and that streams share its threads. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "kernels/cpu/run/tuning.h"
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
	cr_assert(strstr(engine->device, "3 threads"), "%s", engine->device);
	cr_assert_eq(engine->kind, REGION_KIND_MEMFD);
	engine_close(engine);
	options.threads = 0;
	cr_assert_eq(engine_cpu_open(&engine, &options, &err), 0);
	cr_assert(strstr(engine->device, "thread"), "%s", engine->device);
	engine_close(engine);
	engine_close(NULL);
}

/* With a single thread, a small job that is submitted after a large one on another stream comes back
 * first. */
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

Test(engine, an_owner_outlives_its_streams, .signal = SIGABRT)
{
	open_engine(1, 0);
	engine_stream_new(engine, &owner);
	engine_owner_deinit(&owner);
}
