/* SPDX-License-Identifier: Apache-2.0 */
/* Timelines on the device: jobs that wait for points and signal them, and streams of clients that do. */
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/cuda/driver.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/timeline.h"
#include "proto/clock.h"
#include "rig.h"
#include "tests/support/sleepers.h"
#include "tests/support/tap.h"

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

/* ---- A buffer handed back and forth -------------------------------------------------------------------- */

enum { WINDOW = 16, PATTERNS = 7, PRODUCER = 0, CONSUMER = 1 };

struct handoff_row {
	char name[24];
	enum region_kind words, memory;
	int64_t n;
	long rounds;     /* at full length */
	bool transposed; /* by kernels, which take their time */
};

struct handoff {
	struct work work[2]; /* the transforms; jobs are made of them */
	struct engine_job job[2][WINDOW];
	struct engine_stream *stream[2];
	struct engine_memory *src, *buffer, *out, *words;
	uint64_t bytes; /* of the buffer */
};

static long n_ended[2]; /* jobs, by side */

static void on_produced(struct engine_job *job)
{
	(void)job;
	n_ended[PRODUCER]++;
}

static void on_consumed(struct engine_job *job)
{
	(void)job;
	n_ended[CONSUMER]++;
}

static void wait_rounds(long n)
{
	while (n_ended[PRODUCER] < n || n_ended[CONSUMER] < n) {
		uint64_t count;
		struct pollfd fd = { .fd = wakeups, .events = POLLIN };
		cr_assert_eq(poll(&fd, 1, 60000), 1, "%ld produced, %ld consumed of %ld", n_ended[PRODUCER],
		             n_ended[CONSUMER], n);
		cr_assert_eq(read(wakeups, &count, sizeof count), (ssize_t)sizeof count);
		engine_reap(engine);
	}
}

static void handoff_init(struct handoff *h, const struct handoff_row *row)
{
	h->bytes = (uint64_t)(row->n * row->n * 4);
	h->src = new_memory(row->memory, PATTERNS * h->bytes);
	h->out = new_memory(row->memory, WINDOW * h->bytes);
	h->buffer = new_memory(row->memory, h->bytes);
	h->words = new_words(row->words, 4096);
	for (uint64_t i = 0; i < PATTERNS * h->bytes; i++) /* no byte as in the pattern before */
		data(h->src)[i] = (unsigned char)(i % h->bytes * 31 + i / h->bytes * 37);
	work_init(&h->work[PRODUCER], row->n, row->transposed, h->buffer, h->src);
	work_init(&h->work[CONSUMER], row->n, row->transposed, h->out, h->buffer);
	for (int i = 0; i < 2; i++)
		h->stream[i] = engine_stream_new(engine, &owner);
}

static void handoff_deinit(struct handoff *h)
{
	struct engine_memory *all[] = { h->src, h->out, h->buffer, h->words };
	for (int i = 0; i < 2; i++)
		engine_stream_free(engine, h->stream[i]);
	for (int i = 0; i < 4; i++)
		engine_unmap(engine, all[i]);
}

/* The producer waits until the buffer has been emptied i times and says that it was filled i + 1 times. */
static void submit_round(struct handoff *h, long i)
{
	struct engine_point filled = { h->words, 8, (uint64_t)i + 1 };
	struct engine_point emptied = { h->words, 72, (uint64_t)i + 1 }, was_emptied = emptied;
	was_emptied.value--;
	for (int side = CONSUMER; side >= PRODUCER; side--) {
		struct engine_job *job = &h->job[side][i % WINDOW];
		*job = h->work[side].job;
		job->on_done = side == PRODUCER ? on_produced : on_consumed;
		job->wait = side == PRODUCER ? was_emptied : filled;
		job->signal = side == PRODUCER ? filled : emptied;
		job->wait_until_ns = UINT64_MAX;
		if (side == PRODUCER)
			job->move.src_offset = (uint64_t)(i % PATTERNS) * h->bytes;
		else
			job->move.dst_offset = (uint64_t)(i % WINDOW) * h->bytes;
		engine_submit(engine, h->stream[side], job);
	}
}

