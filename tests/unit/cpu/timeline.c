/* SPDX-License-Identifier: Apache-2.0 */
/* Timelines: jobs that wait for points and signal them, in this process and others. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/host/memory.h"
#include "kernels/cpu/running_job.h"
#include "proto/clock.h"
#include "rig.h"
#include "tests/support/tap.h"
#include "words.h"

/* ---- A buffer handed back and forth -------------------------------------------------------------------- */

enum { WINDOW = 32, PATTERNS = 7 };

struct handoff_row {
	char name[24];
	uint32_t threads;
	int64_t inline_bytes;
	uint32_t words;
	long rounds; /* at full length */
	int64_t n;
};

struct handoff {
	struct work work[2]; /* the transforms; jobs are made of them */
	struct engine_job job[2][WINDOW];
	struct engine_stream *stream[2];
	struct engine_memory *src, *buffer, *out, *words;
	uint64_t bytes; /* of the buffer */
};

enum { PRODUCER, CONSUMER };

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
		cr_assert_eq(poll(&fd, 1, 20000), 1, "%ld produced, %ld consumed of %ld", n_ended[PRODUCER],
		             n_ended[CONSUMER], n);
		cr_assert_eq(read(wakeups, &count, sizeof(count)), (ssize_t)sizeof(count));
		engine_reap(engine);
	}
}

static void handoff_init(struct handoff *h, int64_t n)
{
	h->bytes = (uint64_t)(n * n * 4);
	h->src = new_memory(PATTERNS * h->bytes);
	h->out = new_memory(WINDOW * h->bytes);
	h->buffer = new_memory(h->bytes);
	h->words = new_memory(4096);
	for (uint64_t i = 0; i < PATTERNS * h->bytes; i++) /* no byte as in the pattern before */
		data(h->src)[i] = (char)(i % h->bytes * 31 + i / h->bytes * 37);
	work_init(&h->work[PRODUCER], n, true, h->buffer, h->src);
	work_init(&h->work[CONSUMER], n, true, h->out, h->buffer);
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
	char *out = data(h->out) + (uint64_t)(i % WINDOW) * h->bytes;
	const char *expected = data(h->src) + (uint64_t)(i % PATTERNS) * h->bytes;
	for (int side = 0; side < 2; side++)
		cr_assert_eq(h->job[side][i % WINDOW].status, 0, "%s, round %ld, side %d: %d", row->name, i,
		             side, h->job[side][i % WINDOW].status);
	cr_assert_eq(memcmp(out, expected, h->bytes), 0, "%s: round %ld: other bytes", row->name, i);
	memset(out, 0xee, h->bytes);
}

ParameterizedTestParameters(timeline, handed_back_and_forth)
{
	static struct handoff_row rows[] = {
		{ "threads", 4, 0, 127, 100000, 48 },
		{ "one thread", 1, 0, 127, 20000, 48 },
		{ "where submitted", 2, 1 << 20, 127, 20000, 16 },
		{ "naps", 2, 0, 0, 5000, 48 },
	};
	return cr_make_param_array(struct handoff_row, rows, sizeof(rows) / sizeof(rows[0]));
}

/* The consumer's job comes first each time, so nothing but the points keeps the order. */
ParameterizedTest(struct handoff_row *row, timeline, handed_back_and_forth)
{
	static struct handoff h;
	long rounds = tap_portion(row->rounds);
	open_engine_words(row->threads, row->inline_bytes, row->words);
	handoff_init(&h, row->n);
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
	int64_t inline_bytes;
	uint64_t word, value;
	bool has_come;
};

ParameterizedTestParameters(timeline, a_point)
{
	static struct point_row rows[] = {
		{ "equal", 0, 5, 5, true },
		{ "equal, inline", 1 << 20, 5, 5, true },
		{ "past", 0, UINT64_C(1) << 40, 5, true },
		{ "short", 0, 4, 5, false },
		{ "short, inline", 1 << 20, 4, 5, false },
		{ "high half short", 0, UINT64_C(0x1ffffffff), UINT64_C(0x200000000), false },
		{ "past the end", 0, 2, UINT64_MAX - 3, true },
		{ "past the end, short", 0, UINT64_MAX - 3, 2, false },
		{ "as far as it goes", 0, INT64_MAX, 0, true },
		{ "farther", 0, UINT64_C(1) << 63, 0, false },
	};
	return cr_make_param_array(struct point_row, rows, sizeof(rows) / sizeof(rows[0]));
}

