/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the order in which jobs run and end, within a stream and beside other streams, with points of
 * timelines and with any priority. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "proto/clock.h"
#include "rig.h"
#include "tests/support/tap.h"

TestSuite(order, .timeout = 120);

/* The memory of a case: of the kind that the engine makes by default, of the host, or of a device and shared
 * by a handle. */
enum where { NEAR, HOST, HANDLE, WHERES };

static const char *const where_names[WHERES] = { "near", "host", "by a handle" };

static enum region_kind kind_of(enum where where)
{
	return where == NEAR ? memory_kind() : where == HOST ? REGION_KIND_MEMFD : REGION_KIND_CUDA_IPC;
}

/* On the CPU all memory is the host's, so one of the cases that differ only in their memory is enough. */
static bool suits_where(enum rig_engine which, enum where where)
{
	return where == NEAR || (rig_is_cuda(which) && (where == HOST || !rig_is_process(which)));
}

/* ---- Streams ------------------------------------------------------------------------------------------ */

static const struct chain {
	const char *name;
	enum where where[3];
	int64_t n;
} chains[] = {
	{ "near", { NEAR, NEAR, NEAR }, 64 },           { "large", { NEAR, NEAR, NEAR }, 500 },
	{ "one element", { NEAR, NEAR, NEAR }, 1 },     { "no element", { NEAR, NEAR, NEAR }, 0 },
	{ "host", { HOST, HOST, HOST }, 33 },           { "near and host", { NEAR, HOST, NEAR }, 40 },
	{ "by handles", { HANDLE, HANDLE, NEAR }, 40 }, { "small, host", { HOST, HOST, HOST }, 7 },
};

#define CHAINS (sizeof chains / sizeof *chains)

static bool suits_chain(enum rig_engine which, uint32_t i)
{
	return suits_where(which, chains[i].where[1]);
}

ParameterizedTestParameters(order, within_a_stream)
{
	return RIG_ROWS(CHAINS, suits_chain);
}

/* Each job reads what the one before wrote: A to B transposed, B to C, C to A transposed, and so on. A
 * priority moves no job past another one of its stream. */
ParameterizedTest(struct row *row, order, within_a_stream)
{
	enum { JOBS = 25 };
	const struct chain *chain = &chains[row->i];
	const size_t count = (size_t)(chain->n * chain->n);
	static struct work work[JOBS];
	struct engine_stream *stream;
	struct memory memory[3];

	rig_open(row->engine, chain->name);
	stream = engine_stream_new(engine, &owner);
	for (int i = 0; i < 3; i++)
		memory[i] = memory_new(kind_of(chain->where[i]), count * 4 + 4);
	for (size_t i = 0; i < count; i++)
		((uint32_t *)(void *)memory[0].bytes)[i] = (uint32_t)i + 1;
	for (int i = 0; i < JOBS; i++) {
		work_init_square(&work[i], chain->n, i % 2 == 0, &memory[(i + 1) % 3], &memory[i % 3]);
		work[i].job.share.priority = (enum job_priority)(i * 2 % 3);
		submit(stream, &work[i]);
	}
	wait_done(JOBS);
	for (int i = 0; i < JOBS; i++) {
		cr_assert_eq(done[i], &work[i].job, "%s: job %d came out of order", rig_text, i);
		cr_assert_eq(work[i].job.status, 0, "%s: job %d: %d", rig_text, i, work[i].job.status);
		cr_assert(work[i].job.begun, "%s: job %d", rig_text, i);
		cr_assert(work[i].job.is_measured || rig_is_cuda(row->engine),
		          "%s: job %d: no other stream was there", rig_text, i);
	}
	const uint32_t *last = (const uint32_t *)(const void *)memory[JOBS % 3].bytes;
	for (int64_t r = 0; r < chain->n; r++) /* 13 of the jobs transpose */
		for (int64_t c = 0; c < chain->n; c++)
			cr_assert_eq(last[r * chain->n + c], c * chain->n + r + 1, "%s: [%ld, %ld]", rig_text,
			             (long)r, (long)c);
	cr_assert_eq(last[count], 0, "%s", rig_text);
	engine_reap(engine);
	cr_assert_eq(n_done, JOBS, "%s: each comes back once", rig_text);
	engine_stream_free(engine, stream);
	for (int i = 0; i < 3; i++)
		memory_free(&memory[i]);
	rig_close();
}