static void check_round(const struct handoff_row *row, struct handoff *h, long i)
{
	unsigned char *out = data(h->out) + (uint64_t)(i % WINDOW) * h->bytes;
	for (int side = 0; side < 2; side++)
		cr_assert_eq(h->job[side][i % WINDOW].status, 0, "%s, round %ld, side %d: %d", row->name, i,
		             side, h->job[side][i % WINDOW].status);
	cr_assert_eq(memcmp(out, data(h->src) + (uint64_t)(i % PATTERNS) * h->bytes, h->bytes), 0,
	             "%s: round %ld: other bytes", row->name, i);
	memset(out, 0xee, h->bytes);
}

ParameterizedTestParameters(cuda_timeline, handed_back_and_forth)
{
	static struct handoff_row rows[] = {
		{ "device", REGION_KIND_CUDA_FD, REGION_KIND_CUDA_FD, 8, 100000, false },
		{ "device, host words", REGION_KIND_MEMFD, REGION_KIND_CUDA_IPC, 8, 10000, false },
		{ "host, in rounds", REGION_KIND_CUDA_IPC, REGION_KIND_MEMFD, 32, 2000, false },
		{ "kernels", REGION_KIND_CUDA_FD, REGION_KIND_CUDA_FD, 8, 2000, true },
		{ "kernels, in rounds", REGION_KIND_MEMFD, REGION_KIND_MEMFD, 24, 500, true },
	};
	return cr_make_param_array(struct handoff_row, rows, sizeof rows / sizeof *rows);
}

/* The consumer's job comes first each time, so nothing but the points keeps the order. */
ParameterizedTest(struct handoff_row *row, cuda_timeline, handed_back_and_forth)
{
	static struct handoff h;
	struct cuda_limits limits = small_limits();
	long rounds = tap_portion(row->rounds);
	setenv("SOFTGPU_SLOW_US", "100", 1);
	open_engine(&limits);
	handoff_init(&h, row);
	for (long i = 0; i < rounds + WINDOW; i++) {
		if (i >= WINDOW && i - WINDOW < rounds) {
			wait_rounds(i - WINDOW + 1);
			check_round(row, &h, i - WINDOW);
		}
		if (i < rounds)
			submit_round(&h, i);
	}
	cr_assert_eq(word_get(h.words, 8), (uint64_t)rounds, "%s", row->name);
	cr_assert_eq(word_get(h.words, 72), (uint64_t)rounds, "%s", row->name);
	handoff_deinit(&h);
	close_engine();
}

/* ---- Points ----------------------------------------------------------------------------------------------
 */

/* One stream, and jobs on it that copy 4 KiB of ones to zeros. */
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

/* Word 0 is waited for, word 1 signalled. */
static void submit_waiting(struct work *work, struct engine_stream *on, uint64_t value, uint64_t until_ns)
{
	work_init(work, 32, true, dst, src);
	work->job.wait = (struct engine_point){ words, 0, value };
	work->job.wait_until_ns = until_ns;
	work->job.signal = (struct engine_point){ words, 8, 7 };
	engine_submit(engine, on, &work->job);
}

static bool is_moved(void)
{
	return data(dst)[0] == 1 && memcmp(data(dst), data(dst) + 1, 4095) == 0;
}

static bool is_untouched(void)
{
	return data(dst)[0] == 0 && memcmp(data(dst), data(dst) + 1, 4095) == 0 && word_get(words, 8) == 0;
}

struct point_row {
	char name[24];
	enum region_kind kind;
	uint64_t word, value;
	bool has_come;
};

ParameterizedTestParameters(cuda_timeline, a_point)
{
	static struct point_row rows[] = {
		{ "equal", REGION_KIND_CUDA_FD, 5, 5, true },
		{ "equal, ipc", REGION_KIND_CUDA_IPC, 5, 5, true },
		{ "equal, host", REGION_KIND_MEMFD, 5, 5, true },
		{ "past", REGION_KIND_CUDA_FD, UINT64_C(1) << 40, 5, true },
		{ "short", REGION_KIND_CUDA_FD, 4, 5, false },
		{ "short, host", REGION_KIND_MEMFD, 4, 5, false },
		{ "past the end", REGION_KIND_CUDA_FD, 2, UINT64_MAX - 3, true },
		{ "past the end, short", REGION_KIND_CUDA_FD, UINT64_MAX - 3, 2, false },
		{ "as far as it goes", REGION_KIND_CUDA_FD, INT64_MAX, 0, true },
		{ "farther", REGION_KIND_CUDA_FD, UINT64_C(1) << 63, 0, false },
	};
	return cr_make_param_array(struct point_row, rows, sizeof rows / sizeof *rows);
}

