/* SPDX-License-Identifier: Apache-2.0 */
/* Tests engines that their owner's thread drives: which jobs it runs itself, when it hands over to the
 * engine's thread, and that the two never work at once. */
#include <criterion/criterion.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda_plan.h"
#include "kernels/cuda/sched/queue.h"
#include "rig.h"

#define LONG_ENOUGH UINT64_C(10000000000)
#define NAP_MS      20

enum { N = 32, BYTES = N * N * 4, STREAMS = 3, ROUNDS = 400 };

static struct engine_memory *dst, *src;

static void open_all(void)
{
	const struct cuda_limits limits = small_limits();

	open_driven_engine(&limits);
	dst = new_memory(REGION_KIND_CUDA_FD, BYTES);
	src = new_memory(REGION_KIND_CUDA_FD, BYTES);
	for (int i = 0; i < BYTES; i++)
		data(src)[i] = (unsigned char)(rand() % 251);
}

static void close_all(void)
{
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	close_engine();
}

static bool is_woken(int ms)
{
	return poll(&(struct pollfd){ .fd = wakeups, .events = POLLIN }, 1, ms) == 1;
}

/* The engine's thread starts awake, and parks as soon as it finds nothing to do. */
static void let_it_park(struct engine_stream *stream)
{
	struct queue *queue = stream->queue;
	bool is_parked = false;

	while (!is_parked) {
		pthread_mutex_lock(&queue->lock);
		is_parked = queue->thread == QUEUE_PARKED;
		pthread_mutex_unlock(&queue->lock);
	}
}

Test(drive, a_single_short_job_wakes_nobody)
{
	static struct work work;

	open_all();
	struct engine_stream *stream = engine_stream_new(engine, &owner);

	for (size_t i = 1; i <= 3; i++) {
		let_it_park(stream);
		memset(data(dst), 0xee, BYTES);
		work_init(&work, N, false, dst, src);
		cuda_plan(work.job.move.plan); /* makes the plan here, so that the engine's thread need not */
		engine_submit(engine, stream, &work.job);
		cr_expect(engine_drive(engine, LONG_ENOUGH), "it has not ended");
		engine_reap(engine);
		cr_assert_eq(n_done, i);
		cr_expect_eq(work.job.status, 0);
		cr_expect_arr_eq(data(dst), data(src), BYTES);
	}
	cr_expect_not(is_woken(0), "the owner was woken for what it did itself");
	engine_stream_free(engine, stream);
	close_all();
}

Test(drive, what_is_submitted_starts_with_the_call_and_not_before)
{
	static struct work work;

	open_all();
	struct engine_stream *stream = engine_stream_new(engine, &owner);

	let_it_park(stream);
	work_init(&work, N, false, dst, src);
	engine_submit(engine, stream, &work.job);
	cr_expect_not(is_woken(NAP_MS));
	cr_expect_not(engine_drive(engine, 0));
	wait_done(1);
	cr_expect_eq(work.job.status, 0);
	engine_stream_free(engine, stream);
	close_all();
}

/* Expects that n jobs, driven for at most ns, are handed over to the engine's thread. */
static void expect_handed_over(int n, uint64_t ns)
{
	static struct work work[2];

	open_all();
	struct engine_stream *stream = engine_stream_new(engine, &owner);

	let_it_park(stream);
	for (int i = 0; i < n; i++) {
		work_init(&work[i], N, true, dst, src);
		engine_submit(engine, stream, &work[i].job);
	}
	if (engine_drive(engine, ns)) {
		cr_expect_eq(n, 1);
		engine_reap(engine);
	}
	wait_done((size_t)n);
	for (int i = 0; i < n; i++)
		cr_expect_eq(work[i].job.status, 0);
	engine_stream_free(engine, stream);
	close_all();
}

Test(drive, several_jobs_are_handed_over)
{
	expect_handed_over(2, LONG_ENOUGH);
}

Test(drive, a_job_that_takes_longer_is_handed_over)
{
	expect_handed_over(1, 1);
}

/* Runs a batch of one move, which makes the engine open an upload buffer. */
static void run_batch(struct engine_stream *stream)
{
	static struct work work;
	struct engine_move move;

	work_init(&work, N, false, dst, src);
	move = work.job.move;
	work.job.moves = &move;
	work.job.n_moves = 1;
	engine_submit(engine, stream, &work.job);
	engine_drive(engine, 0);
	wait_done(1);
}