ParameterizedTestParameters(order, many_streams)
{
	return RIG_ROWS(1, NULL);
}

/* There are more streams than the engine keeps under way at once. Each has a chain of its own, in default or
 * host memory. */
ParameterizedTest(struct row *row, order, many_streams)
{
	enum { STREAMS = 40, JOBS = 6, N = 20 };
	static struct work work[STREAMS][JOBS];
	struct engine_stream *stream[STREAMS];
	struct memory memory[STREAMS][2];

	rig_open(row->engine, "");
	for (int s = 0; s < STREAMS; s++) {
		stream[s] = engine_stream_new(engine, &owner);
		for (int i = 0; i < 2; i++)
			memory[s][i] = memory_new(kind_of(s % 2 ? HOST : NEAR), N * N * 4);
		for (int i = 0; i < N * N; i++)
			((uint32_t *)(void *)memory[s][0].bytes)[i] = (uint32_t)(s * 100000 + i);
	}
	for (int j = 0; j < JOBS; j++)
		for (int s = 0; s < STREAMS; s++) {
			work_init_square(&work[s][j], N, true, &memory[s][(j + 1) % 2], &memory[s][j % 2]);
			submit(stream[s], &work[s][j]);
		}
	wait_done(STREAMS * JOBS);
	for (int s = 0; s < STREAMS; s++) {
		for (int i = 0; i < N * N; i++)
			cr_assert_eq(((uint32_t *)(void *)memory[s][JOBS % 2].bytes)[i],
			             (uint32_t)(s * 100000 + i), "%s: stream %d, element %d", rig_text, s, i);
		engine_stream_free(engine, stream[s]);
		memory_free(&memory[s][0]);
		memory_free(&memory[s][1]);
	}
	rig_close();
}

/* ---- Owners ------------------------------------------------------------------------------------------- */

#define OWNERS_STREAMS 60

/* Submits many jobs of one owner, each in a stream of its own, and last a job of another owner; all wait for
 * the same value of a word. Returns how many of the first owner's jobs came back before the other's. */
static size_t turn_of_the_last(const struct memory *word, uint64_t value, int64_t n)
{
	enum { STREAMS = OWNERS_STREAMS };
	const uint64_t bytes = (uint64_t)(n * n * 4);
	static struct work work[STREAMS + 1];
	struct engine_stream *streams[STREAMS + 1];
	struct memory to[STREAMS + 1], from = memory_new(memory_kind(), bytes);
	struct engine_owner second;
	size_t turn = 0;

	engine_owner_init(&second);
	n_done = 0;
	for (int i = 0; i <= STREAMS; i++) {
		streams[i] = engine_stream_new(engine, i < STREAMS ? &owner : &second);
		to[i] = memory_new(memory_kind(), bytes);
		work_init_square(&work[i], n, true, &to[i], &from);
		work[i].job.wait = (struct engine_point){ word->of, 0, value };
		work[i].job.wait_until_ns = UINT64_MAX;
		submit(streams[i], &work[i]);
	}
	word_set(word, 0, value);
	wait_done(STREAMS + 1);
	while (done[turn] != &work[STREAMS].job)
		turn++;
	for (int i = 0; i <= STREAMS; i++) {
		engine_stream_free(engine, streams[i]);
		memory_free(&to[i]);
	}
	engine_owner_deinit(&second);
	memory_free(&from);
	works_free();
	return turn;
}

ParameterizedTestParameters(order, owners_share)
{
	return RIG_ROWS(1, NULL);
}

/* All streams of an owner share its turn, so an owner with one stream that comes last does not wait for all
 * of another's. On a busy machine the thread that polls the word can be stopped between two of the jobs while
 * the others already run; the test fails only if it finds no fair order in all tries. */
ParameterizedTest(struct row *row, order, owners_share)
{
	size_t turn = OWNERS_STREAMS;
	struct memory word;

	if (rig_is_cuda(row->engine))
		setenv("SOFTGPU_SLOW_US", "1000", 1);
	rig_open(row->engine, "");
	word = memory_new(memory_kind(), 4096);
	for (uint64_t i = 1; i <= 20 && turn >= OWNERS_STREAMS / 2; i++)
		turn = turn_of_the_last(&word, i, rig_is_cuda(row->engine) ? 100 : 300);
	cr_assert_lt(turn, OWNERS_STREAMS / 2, "%s: %zu of the other owner's %d jobs came first", rig_text,
	             turn, OWNERS_STREAMS);
	memory_free(&word);
	rig_close();
}

