/* SPDX-License-Identifier: Apache-2.0 */
/* Tests timelines: where jobs that wait are started, and who sleeps on what. Other tests of timelines are in
 * tests/unit/engine/. */
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "rig.h"
#include "words.h"

/* Jobs on the stream copy 4 KiB of ones to zeros. */
static struct engine_stream *stream;
static struct engine_memory *dst, *src, *words;

static void set_up(uint32_t threads, int64_t inline_bytes, uint32_t wait_words)
{
	open_engine_words(threads, inline_bytes, wait_words);
	stream = engine_stream_new(engine, &owner);
	dst = new_memory(4096);
	src = new_memory(4096);
	words = new_memory(4 * 4096);
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

static bool is_moved(void)
{
	return data(dst)[0] == 1 && memcmp(data(dst), data(dst) + 1, 4095) == 0;
}

static bool is_untouched(void)
{
	return data(dst)[0] == 0 && memcmp(data(dst), data(dst) + 1, 4095) == 0 && word_get(words, 8) == 0;
}

/* A small job whose point has been reached has ended when submit returns, and none of the engine's threads
 * took part. */
Test(timeline, starts_where_it_is_submitted)
{
	static struct work held, small;
	set_up(1, 0, 127);
	struct engine_stream *other = engine_stream_new(engine, &owner);
	hold_thread(&held, other, dst, src);
	memset(data(dst), 0, 4096);
	word_set(words, 0, 1);
	submit_waiting(&small, stream, 1, UINT64_MAX);
	cr_assert(is_untouched(), "the only thread is held");
	atomic_store(&hold, false);
	wait_done(1);
	cr_assert_eq(small.job.status, 0);
	cr_assert_eq(word_get(words, 8), 7);
	engine_stream_free(engine, other);
	tear_down();

	n_done = 0;
	set_up(1, 1 << 20, 127);
	word_set(words, 0, 1);
	submit_waiting(&small, stream, 1, UINT64_MAX);
	cr_assert_eq(word_get(words, 8), 7);
	cr_assert(is_moved());
	engine_reap(engine);
	cr_assert_eq(n_done, 1);
	tear_down();
}

/* Only the upper half of the word changes, which no futex compares, and nobody is woken. */
Test(timeline, high_half_alone)
{
	static struct work work;
	set_up(1, 0, 127);
	submit_waiting(&work, stream, UINT64_C(1) << 32, UINT64_MAX);
	__atomic_store_n((uint64_t *)(void *)data(words), UINT64_C(1) << 32, __ATOMIC_RELEASE);
	wait_done(1);
	cr_assert_eq(work.job.status, 0);
	tear_down();
}

/* ---- Another process ------------------------------------------------------------------------------ */

/* Sleeps until word 1 is 7, which only a wake can end, and then sets word 0. */
static void sleep_as_client(void)
{
	uint32_t *futex = (uint32_t *)(void *)(data(words) + 8);
	alarm(20);
	word_set(words, 16, 1);
	while (word_get(words, 8) != 7)
		syscall(SYS_futex, futex, FUTEX_WAIT, 0, NULL, NULL, 0);
	word_set(words, 0, 1);
	_exit(0);
}

static bool is_asleep(pid_t pid)
{
	char path[64], state = 0;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	FILE *file = fopen(path, "r");
	cr_assert_not_null(file);
	cr_assert_eq(fscanf(file, "%*d (%*[^)]) %c", &state), 1);
	fclose(file);
	return state == 'S';
}

Test(timeline, wakes_another_process_and_is_woken)
{
	static struct work waiting, signalling;
	int status;
	set_up(1, 0, 127);
	struct engine_stream *other = engine_stream_new(engine, &owner);
	work_init(&waiting, 32, true, dst, src);
	waiting.job.wait = (struct engine_point){ words, 0, 1 };
	waiting.job.wait_until_ns = UINT64_MAX;
	engine_submit(engine, stream, &waiting.job);
	pid_t pid = fork();
	if (pid == 0)
		sleep_as_client();
	while (word_get(words, 16) != 1 || !is_asleep(pid))
		sched_yield();
	work_init(&signalling, 32, true, dst, src);
	signalling.job.signal = (struct engine_point){ words, 8, 7 };
	engine_submit(engine, other, &signalling.job);
	wait_done(2);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert_eq(status, 0, "it was not woken");
	cr_assert_eq(done[0], &signalling.job);
	cr_assert_eq(waiting.job.status, 0);
	engine_stream_free(engine, other);
	tear_down();
}
