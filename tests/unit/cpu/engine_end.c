/* SPDX-License-Identifier: Apache-2.0 */
/* Tests a read-only source, how often the owner is woken, and an engine without work. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "rig.h"

/* The read-only source is mapped at an odd offset of the memfd that is also the destination. */
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

/* The owner is woken once for all jobs that have come back, and again only after it has reaped them. */
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