/* ---- Points ------------------------------------------------------------------------------------------- */

/* Jobs copy 4 KiB of ones to zeros; they wait for word 0 and signal the word at byte 8. */
static struct engine_stream *stream, *other;
static struct memory dst, src, words;

static void open_points(enum rig_engine which, const char *name, enum where where)
{
	rig_open(which, name);
	stream = engine_stream_new(engine, &owner);
	other = engine_stream_new(engine, &owner);
	dst = memory_new(memory_kind(), 4096);
	src = memory_new(memory_kind(), 4096);
	words = memory_new(kind_of(where), 4096);
	memset(src.bytes, 1, 4096);
}

static void close_points(void)
{
	engine_stream_free(engine, stream);
	engine_stream_free(engine, other);
	memory_free(&dst);
	memory_free(&src);
	memory_free(&words);
	rig_close();
}

static void submit_waiting(struct work *work, uint64_t value, uint64_t until_ns)
{
	work_init_square(work, 32, true, &dst, &src);
	work->job.wait = (struct engine_point){ words.of, 0, value };
	work->job.wait_until_ns = until_ns;
	work->job.signal = (struct engine_point){ words.of, 8, 7 };
	submit(stream, work);
}

static bool is_moved(void)
{
	return dst.bytes[0] == 1 && memcmp(dst.bytes, dst.bytes + 1, 4095) == 0;
}

static bool is_untouched(void)
{
	return dst.bytes[0] == 0 && memcmp(dst.bytes, dst.bytes + 1, 4095) == 0 && word_get(&words, 8) == 0;
}

static const struct point {
	const char *name;
	enum where where;
	uint64_t word, value;
	bool has_come;
} points[] = {
	{ "equal", NEAR, 5, 5, true },
	{ "equal, host", HOST, 5, 5, true },
	{ "past", NEAR, UINT64_C(1) << 40, 5, true },
	{ "short", NEAR, 4, 5, false },
	{ "short, host", HOST, 4, 5, false },
	{ "high half short", NEAR, UINT64_C(0x1ffffffff), UINT64_C(0x200000000), false },
	{ "past the end", NEAR, 2, UINT64_MAX - 3, true },
	{ "past the end, short", NEAR, UINT64_MAX - 3, 2, false },
	{ "as far as it goes", NEAR, INT64_MAX, 0, true },
	{ "farther", NEAR, UINT64_C(1) << 63, 0, false },
};

#define POINTS (sizeof points / sizeof *points)

static bool suits_point(enum rig_engine which, uint32_t i)
{
	return suits_where(which, points[i].where);
}

ParameterizedTestParameters(order, a_point)
{
	return RIG_ROWS(POINTS, suits_point);
}

/* A point that has not been reached has a deadline that has passed. */
ParameterizedTest(struct row *row, order, a_point)
{
	const struct point *point = &points[row->i];
	static struct work first, next;

	open_points(row->engine, point->name, point->where);
	word_set(&words, 0, point->word);
	submit_waiting(&first, point->value, 1);
	wait_done(1);
	cr_assert_eq(first.job.status, point->has_come ? 0 : STATUS_TIMEOUT, "%s: %d", rig_text,
	             first.job.status);
	cr_assert_eq(first.job.begun, point->has_come, "%s", rig_text);
	cr_assert(point->has_come ? is_moved() && word_get(&words, 8) == 7 : is_untouched(), "%s", rig_text);
	work_init_square(&next, 32, true, &dst, &src);
	submit(stream, &next);
	wait_done(2);
	cr_assert_eq(next.job.status, 0, "%s: %d", rig_text, next.job.status);
	close_points();
}

static bool suits_words(enum rig_engine which, uint32_t i)
{
	return suits_where(which, (enum where)i);
}

ParameterizedTestParameters(order, a_deadline)
{
	return RIG_ROWS(WHERES, suits_words);
}

/* The deadline passes while the job waits for its point. The job does not end before the deadline, and moves
 * nothing; the next one of its stream runs. */
