/* SPDX-License-Identifier: Apache-2.0 */
/* Tests timelines on the device: streams of clients that wait and signal, calls that fail, and who is woken.
 * Other tests of timelines are in tests/unit/engine/. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/cuda/driver/driver.h"
#include "kernels/cuda/memory/memory.h"
#include "kernels/cuda/sched/flight.h"
#include "rig.h"
#include "tests/support/sleepers.h"

static uint64_t word_get(struct engine_memory *memory, uint64_t offset)
{
	return __atomic_load_n((uint64_t *)(void *)(data(memory) + offset), __ATOMIC_ACQUIRE);
}

static void word_set(struct engine_memory *memory, uint64_t offset, uint64_t value)
{
	__atomic_store_n((uint64_t *)(void *)(data(memory) + offset), value, __ATOMIC_RELEASE);
}

static struct engine_memory *new_words(enum region_kind kind, uint64_t size)
{
	struct engine_memory *memory = new_memory(kind, size);
	memset(data(memory), 0, size);
	return memory;
}

/* Jobs on the stream copy 4 KiB of ones to zeros. */
static struct engine_stream *stream;
static struct engine_memory *dst, *src, *words;

static void set_up(enum region_kind kind)
{
	struct cuda_limits limits = small_limits();
	open_engine(&limits);
	stream = engine_stream_new(engine, &owner);
	dst = new_words(REGION_KIND_CUDA_FD, 4096);
	src = new_words(REGION_KIND_CUDA_FD, 4096);
	words = new_words(kind, 4096);
	memset(data(src), 1, 4096);
}

static void tear_down(void)
{
	engine_stream_free(engine, stream);
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	engine_unmap(engine, words);
	close_engine();
}

/* Submits a job that waits for word 0 and signals word 1. */
static void submit_waiting(struct work *work, struct engine_stream *on, uint64_t value, uint64_t until_ns)
{
	work_init(work, 32, true, dst, src);
	work->job.wait = (struct engine_point){ words, 0, value };
	work->job.wait_until_ns = until_ns;
	work->job.signal = (struct engine_point){ words, 8, 7 };
	engine_submit(engine, on, &work->job);
}

/* The client's stream waits for one job's signal and nothing else, and then releases another job by a word
 * that it writes. */