/* Whether a list is quick depends on the number of its blocks in all layers together. */
static void expect_list(uint64_t n, uint32_t layers, bool is_quick)
{
	static const int32_t index[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8 };
	static struct work work;
	const size_t bytes = n * layers * BYTES;
	struct engine_blocks blocks = { .n = n,
		                        .layers = layers,
		                        .index_bytes = 4,
		                        .limit = n,
		                        .index = index,
		                        .dst = { .step = BYTES, .layer_step = n * BYTES },
		                        .src = { .step = BYTES, .layer_step = n * BYTES } };
	struct engine_memory *to, *from;
	struct engine_stream *stream;

	open_all();
	stream = engine_stream_new(engine, &owner);
	to = new_memory(REGION_KIND_CUDA_FD, bytes);
	from = new_memory(REGION_KIND_CUDA_FD, bytes);
	memset(data(from), 0x3c, bytes);
	run_batch(stream);
	let_it_park(stream);
	work_init(&work, N, false, to, from);
	work.job.blocks = &blocks;
	engine_submit(engine, stream, &work.job);
	cr_expect(engine_drive(engine, LONG_ENOUGH) || !is_quick, "%d x %u", (int)n, layers);
	cr_expect_eq(is_woken(is_quick ? 0 : 60000), !is_quick, "%d x %u", (int)n, layers);
	engine_reap(engine);
	cr_assert_eq(n_done, 2);
	cr_expect_eq(work.job.status, 0);
	cr_expect_arr_eq(data(to), data(from), bytes);
	engine_unmap(engine, to);
	engine_unmap(engine, from);
	engine_stream_free(engine, stream);
	close_all();
}

Test(drive, short_lists_wake_nobody)
{
	expect_list(8, 1, true);
	expect_list(1, 8, true);
	expect_list(2, 4, true);
}

Test(drive, lists_of_many_layers_are_handed_over)
{
	expect_list(9, 1, false);
	expect_list(3, 3, false);
	expect_list(1, 9, false);
}

enum { WORDS = 4096, WAITED = 0, SIGNALLED = 8 };

static uint64_t word(struct engine_memory *words, uint64_t offset)
{
	return __atomic_load_n((const uint64_t *)(const void *)(data(words) + offset), __ATOMIC_ACQUIRE);
}

static void set_word(struct engine_memory *words, uint64_t offset, uint64_t value)
{
	__atomic_store_n((uint64_t *)(void *)(data(words) + offset), value, __ATOMIC_RELEASE);
}

/* Runs a job as the stream of a client orders it: the job waits for the work that is ahead of it there, and
 * later work waits for the job. */
static void expect_ordered(uint64_t reached, bool is_driven)
{
	static struct work work;
	struct engine_memory *words;
	struct engine_stream *stream;

	open_all();
	stream = engine_stream_new(engine, &owner);
	words = new_memory(REGION_KIND_MEMFD, WORDS);
	set_word(words, WAITED, reached);
	let_it_park(stream);
	work_init(&work, N, false, dst, src);
	cuda_plan(work.job.move.plan);
	work.job.wait = (struct engine_point){ words, WAITED, 5 };
	work.job.wait_until_ns = UINT64_MAX;
	work.job.signal = (struct engine_point){ words, SIGNALLED, 7 };
	engine_submit(engine, stream, &work.job);
	cr_expect_eq(engine_drive(engine, LONG_ENOUGH), is_driven);
	cr_expect_eq(word(words, SIGNALLED), is_driven ? 7 : 0);
	cr_expect_not(is_woken(is_driven ? 0 : NAP_MS));
	set_word(words, WAITED, 5);
	if (is_driven)
		engine_reap(engine);
	wait_done(1);
	cr_expect_eq(work.job.status, 0);
	cr_expect_eq(word(words, SIGNALLED), 7);
	cr_expect_arr_eq(data(dst), data(src), BYTES);
	engine_unmap(engine, words);
	engine_stream_free(engine, stream);
	close_all();
}

Test(drive, a_job_whose_point_has_come_wakes_nobody)
{
	expect_ordered(5, true);
}

Test(drive, a_job_whose_point_has_not_come_is_handed_over)
{
	expect_ordered(4, false);
}

static atomic_bool is_over;

static void *map_and_unmap(void *arg)
{
	(void)arg;
	while (!atomic_load(&is_over))
		engine_unmap(engine, new_memory(REGION_KIND_MEMFD, BYTES));
	return NULL;
}

/* Now and then a round submits a batch of several moves, which is handed over, or is not driven for long
 * enough, while another thread maps memory. */
Test(drive, the_two_threads_take_turns)
{
	static struct work work[ROUNDS];
	struct engine_stream *stream[STREAMS];
	size_t sent = 0;
	pthread_t mapping;

	open_all();
	for (int i = 0; i < STREAMS; i++)
		stream[i] = engine_stream_new(engine, &owner);
	cr_assert_eq(pthread_create(&mapping, NULL, map_and_unmap, NULL), 0);
	while (sent < ROUNDS) {
		for (int n = rand() % 8 == 0 ? 4 : 1; n > 0 && sent < ROUNDS; n--, sent++) {
			work_init(&work[sent], N, rand() % 2, dst, src);
			engine_submit(engine, stream[rand() % STREAMS], &work[sent].job);
		}
		if (engine_drive(engine, rand() % 2 ? LONG_ENOUGH : (uint64_t)(rand() % 200000)))
			engine_reap(engine);
		if (rand() % 2)
			wait_done(sent);
	}
	engine_drive(engine, 0);
	wait_done(sent);
	atomic_store(&is_over, true);
	pthread_join(mapping, NULL);
	for (size_t i = 0; i < sent; i++)
		cr_expect_eq(work[i].job.status, 0, "job %zu: %d", i, work[i].job.status);
	for (int i = 0; i < STREAMS; i++)
		engine_stream_free(engine, stream[i]);
	close_all();
}