ParameterizedTest(struct row *row, order, a_deadline)
{
	static struct work late, next;
	uint64_t until_ns;

	open_points(row->engine, where_names[row->i], (enum where)row->i);
	until_ns = clock_ns() + 20000000;
	submit_waiting(&late, 1, until_ns);
	work_init_square(&next, 32, true, &dst, &src);
	submit(stream, &next);
	wait_done(1);
	cr_assert_geq(clock_ns(), until_ns, "%s", rig_text);
	wait_done(2);
	cr_assert_eq(done[0], &late.job, "%s", rig_text);
	cr_assert_eq(late.job.status, STATUS_TIMEOUT, "%s: %d", rig_text, late.job.status);
	cr_assert_not(late.job.begun, "%s", rig_text);
	cr_assert_eq(word_get(&words, 8), 0, "%s: it was signalled", rig_text);
	cr_assert_eq(next.job.status, 0, "%s: %d", rig_text, next.job.status);
	cr_assert(is_moved(), "%s", rig_text);
	close_points();
}

ParameterizedTestParameters(order, a_deadline_to_begin)
{
	return RIG_ROWS(WHERES, suits_words);
}

/* A deadline to start passes while one job waits behind another one of its stream, and another waits for a
 * point of its own. Neither moves or signals anything; a job that starts in time runs. */
ParameterizedTest(struct row *row, order, a_deadline_to_begin)
{
	static struct work first, behind, waiting, next;
	struct memory aside;
	uint64_t until_ns;

	open_points(row->engine, where_names[row->i], (enum where)row->i);
	aside = memory_new(memory_kind(), 4096);
	until_ns = clock_ns() + 20000000;
	work_init_square(&first, 32, true, &aside, &src);
	first.job.wait = (struct engine_point){ words.of, 0, 1 };
	first.job.wait_until_ns = UINT64_MAX;
	submit(stream, &first);
	work_init_square(&behind, 32, true, &dst, &src);
	behind.job.share.begin_until_ns = until_ns;
	behind.job.signal = (struct engine_point){ words.of, 8, 7 };
	submit(stream, &behind);
	work_init_square(&waiting, 32, true, &dst, &src);
	waiting.job.wait = (struct engine_point){ words.of, 0, 2 };
	waiting.job.wait_until_ns = UINT64_MAX;
	waiting.job.share.begin_until_ns = until_ns;
	waiting.job.signal = (struct engine_point){ words.of, 8, 7 };
	submit(other, &waiting);
	wait_done(1);
	cr_assert_eq(done[0], &waiting.job, "%s", rig_text);
	cr_assert_geq(clock_ns(), until_ns, "%s", rig_text);
	word_set(&words, 0, 1);
	wait_done(3);
	cr_assert_eq(first.job.status, 0, "%s: %d", rig_text, first.job.status);
	cr_assert_eq(waiting.job.status, STATUS_TIMEOUT, "%s: %d", rig_text, waiting.job.status);
	cr_assert_eq(behind.job.status, STATUS_TIMEOUT, "%s: %d", rig_text, behind.job.status);
	cr_assert(!waiting.job.begun && !behind.job.begun, "%s", rig_text);
	cr_assert(is_untouched(), "%s", rig_text);
	work_init_square(&next, 32, true, &dst, &src);
	next.job.share.begin_until_ns = UINT64_MAX;
	submit(stream, &next);
	wait_done(4);
	cr_assert_eq(next.job.status, 0, "%s: %d", rig_text, next.job.status);
	cr_assert(is_moved(), "%s", rig_text);
	memory_free(&aside);
	close_points();
}

ParameterizedTestParameters(order, waiting_holds_back_its_stream_alone)
{
	return RIG_ROWS(WHERES, suits_words);
}

ParameterizedTest(struct row *row, order, waiting_holds_back_its_stream_alone)
{
	enum { OTHERS = 100 };
	static struct work waiting, behind, others[OTHERS];
	struct memory aside;

	open_points(row->engine, where_names[row->i], (enum where)row->i);
	aside = memory_new(memory_kind(), 4096);
	submit_waiting(&waiting, 1, UINT64_MAX);
	work_init_square(&behind, 32, false, &dst, &src);
	submit(stream, &behind);
	for (int i = 0; i < OTHERS; i++) {
		work_init_square(&others[i], 32, true, &aside, &src);
		submit(other, &others[i]);
	}
	wait_done(OTHERS);
	for (int i = 0; i < OTHERS; i++)
		cr_assert_eq(done[i], &others[i].job, "%s: job %d", rig_text, i);
	cr_assert(is_untouched(), "%s", rig_text);
	word_set(&words, 0, 1);
	wait_done(OTHERS + 2);
	cr_assert_eq(done[OTHERS], &waiting.job, "%s", rig_text);
	cr_assert_eq(waiting.job.status, 0, "%s: %d", rig_text, waiting.job.status);
	cr_assert_eq(behind.job.status, 0, "%s: %d", rig_text, behind.job.status);
	memory_free(&aside);
	close_points();
}