/* One that has not come has a deadline that has passed. */
ParameterizedTest(struct point_row *row, cuda_timeline, a_point)
{
	static struct work first, next;
	set_up(row->kind);
	word_set(words, 0, row->word);
	submit_waiting(&first, stream, row->value, 1);
	wait_done(1);
	cr_assert_eq(first.job.status, row->has_come ? 0 : STATUS_TIMEOUT, "%s: %d", row->name,
	             first.job.status);
	cr_assert(row->has_come ? is_moved() && word_get(words, 8) == 7 : is_untouched(), "%s", row->name);
	work_init(&next, 32, true, dst, src);
	engine_submit(engine, stream, &next.job);
	wait_done(2);
	cr_assert_eq(next.job.status, 0, "%s: %d", row->name, next.job.status);
	tear_down();
}

/* Its deadline comes while it is waited for; neither before it does the job end, nor does it move anything.
 */
Test(cuda_timeline, deadline)
{
	static struct work late, next;
	set_up(REGION_KIND_CUDA_FD);
	uint64_t until_ns = clock_ns() + 30000000;
	submit_waiting(&late, stream, 1, until_ns);
	work_init(&next, 32, false, dst, src);
	engine_submit(engine, stream, &next.job);
	wait_done(1);
	cr_assert_geq(clock_ns(), until_ns);
	wait_done(2);
	cr_assert_eq(done[0], &late.job);
	cr_assert_eq(late.job.status, STATUS_TIMEOUT);
	cr_assert_eq(word_get(words, 8), 0);
	cr_assert_eq(next.job.status, 0);
	cr_assert(is_moved());
	tear_down();
}

/* Jobs without an element, and ones that run in rounds, signal too; each once all before it have ended. */
Test(cuda_timeline, signals_in_order)
{
	enum { JOBS = 120 };
	static struct work work[JOBS];
	uint64_t seen = 0;
	set_up(REGION_KIND_MEMFD);
	struct engine_memory *host = new_memory(REGION_KIND_MEMFD, 4096);
	for (int i = 0; i < JOBS; i++) {
		work_init(&work[i], i % 3 ? 32 : 0, i % 2, i % 5 ? dst : host, src);
		work[i].job.signal = (struct engine_point){ words, 8, (uint64_t)i + 1 };
		engine_submit(engine, stream, &work[i].job);
	}
	while (seen < JOBS) {
		uint64_t now = word_get(words, 8);
		cr_assert_geq(now, seen);
		seen = now;
		sched_yield();
	}
	wait_done(JOBS);
	for (int i = 0; i < JOBS; i++)
		cr_assert_eq(work[i].job.status, 0, "job %d: %d", i, work[i].job.status);
	engine_unmap(engine, host);
	tear_down();
}

/* More streams than one look has words, each with a word of its own; the words come in no order, and each
 * lets its own job alone go. Another stream waits for ever, and other jobs run all the while. */
Test(cuda_timeline, many)
{
	enum { STREAMS = 150 };
	static struct work work[STREAMS], stuck, other[STREAMS];
	struct engine_stream *streams[STREAMS];
	set_up(REGION_KIND_CUDA_FD);
	struct engine_stream *free_stream = engine_stream_new(engine, &owner);
	struct engine_memory *many = new_words(REGION_KIND_CUDA_IPC, STREAMS * 64);
	submit_waiting(&stuck, stream, 1, UINT64_MAX);
	for (int i = 0; i < STREAMS; i++) {
		streams[i] = engine_stream_new(engine, &owner);
		work_init(&work[i], 16, true, dst, src);
		work[i].job.wait = (struct engine_point){ many, (uint64_t)i * 64, 1 };
		work[i].job.wait_until_ns = UINT64_MAX;
		engine_submit(engine, streams[i], &work[i].job);
	}
	for (int n = 0; n < STREAMS; n++) {
		int i = n * 37 % STREAMS; /* no factor in common */
		work_init(&other[n], 16, true, dst, src);
		engine_submit(engine, free_stream, &other[n].job);
		wait_done(2 * (size_t)n + 1);
		cr_assert_eq(done[2 * n], &other[n].job, "job %d", n);
		word_set(many, (uint64_t)i * 64, 1);
		wait_done(2 * (size_t)n + 2);
		cr_assert_eq(done[2 * n + 1], &work[i].job, "stream %d", i);
		cr_assert_eq(work[i].job.status, 0, "stream %d", i);
	}
	engine_stream_cancel(engine, stream);
	wait_done(2 * STREAMS + 1);
	cr_assert_eq(stuck.job.status, STATUS_CANCELED);
	for (int i = 0; i < STREAMS; i++)
		engine_stream_free(engine, streams[i]);
	engine_stream_free(engine, free_stream);
	engine_unmap(engine, many);
	tear_down();
}