/* One that has not come has a deadline that has passed. */
ParameterizedTest(struct point_row *row, timeline, a_point)
{
	static struct work first, next;
	set_up(1, row->inline_bytes, 127);
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

/* Small, and its point has come: it has ended when submit comes back, and the engine's threads had no part.
 */
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

/* Its deadline comes while it is waited for; neither before it does the job end, nor does it move anything.
 */
Test(timeline, deadline)
{
	static struct work late, next;
	uint64_t until_ns = clock_ns() + 30000000;
	set_up(2, 0, 127);
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

/* One stream waits for ever and holds back what is behind it; the only thread does all other streams' jobs.
 */
Test(timeline, holds_back_its_stream_alone)
{
	enum { OTHERS = 200 };
	static struct work waiting, behind, other[OTHERS];
	set_up(1, 0, 127);
	struct engine_stream *free_stream = engine_stream_new(engine, &owner);
	struct engine_memory *aside = new_memory(4096);
	submit_waiting(&waiting, stream, 1, UINT64_MAX);
	work_init(&behind, 32, false, dst, src);
	engine_submit(engine, stream, &behind.job);
	for (int i = 0; i < OTHERS; i++) {
		work_init(&other[i], 32, true, aside, src);
		engine_submit(engine, free_stream, &other[i].job);
	}
	wait_done(OTHERS);
	for (int i = 0; i < OTHERS; i++)
		cr_assert_eq(done[i], &other[i].job, "job %d", i);
	cr_assert(is_untouched());
	word_set(words, 0, 1);
	wait_done(OTHERS + 2);
	cr_assert_eq(done[OTHERS], &waiting.job);
	cr_assert_eq(waiting.job.status, 0);
	cr_assert_eq(behind.job.status, 0);
	engine_stream_free(engine, free_stream);
	engine_unmap(engine, aside);
	tear_down();
}

/* Only the half changes that no futex compares; and nobody is woken. */
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

/* Whichever thread ends the jobs of a stream: the word never goes back. */
Test(timeline, signals_in_order)
{
	enum { JOBS = 400 };
	static struct work work[JOBS];
	uint64_t seen = 0;
	set_up(4, 0, 127);
	for (int i = 0; i < JOBS; i++) {
		work_init(&work[i], i % 3 ? 32 : 0, true, dst, src);
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
	tear_down();
}

/* ---- Ends ------------------------------------------------------------------------------------------------
 */

Test(timeline, cancel_one)
{
	static struct work first, second, third, fourth;
	set_up(1, 0, 127);
	submit_waiting(&first, stream, 1, UINT64_MAX);
	submit_waiting(&second, stream, 1, UINT64_MAX);
	submit_waiting(&third, stream, 2, UINT64_MAX);
	work_init(&fourth, 32, true, dst, src);
	engine_submit(engine, stream, &fourth.job);
	cr_assert(engine_cancel(engine, stream, &second.job), "it waits for its turn");
	cr_assert(engine_cancel(engine, stream, &first.job), "it waits for its point");
	wait_done(2);
	cr_assert_eq(done[0], &first.job);
	cr_assert_eq(done[1], &second.job);
	cr_assert_eq(first.job.status, STATUS_CANCELED);
	cr_assert_eq(second.job.status, STATUS_CANCELED);
	cr_assert(is_untouched());
	word_set(words, 0, 2);
	wait_done(4);
	cr_assert_eq(third.job.status, 0);
	cr_assert_eq(fourth.job.status, 0);
	cr_assert_not(engine_cancel(engine, stream, &fourth.job), "it has ended");
	tear_down();
}

struct batch_row {
	char name[24];
	int64_t inline_bytes;
	bool cancel;
	bool gone;
	int status;
};

static void take_page(struct engine_memory *memory, uint64_t offset);

ParameterizedTestParameters(timeline, a_batch_that_never_starts)
{
	static struct batch_row rows[] = {
		{ "late", 0, false, false, STATUS_TIMEOUT },
		{ "cancelled", 0, true, false, STATUS_CANCELED },
		{ "gone", 0, false, true, STATUS_DEVICE },
		{ "gone, inline", 1 << 20, false, true, STATUS_DEVICE },
	};
	return cr_make_param_array(struct batch_row, rows, sizeof(rows) / sizeof(rows[0]));
}

/* Every move of it ends as it does. */
ParameterizedTest(struct batch_row *row, timeline, a_batch_that_never_starts)
{
	static struct work work;
	struct engine_move moves[3];
	set_up(1, row->inline_bytes, 127);
	work_init(&work, 16, true, dst, src);
	for (int i = 0; i < 3; i++) {
		moves[i] = work.job.move;
		moves[i].dst_offset = (uint64_t)i * 1024;
	}
	work.job.moves = moves;
	work.job.n_moves = 3;
	work.job.wait = (struct engine_point){ words, 4096, 1 };
	work.job.wait_until_ns = row->cancel ? UINT64_MAX : 1;
	if (row->gone)
		take_page(words, 4096);
	engine_submit(engine, stream, &work.job);
	if (row->cancel)
		cr_assert(engine_cancel(engine, stream, &work.job), "%s", row->name);
	wait_done(1);
	cr_assert_eq(work.job.status, row->status, "%s: %d", row->name, work.job.status);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(moves[i].status, row->status, "%s: move %d: %d", row->name, i, moves[i].status);
	cr_assert(is_untouched(), "%s", row->name);
	tear_down();
}

Test(timeline, cancel_a_stream)
{
	static struct work work[5];
	set_up(2, 0, 127);
	for (int i = 0; i < 5; i++)
		submit_waiting(&work[i], stream, (uint64_t)i + 1, UINT64_MAX);
	engine_stream_cancel(engine, stream);
	wait_done(5);
	for (int i = 0; i < 5; i++) {
		cr_assert_eq(done[i], &work[i].job);
		cr_assert_eq(work[i].job.status, STATUS_CANCELED, "job %d: %d", i, work[i].job.status);
	}
	cr_assert(is_untouched());
	tear_down();
}

/* Cancels as the point comes: the job has run whole or not at all, and its memory goes at once. */
Test(timeline, cancel_as_it_comes)
{
	enum { ROUNDS = 500 };
	static struct work work;
	for (int i = 0; i < ROUNDS; i++) {
		n_done = 0;
		set_up(1, 0, i % 2 ? 127 : 0);
		submit_waiting(&work, stream, 1, UINT64_MAX);
		if (i % 5 == 0)
			sched_yield();
		word_set(words, 0, 1);
		bool canceled = engine_cancel(engine, stream, &work.job);
		wait_done(1);
		cr_assert_eq(work.job.status, canceled ? STATUS_CANCELED : 0, "round %d", i);
		cr_assert(canceled ? is_untouched() : is_moved() && word_get(words, 8) == 7, "round %d", i);
		tear_down();
	}
}

/* Puts a file without bytes behind a page of a mapping. */
static void take_page(struct engine_memory *memory, uint64_t offset)
{
	int fd = memfd_create("empty", 0);
	cr_assert_neq(
	    mmap(data(memory) + offset, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0),
	    MAP_FAILED);
	close(fd);
}

struct gone_row {
	char name[24];
	int64_t inline_bytes;
	uint32_t words;
	bool later; /* it is waited for */
};

ParameterizedTestParameters(timeline, memory_that_fails)
{
	static struct gone_row rows[] = {
		{ "before", 0, 127, false },
		{ "before, inline", 1 << 20, 127, false },
		{ "asleep", 0, 127, true },
		{ "napping", 0, 0, true },
	};
	return cr_make_param_array(struct gone_row, rows, sizeof(rows) / sizeof(rows[0]));
}

ParameterizedTest(struct gone_row *row, timeline, memory_that_fails)
{
	static struct work gone, well, unheard;
	set_up(1, row->inline_bytes, row->words);
	struct engine_stream *other = engine_stream_new(engine, &owner);
	work_init(&gone, 32, true, dst, src);
	gone.job.wait = (struct engine_point){ words, 4096, 1 };
	gone.job.wait_until_ns = UINT64_MAX;
	if (!row->later)
		take_page(words, 4096);
	submit_waiting(&well, other, 1, UINT64_MAX);
	engine_submit(engine, stream, &gone.job);
	if (row->later)
		take_page(words, 4096);
	wait_done(1);
	cr_assert_eq(done[0], &gone.job, "%s", row->name);
	cr_assert_eq(gone.job.status, STATUS_DEVICE, "%s: %d", row->name, gone.job.status);
	cr_assert(is_untouched(), "%s", row->name);
	word_set(words, 0, 1);
	wait_done(2);
	cr_assert_eq(well.job.status, 0, "%s: %d", row->name, well.job.status);
	work_init(&unheard, 32, true, dst, src);
	take_page(words, 8192);
	unheard.job.signal = (struct engine_point){ words, 8192, 1 };
	engine_submit(engine, stream, &unheard.job);
	wait_done(3);
	cr_assert_eq(unheard.job.status, STATUS_DEVICE, "%s: %d", row->name, unheard.job.status);
	engine_stream_free(engine, other);
	tear_down();
}

/* ---- Another process ------------------------------------------------------------------------------ */

/* Sleeps until word 1 is 7, with nobody to end it but a wake; then lets word 0 come. */
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