ParameterizedTestParameters(order, signals)
{
	return RIG_ROWS(WHERES, suits_words);
}

/* Jobs without an element signal too, and so do jobs to the host. Each signals after all before it, so that
 * the word never decreases. */
ParameterizedTest(struct row *row, order, signals)
{
	enum { JOBS = 150 };
	static struct work work[JOBS];
	struct memory host;
	uint64_t seen = 0;

	open_points(row->engine, where_names[row->i], (enum where)row->i);
	host = memory_new(REGION_KIND_MEMFD, 4096);
	for (int i = 0; i < JOBS; i++) {
		work_init_square(&work[i], i % 3 ? 32 : 0, i % 2, i % 5 ? &dst : &host, &src);
		work[i].job.signal = (struct engine_point){ words.of, 8, (uint64_t)i + 1 };
		submit(stream, &work[i]);
	}
	while (n_done < JOBS) {
		const uint64_t now = word_get(&words, 8);

		cr_assert_geq(now, seen, "%s", rig_text);
		seen = now;
		wait_done(n_done + 1);
	}
	cr_assert_eq(word_get(&words, 8), JOBS, "%s", rig_text);
	for (int i = 0; i < JOBS; i++)
		cr_assert_eq(work[i].job.status, 0, "%s: job %d: %d", rig_text, i, work[i].job.status);
	memory_free(&host);
	close_points();
}

ParameterizedTestParameters(order, points_in_no_order)
{
	return RIG_ROWS(WHERES, suits_words);
}

/* Each stream waits for a word of its own. The words are set in another order, and each releases its own job
 * alone. Another stream waits all the while, and other jobs run. */
ParameterizedTest(struct row *row, order, points_in_no_order)
{
	enum { STREAMS = 150 };
	static struct work work[STREAMS], others[STREAMS], stuck;
	struct engine_stream *streams[STREAMS];
	struct memory many;

	open_points(row->engine, where_names[row->i], (enum where)row->i);
	many = memory_new(kind_of((enum where)row->i), STREAMS * 64);
	submit_waiting(&stuck, 1, UINT64_MAX);
	for (int i = 0; i < STREAMS; i++) {
		streams[i] = engine_stream_new(engine, &owner);
		work_init_square(&work[i], 16, true, &dst, &src);
		work[i].job.wait = (struct engine_point){ many.of, (uint64_t)i * 64, 1 };
		work[i].job.wait_until_ns = UINT64_MAX;
		submit(streams[i], &work[i]);
	}
	for (size_t n = 0; n < STREAMS; n++) {
		/* This visits each stream once, because STREAMS and 37 are coprime. */
		const size_t i = n * 37 % STREAMS;

		work_init_square(&others[n], 16, true, &dst, &src);
		submit(other, &others[n]);
		wait_done(2 * n + 1);
		cr_assert_eq(done[2 * n], &others[n].job, "%s: job %zu", rig_text, n);
		word_set(&many, i * 64, 1);
		wait_done(2 * n + 2);
		cr_assert_eq(done[2 * n + 1], &work[i].job, "%s: stream %zu", rig_text, i);
		cr_assert_eq(work[i].job.status, 0, "%s: stream %zu", rig_text, i);
	}
	engine_stream_cancel(engine, stream);
	wait_done(2 * STREAMS + 1);
	cr_assert_eq(stuck.job.status, STATUS_CANCELED, "%s: %d", rig_text, stuck.job.status);
	for (int i = 0; i < STREAMS; i++)
		engine_stream_free(engine, streams[i]);
	memory_free(&many);
	close_points();
}

/* ---- A buffer handed back and forth ------------------------------------------------------------------- */

enum { WINDOW = 16, PATTERNS = 7, PRODUCER = 0, CONSUMER = 1 };

static const struct handoff {
	const char *name;
	enum where words, memory;
	int64_t n;
	long rounds; /* at TEST_SHARE 1; other shares run fewer */
	bool transposed;
} handoffs[] = {
	{ "small", NEAR, NEAR, 8, 2000, false },
	{ "transposed", NEAR, NEAR, 48, 1000, true },
	{ "words on the host", HOST, NEAR, 8, 2000, false },
	{ "on the host", NEAR, HOST, 32, 500, false },
	{ "transposed on the host", HOST, HOST, 24, 300, true },
};