/* A stream of a client's goes on by the signal alone, and lets a job go by its own. */
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

/* ---- Ends ------------------------------------------------------------------------------------------------
 */

struct end_row {
	char name[24];
	enum region_kind kind;
};

ParameterizedTestParameters(cuda_timeline, cancel_as_it_comes)
{
	static struct end_row rows[] = { { "device", REGION_KIND_CUDA_FD }, { "host", REGION_KIND_MEMFD } };
	return cr_make_param_array(struct end_row, rows, sizeof rows / sizeof *rows);
}

/* Cancels as the point comes: the job has run whole or not at all; and its words go as soon as it has come
 * back, so that a look at them that is still under way would be the device's end. */
ParameterizedTest(struct end_row *row, cuda_timeline, cancel_as_it_comes)
{
	enum { ROUNDS = 200 };
	static struct work work, behind;
	set_up(row->kind);
	for (int i = 0; i < ROUNDS; i++) {
		n_done = 0;
		memset(data(dst), 0, 4096);
		submit_waiting(&work, stream, 1, UINT64_MAX);
		submit_waiting(&behind, stream, 1, UINT64_MAX);
		if (i % 5 < 3)
			sched_yield();
		if (i % 3)
			word_set(words, 0, 1);
		bool first = engine_cancel(engine, stream, &work.job);
		bool second = engine_cancel(engine, stream, &behind.job);
		cr_assert(i % 3 || (first && second), "%s: round %d: it cannot have started", row->name, i);
		wait_done(2);
		cr_assert_eq(done[0], &work.job, "%s: round %d", row->name, i);
		cr_assert_eq(work.job.status, first ? STATUS_CANCELED : 0, "%s: round %d", row->name, i);
		cr_assert_eq(behind.job.status, second ? STATUS_CANCELED : 0, "%s: round %d", row->name, i);
		cr_assert(first && second ? is_untouched() : is_moved() && word_get(words, 8) == 7,
		          "%s: round %d", row->name, i);
		engine_unmap(engine, words);
		words = new_words(row->kind, 4096);
	}
	cr_assert_not(engine->lost, "%s: %s", row->name, engine->lost_why);
	tear_down();
}

/* The second of a batch's moves cannot be launched: the first is right, and nothing is signalled. */
Test(cuda_timeline, a_batch_of_which_a_part_fails)
{
	enum { N = 512, BYTES = N * N * 4 }; /* too large to share a launch */
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

/* A list of blocks without an element, whose index would be read by the device: nothing to do but to signal.
 */
Test(cuda_timeline, a_list_of_nothing_signals)
{
	static struct work work;
	set_up(REGION_KIND_CUDA_FD);
	work_init(&work, 0, true, dst, src);
	struct engine_blocks blocks = {
		.n = 4, .layers = 1, .index_bytes = 4, .limit = 4, .index_memory = src
	};
	work.job.blocks = &blocks;
	work.job.signal = (struct engine_point){ words, 8, 7 };
	engine_submit(engine, stream, &work.job);
	wait_done(1);
	cr_assert_eq(work.job.status, 0);
	cr_assert_eq(word_get(words, 8), 7);
	tear_down();
}

struct fail_row {
	char name[32];
	char variable[64];
	char with[32];
	int status; /* of the job that waits */
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

/* One job that waits and signals, on a device where nothing else has been done; then one that only moves. A
 * word that comes late shows that it was waited for. */
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

/* All who sleep on a signal's word in host memory are woken, while other jobs run. */
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

/* How often a word is polled in that long, if a poll took no time; and how late the last poll is at most. */
static long polls_in(uint64_t ns, uint64_t *ret_pause)
{
	long n = 0;

	for (uint64_t at = 0; at < ns; n++)
		at += *ret_pause = timelines_pause_ns(at, 1000000);
	return n;
}

/* What protocol.md says of it. */
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