Test(cuda_timeline, with_a_clients_stream)
{
	static struct work work[2];
	CUstream client = NULL;
	struct error err;
	set_up(REGION_KIND_CUDA_FD);
	uint64_t address = cuda_memory(words)->address;
	cr_assert_eq(driver_call(&err, cuCtxSetCurrent, (NULL)), 0);
	CUcontext context;
	cr_assert_eq(driver_call(&err, cuDevicePrimaryCtxRetain, (&context, 0)), 0);
	cr_assert_eq(driver_call(&err, cuCtxSetCurrent, (context)), 0);
	cr_assert_eq(driver_call(&err, cuStreamCreateWithPriority, (&client, CU_STREAM_NON_BLOCKING, 0)), 0);
	cr_assert_eq(cuStreamWaitValue64(client, address + 8, 1, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
	cr_assert_eq(driver_call(&err, cuMemsetD8Async, (cuda_memory(src)->address, 5, 4096, client)), 0);
	cr_assert_eq(driver_call(&err, cuStreamWriteValue64, (client, address, 1, 0)), 0);
	work_init(&work[0], 32, false, dst, src);
	work[0].job.signal = (struct engine_point){ words, 8, 1 };
	work_init(&work[1], 32, false, dst, src);
	work[1].job.wait = (struct engine_point){ words, 0, 1 };
	work[1].job.wait_until_ns = UINT64_MAX;
	engine_submit(engine, stream, &work[1].job);
	struct engine_stream *other = engine_stream_new(engine, &owner);
	engine_submit(engine, other, &work[0].job);
	wait_done(2);
	cr_assert_eq(done[0], &work[0].job);
	cr_assert_eq(done[1], &work[1].job);
	for (int i = 0; i < 4096; i++)
		cr_assert_eq(data(dst)[i], 5, "byte %d", i);
	engine_stream_free(engine, other);
	cr_assert_eq(driver_call(&err, cuStreamDestroy, (client)), 0);
	cr_assert_eq(driver_call(&err, cuDevicePrimaryCtxRelease, (0)), 0);
	tear_down();
}

/* ---- Ends ------------------------------------------------------------------------------------------ */

/* The second move of the batch cannot be launched. The first one is right, and nothing is signalled. */
Test(cuda_timeline, a_batch_of_which_a_part_fails)
{
	enum { N = 512, BYTES = N * N * 4 }; /* each move is too large to share a launch */
	static struct work work[2];
	struct engine_move moves[2];
	setenv("SOFTGPU_FAIL_CALL", "cuLaunchKernelEx:2", 1);
	setenv("SOFTGPU_FAIL_WITH", "400", 1);
	set_up(REGION_KIND_CUDA_FD);
	struct engine_memory *large[2] = { new_words(REGION_KIND_CUDA_FD, 2 * BYTES),
		                           new_memory(REGION_KIND_CUDA_FD, BYTES) };
	memset(data(large[1]), 1, BYTES);
	for (int i = 0; i < 2; i++) {
		work_init(&work[i], N, true, large[0], large[1]);
		moves[i] = work[i].job.move;
		moves[i].dst_offset = (uint64_t)i * BYTES;
	}
	work[0].job.moves = moves;
	work[0].job.n_moves = 2;
	work[0].job.signal = (struct engine_point){ words, 8, 7 };
	engine_submit(engine, stream, &work[0].job);
	wait_done(1);
	cr_assert_eq(work[0].job.status, STATUS_DEVICE, "%d", work[0].job.status);
	cr_assert_eq(moves[0].status, 0);
	cr_assert_neq(moves[1].status, 0);
	cr_assert_eq(data(large[0])[BYTES - 1], 1);
	cr_assert_eq(data(large[0])[BYTES], 0);
	cr_assert_eq(word_get(words, 8), 0, "it was signalled");
	engine_unmap(engine, large[0]);
	engine_unmap(engine, large[1]);
	tear_down();
}

struct fail_row {
	char name[32];
	char variable[64];
	char with[32];
	int status; /* status of the job that waits */
};

ParameterizedTestParameters(cuda_timeline, a_call_fails)
{
	static struct fail_row rows[] = {
		{ "no stream", "SOFTGPU_FAIL_CALL=cuStreamCreateWithPriority:48", "SOFTGPU_FAIL_WITH=2",
		  STATUS_NO_MEMORY },
		{ "not pinned", "SOFTGPU_FAIL_CALL=cuMemHostRegister", "SOFTGPU_FAIL_WITH=2",
		  STATUS_NO_MEMORY },
		{ "a look", "SOFTGPU_FAIL_CALL=cuMemcpyDtoHAsync", "SOFTGPU_FAIL_WITH=400", STATUS_DEVICE },
		{ "a look, sticky", "SOFTGPU_FAIL_CALL=cuMemcpyDtoHAsync", "SOFTGPU_FAIL_WITH=700",
		  STATUS_DEVICE_LOST },
		{ "not to be seen", "SOFTGPU_FAIL_CALL=cuEventRecord", "SOFTGPU_FAIL_WITH=400",
		  STATUS_DEVICE_LOST },
		{ "lost as it is waited for", "SOFTGPU_FAIL_CALL=cuEventQuery:3", "SOFTGPU_FAIL_WITH=700",
		  STATUS_DEVICE_LOST },
		{ "a signal", "SOFTGPU_FAIL_CALL=cuStreamWriteValue64", "SOFTGPU_FAIL_WITH=400",
		  STATUS_DEVICE },
		{ "before a signal", "SOFTGPU_FAIL_CALL=cuLaunchKernelEx", "SOFTGPU_FAIL_WITH=701",
		  STATUS_DEVICE },
	};
	return cr_make_param_array(struct fail_row, rows, sizeof rows / sizeof *rows);
}

/* The first job, on a device that has done nothing else, waits and signals; the next one only moves. The word
 * is set late, which shows that the first job has waited for it. */
ParameterizedTest(struct fail_row *row, cuda_timeline, a_call_fails)
{
	static struct work first, next;
	bool lost = row->status == STATUS_DEVICE_LOST;
	putenv(row->variable);
	putenv(row->with);
	set_up(REGION_KIND_CUDA_FD);
	submit_waiting(&first, stream, 1, UINT64_MAX);
	if (!lost)
		word_set(words, 0, 1);
	wait_done(1);
	cr_assert_eq(first.job.status, row->status, "%s: %d", row->name, first.job.status);
	cr_assert_eq(word_get(words, 8), 0, "%s: it was signalled", row->name);
	work_init(&next, 32, true, dst, src);
	engine_submit(engine, stream, &next.job);
	wait_done(2);
	cr_assert_eq(engine->lost, lost, "%s: %s", row->name, engine->lost_why);
	cr_assert_eq(next.job.status, lost ? STATUS_DEVICE_LOST : 0, "%s: %d", row->name, next.job.status);
	if (!lost)
		tear_down();
}

/* All that sleep on the word in host memory are woken by the signal, while other jobs run. */
Test(cuda_timeline, wakes_many)
{
	enum { SLEEPERS = 200, JOBS = 20 };
	static struct work work, other[JOBS];
	set_up(REGION_KIND_MEMFD);
	struct engine_stream *free_stream = engine_stream_new(engine, &owner);
	sleepers_start((uint64_t *)(void *)data(words), SLEEPERS);
	work_init(&work, 32, true, dst, src);
	work.job.signal = (struct engine_point){ words, 0, 1 };
	engine_submit(engine, stream, &work.job);
	for (int i = 0; i < JOBS; i++) {
		work_init(&other[i], 16, true, dst, src);
		engine_submit(engine, free_stream, &other[i].job);
	}
	sleepers_join();
	wait_done(JOBS + 1);
	cr_assert_eq(work.job.status, 0);
	engine_stream_free(engine, free_stream);
	tear_down();
}

/* Returns how often a word is polled in ns if a poll takes no time. Sets *ret_pause to the last pause, by
 * which the last poll is late at most. */
static long polls_in(uint64_t ns, uint64_t *ret_pause)
{
	long n = 0;

	for (uint64_t at = 0; at < ns; n++)
		at += *ret_pause = timelines_pause_ns(at, 1000000);
	return n;
}

/* protocol.md promises these limits. */
Test(cuda_timeline, polls_less_and_less_often)
{
	uint64_t pause;

	cr_expect_leq(polls_in(1280000, &pause), 256);
	cr_expect_eq(pause, 5000);
	cr_expect_leq(polls_in(20000000, &pause), 1000);
	cr_expect_leq(pause, 20000000 / 256);
	cr_expect_leq(polls_in(10000000000, &pause), 256 * 7 + 10000);
	cr_expect_eq(pause, 1000000);
}