#define HANDOFFS (sizeof handoffs / sizeof *handoffs)

static bool suits_handoff(enum rig_engine which, uint32_t i)
{
	return suits_where(which, handoffs[i].words) && suits_where(which, handoffs[i].memory);
}

static struct memory buffer, out, from;

/* Submits round i of both sides: the producer waits until the buffer has been emptied i times, and signals
 * that it has been filled i + 1 times. */
static void submit_round(struct work work[2][WINDOW], const struct handoff *row, long i)
{
	const uint64_t bytes = (uint64_t)(row->n * row->n * 4);
	const struct engine_point filled = { words.of, 8, (uint64_t)i + 1 };
	const struct engine_point emptied = { words.of, 72, (uint64_t)i + 1 },
				  was_emptied = { words.of, 72, (uint64_t)i };

	for (int side = CONSUMER; side >= PRODUCER; side--) {
		struct engine_job *job = &work[side][i % WINDOW].job;

		job->wait = side == PRODUCER ? was_emptied : filled;
		job->signal = side == PRODUCER ? filled : emptied;
		job->wait_until_ns = UINT64_MAX;
		if (side == PRODUCER)
			job->move.src_offset = (uint64_t)(i % PATTERNS) * bytes;
		else
			job->move.dst_offset = (uint64_t)(i % WINDOW) * bytes;
		submit(side == PRODUCER ? stream : other, &work[side][i % WINDOW]);
	}
}

static void check_round(struct work work[2][WINDOW], const struct handoff *row, long i)
{
	const size_t bytes = (size_t)(row->n * row->n * 4);
	unsigned char *has = out.bytes + (size_t)(i % WINDOW) * bytes;

	for (int side = 0; side < 2; side++)
		cr_assert_eq(work[side][i % WINDOW].job.status, 0, "%s: round %ld, side %d: %d", rig_text, i,
		             side, work[side][i % WINDOW].job.status);
	cr_assert_eq(memcmp(has, from.bytes + (size_t)(i % PATTERNS) * bytes, bytes), 0,
	             "%s: round %ld: other bytes", rig_text, i);
	memset(has, 0xee, bytes);
}

ParameterizedTestParameters(order, handed_back_and_forth)
{
	return RIG_ROWS(HANDOFFS, suits_handoff);
}

/* The consumer's job is submitted first each time, so that only the points keep the order. */
ParameterizedTest(struct row *row, order, handed_back_and_forth)
{
	static struct work work[2][WINDOW];
	const struct handoff *handoff = &handoffs[row->i];
	const uint64_t bytes = (uint64_t)(handoff->n * handoff->n * 4);
	const long rounds = tap_portion(handoff->rounds);

	open_points(row->engine, handoff->name, handoff->words);
	from = memory_new(kind_of(handoff->memory), PATTERNS * bytes);
	out = memory_new(kind_of(handoff->memory), WINDOW * bytes);
	buffer = memory_new(kind_of(handoff->memory), bytes);
	/* Each pattern differs from the one before in every byte. */
	for (uint64_t i = 0; i < PATTERNS * bytes; i++)
		from.bytes[i] = (unsigned char)(i % bytes * 31 + i / bytes * 37);
	for (int i = 0; i < WINDOW; i++) {
		work_init_square(&work[PRODUCER][i], handoff->n, handoff->transposed, &buffer, &from);
		work_init_square(&work[CONSUMER][i], handoff->n, handoff->transposed, &out, &buffer);
	}
	for (long i = 0; i < rounds + WINDOW; i++) {
		if (i >= WINDOW && i - WINDOW < rounds) {
			while (work[PRODUCER][i % WINDOW].is_submitted ||
			       work[CONSUMER][i % WINDOW].is_submitted)
				wait_done(n_done + 1);
			check_round(work, handoff, i - WINDOW);
		}
		if (i < rounds)
			submit_round(work, handoff, i);
	}
	cr_assert_eq(word_get(&words, 8), (uint64_t)rounds, "%s", rig_text);
	cr_assert_eq(word_get(&words, 72), (uint64_t)rounds, "%s", rig_text);
	memory_free(&from);
	memory_free(&out);
	memory_free(&buffer);
	close_points();
}
