/* SPDX-License-Identifier: Apache-2.0 */
/* Tests jobs that are cancelled, miss their deadline, change values in an exact cast, or fail with their
 * memory. Each ends in its turn and leaves the others as they are. */
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "rig.h"
#include "tests/support/prepared.h"

TestSuite(ends, .timeout = 120);

/* A job copies 4 KiB of ones to zeros, to a page of its own. */
enum { PAGE = 4096, PAGES = 64, EDGE = 32 };

static struct engine_stream *stream, *other;
static struct memory dst, src, words;
static struct memory client; /* a test makes its file shorter */

static void open_between(enum rig_engine which, const char *name, bool is_host)
{
	rig_open(which, name);
	stream = engine_stream_new(engine, &owner);
	other = engine_stream_new(engine, &owner);
	dst = memory_new(is_host ? REGION_KIND_MEMFD : memory_kind(), PAGES * PAGE);
	src = memory_new(is_host ? REGION_KIND_MEMFD : memory_kind(), PAGE);
	words = memory_new(memory_kind(), PAGE);
	memset(src.bytes, 1, PAGE);
}

static void open_all(enum rig_engine which, const char *name)
{
	open_between(which, name, false);
}

static void close_all(void)
{
	engine_stream_free(engine, stream);
	engine_stream_free(engine, other);
	memory_free(&dst);
	memory_free(&src);
	memory_free(&words);
	rig_close();
}

static void work_init_page(struct work *work, uint64_t page)
{
	work_init_square(work, EDGE, true, &dst, &src);
	work->job.move.dst_offset = page * PAGE;
}

static void wait_for(struct work *work, uint64_t value)
{
	work->job.wait = (struct engine_point){ words.of, 0, value };
	work->job.wait_until_ns = UINT64_MAX;
}

static bool page_is(uint64_t page, unsigned char value)
{
	const unsigned char *at = dst.bytes + page * PAGE;

	return at[0] == value && memcmp(at, at + 1, PAGE - 1) == 0;
}

/* ---- Cancelled ---------------------------------------------------------------------------------------- */

ParameterizedTestParameters(ends, cancel_one)
{
	return RIG_ROWS(1, NULL);
}

/* The first job waits for its point, and the others wait for their turn behind it. */
ParameterizedTest(struct row *row, ends, cancel_one)
{
	static struct work work[4];

	open_all(row->engine, "");
	for (size_t i = 0; i < 4; i++) {
		work_init_page(&work[i], i);
		if (i != 3)
			wait_for(&work[i], i == 2 ? 2 : 1);
		submit(stream, &work[i]);
	}
	cancel(stream, &work[1]);
	cancel(stream, &work[0]);
	wait_done(2);
	for (uint64_t i = 0; i < 2; i++) {
		cr_assert_eq(work[i].job.status, STATUS_CANCELED, "%s: job %lu: %d", rig_text, i,
		             work[i].job.status);
		cr_assert_not(work[i].job.begun, "%s: job %lu", rig_text, i);
	}
	word_set(&words, 0, 2);
	wait_done(4);
	for (uint64_t i = 0; i < 4; i++) {
		cr_assert_eq(work[i].job.status, i < 2 ? STATUS_CANCELED : 0, "%s: job %lu: %d", rig_text, i,
		             work[i].job.status);
		cr_assert(page_is(i, i >= 2), "%s: job %lu", rig_text, i);
	}
	close_all();
}

ParameterizedTestParameters(ends, cancel_what_has_begun)
{
	return RIG_ROWS(1, NULL);
}

/* The job has signalled, but has not been reaped. */
ParameterizedTest(struct row *row, ends, cancel_what_has_begun)
{
	static struct work work;

	open_all(row->engine, "");
	work_init_page(&work, 0);
	work.job.signal = (struct engine_point){ words.of, 8, 1 };
	submit(stream, &work);
	drive();
	while (word_get(&words, 8) != 1)
		usleep(100);
	cr_assert_not(engine_cancel(engine, stream, &work.job), "%s", rig_text);
	wait_done(1);
	cr_assert_eq(work.job.status, 0, "%s: %d", rig_text, work.job.status);
	cr_assert(page_is(0, 1), "%s", rig_text);
	close_all();
}

ParameterizedTestParameters(ends, cancel_a_stream_that_waits)
{
	return RIG_ROWS(1, NULL);
}

/* The stream goes on as a new one would. */
ParameterizedTest(struct row *row, ends, cancel_a_stream_that_waits)
{
	enum { JOBS = 30 };
	static struct work work[JOBS + 1];

	open_all(row->engine, "");
	for (size_t i = 0; i < JOBS; i++) {
		work_init_page(&work[i], i);
		if (i == 0)
			wait_for(&work[i], 1);
		work[i].job.signal = (struct engine_point){ words.of, 8, 1 };
		submit(stream, &work[i]);
	}
	engine_stream_cancel(engine, other); /* has no jobs */
	engine_stream_cancel(engine, stream);
	work_init_page(&work[JOBS], JOBS);
	submit(stream, &work[JOBS]);
	wait_done(JOBS + 1);
	for (uint64_t i = 0; i <= JOBS; i++) {
		cr_assert_eq(done[i], &work[i].job, "%s: job %lu", rig_text, i);
		cr_assert_eq(work[i].job.status, i < JOBS ? STATUS_CANCELED : 0, "%s: job %lu: %d", rig_text,
		             i, work[i].job.status);
		cr_assert_eq(work[i].job.begun, i == JOBS, "%s: job %lu", rig_text, i);
		cr_assert(page_is(i, i == JOBS), "%s: job %lu", rig_text, i);
	}
	cr_assert_eq(word_get(&words, 8), 0, "%s: it was signalled", rig_text);
	close_all();
}

static bool suits_between(enum rig_engine which, uint32_t i)
{
	return i == 0 || rig_is_cuda(which);
}

ParameterizedTestParameters(ends, cancel_a_stream_that_runs)
{
	return RIG_ROWS(2, suits_between);
}

/* The stream is cancelled after n of its jobs have come back. These have succeeded, and the rest end as
 * cancelled, in order; jobs that had not started have written nothing. */
ParameterizedTest(struct row *row, ends, cancel_a_stream_that_runs)
{
	enum { JOBS = 12 };
	static struct work work[JOBS + 1];

	open_between(row->engine, row->i ? "host" : "near", row->i);
	for (size_t n = 0; n < JOBS; n++) {
		memset(dst.bytes, 0, PAGES * PAGE);
		n_done = 0;
		for (size_t i = 0; i <= JOBS; i++)
			work_init_page(&work[i], i);
		for (int i = 0; i < JOBS; i++)
			submit(stream, &work[i]);
		wait_done(n);
		engine_stream_cancel(engine, stream);
		submit(stream, &work[JOBS]);
		wait_done(JOBS + 1);
		for (uint64_t i = 0; i < JOBS; i++) {
			const int status = work[i].job.status;
			const bool is_behind = i > 0 && work[i - 1].job.status;

			cr_assert_eq(done[i], &work[i].job, "%s: after %lu: job %lu", rig_text, n, i);
			cr_assert(status == STATUS_CANCELED || (status == 0 && !is_behind),
			          "%s: after %lu: job %lu: %d", rig_text, n, i, status);
			cr_assert(status || page_is(i, 1), "%s: after %lu: job %lu", rig_text, n, i);
			cr_assert(work[i].job.begun || page_is(i, 0), "%s: after %lu: job %lu", rig_text, n,
			          i);
			cr_assert(i >= n || status == 0, "%s: after %lu: job %lu: %d", rig_text, n, i,
			          status);
		}
		cr_assert_eq(work[JOBS].job.status, 0, "%s: after %lu", rig_text, n);
		cr_assert(page_is(JOBS, 1), "%s: after %lu", rig_text, n);
		works_free();
	}
	close_all();
}

ParameterizedTestParameters(ends, cancel_as_the_point_comes)
{
	return RIG_ROWS(1, NULL);
}

/* Each job has run whole or not at all. The memory of its words is freed as soon as it has come back, so that
 * an engine that still read a word would fail. */
ParameterizedTest(struct row *row, ends, cancel_as_the_point_comes)
{
	enum { ROUNDS = 100 };
	static struct work work[2];

	open_all(row->engine, "");
	for (int round = 0; round < ROUNDS; round++) {
		bool is_cancelled[2];

		memset(dst.bytes, 0, 2 * PAGE);
		n_done = 0;
		for (size_t i = 0; i < 2; i++) {
			work_init_page(&work[i], i);
			wait_for(&work[i], 1);
			work[i].job.signal = (struct engine_point){ words.of, 8 + 8 * i, 7 };
			submit(stream, &work[i]);
		}
		if (round % 3)
			word_set(&words, 0, 1);
		for (int i = 0; i < 2; i++)
			is_cancelled[i] = engine_cancel(engine, stream, &work[i].job);
		if (round % 3 == 0 && !(is_cancelled[0] && is_cancelled[1])) {
			cr_assert(rig_is_process(row->engine), "%s: it cannot have started", rig_text);
			word_set(&words, 0, 1); /* the engine's process did not answer in time */
		}
		wait_done(2);
		for (uint64_t i = 0; i < 2; i++) {
			const int status = work[i].job.status;

			cr_assert(status == 0 || status == STATUS_CANCELED, "%s: round %d: job %lu: %d",
			          rig_text, round, i, status);
			cr_assert(!is_cancelled[i] == !status || (status && rig_is_process(row->engine)),
			          "%s: round %d: job %lu: %d", rig_text, round, i, status);
			cr_assert_eq(work[i].job.begun, !status, "%s: round %d", rig_text, round);
			cr_assert(page_is(i, !status), "%s: round %d: job %lu", rig_text, round, i);
			cr_assert_eq(word_get(&words, 8 + 8 * i), status ? 0 : 7, "%s: round %d", rig_text,
			             round);
		}
		memory_free(&words);
		words = memory_new(memory_kind(), PAGE);
		works_free();
	}
	close_all();
}

/* ---- Batches ------------------------------------------------------------------------------------------ */

enum never { LATE, CANCELLED, STREAM_CANCELLED, GONE, NEVERS };

static const struct {
	const char *name;
	int status;
} nevers[NEVERS] = {
	[LATE] = { "late", STATUS_TIMEOUT },
	[CANCELLED] = { "cancelled", STATUS_CANCELED },
	[STREAM_CANCELLED] = { "stream cancelled", STATUS_CANCELED },
	[GONE] = { "its word gone", STATUS_DEVICE },
};

ParameterizedTestParameters(ends, a_batch_that_never_starts)
{
	return RIG_ROWS(NEVERS, NULL);
}

/* Each move of the batch gets the status of the batch. */
ParameterizedTest(struct row *row, ends, a_batch_that_never_starts)
{
	enum { MOVES = 3 };
	static struct work one, batch;
	struct engine_move moves[MOVES];

	open_all(row->engine, nevers[row->i].name);
	for (size_t i = 0; i < MOVES; i++) {
		work_init_page(&one, i);
		moves[i] = one.job.move;
		moves[i].status = 99;
	}
	work_init_batch(&batch, moves, MOVES);
	wait_for(&batch, 1);
	client = memory_of_file(2 * PAGE);
	cr_assert_eq(ftruncate(client.fd, PAGE), 0);
	if (row->i == GONE)
		batch.job.wait = (struct engine_point){ client.of, PAGE, 1 };
	if (row->i == LATE)
		batch.job.wait_until_ns = 1;
	submit(stream, &batch);
	if (row->i == CANCELLED)
		cancel(stream, &batch);
	if (row->i == STREAM_CANCELLED)
		engine_stream_cancel(engine, stream);
	wait_done(1);
	cr_assert_eq(batch.job.status, nevers[row->i].status, "%s: %d", rig_text, batch.job.status);
	for (uint64_t i = 0; i < MOVES; i++) {
		cr_assert_eq(moves[i].status, nevers[row->i].status, "%s: move %lu: %d", rig_text, i,
		             moves[i].status);
		cr_assert(page_is(i, 0), "%s: move %lu", rig_text, i);
	}
	memory_free(&client);
	close_all();
}

/* ---- Values that a cast changes ----------------------------------------------------------------------- */

/* Makes a cast of float32 [64] to int8, where the values count up from 100, so that all but the first 28 are
 * too large. */
static void work_init_cast(struct work *work, uint64_t offset, enum cast cast)
{
	struct transform_spec spec = {
		.n_perm = -1, .n_before = -1, .n_after = -1, .conversion = { .is_given = true, .cast = cast }
	};
	const int64_t shape[] = { 64 };
	struct error err;

	tensor_layout_init(&spec.dst, DTYPE_INT8, 1, shape, NULL, "dst", &err);
	tensor_layout_init(&spec.src, DTYPE_FLOAT32, 1, shape, NULL, "src", &err);
	work_init(work, &spec, NULL, &dst, offset, &src, 0);
}

static bool is_saturated(uint64_t offset)
{
	for (int i = 0; i < 64; i++)
		if (dst.bytes[offset + (uint64_t)i] != (i < 28 ? 100 + i : 127))
			return false;
	return true;
}

ParameterizedTestParameters(ends, an_exact_cast)
{
	return RIG_ROWS(1, NULL);
}

/* The job ends with OUT_OF_RANGE, reports how many values changed, leaves the nearest ones and signals
 * nothing. In a batch, only the move that changes values fails. */
ParameterizedTest(struct row *row, ends, an_exact_cast)
{
	static struct work exact, next, batch;
	struct engine_move moves[3];

	open_all(row->engine, "");
	for (int i = 0; i < 64; i++)
		((float *)(void *)src.bytes)[i] = (float)(100 + i);
	work_init_cast(&exact, 0, CAST_EXACT);
	exact.job.signal = (struct engine_point){ words.of, 8, 1 };
	work_init_cast(&next, 64, CAST_SATURATE);
	submit(stream, &exact);
	submit(stream, &next);
	wait_done(2);
	cr_assert_eq(done[0], &exact.job, "%s", rig_text);
	cr_assert_eq(exact.job.status, STATUS_OUT_OF_RANGE, "%s: %d", rig_text, exact.job.status);
	cr_assert_str_eq(job_path(&exact.job), "convert", "%s", rig_text);
	cr_assert_eq(exact.job.move.changed, 36, "%s: %lu", rig_text, exact.job.move.changed);
	cr_assert_eq(word_get(&words, 8), 0, "%s: it was signalled", rig_text);
	cr_assert_eq(next.job.status, 0, "%s: %d", rig_text, next.job.status);
	cr_assert_eq(next.job.move.changed, 0, "%s: %lu", rig_text, next.job.move.changed);
	cr_assert(is_saturated(0) && is_saturated(64), "%s", rig_text);
	for (size_t i = 0; i < 3; i++) {
		work_init_cast(&next, PAGE + 64 * i, i == 1 ? CAST_EXACT : CAST_SATURATE);
		moves[i] = next.job.move;
	}
	work_init_batch(&batch, moves, 3);
	cr_assert_eq(run(stream, &batch), STATUS_OUT_OF_RANGE, "%s: %d", rig_text, batch.job.status);
	for (uint64_t i = 0; i < 3; i++) {
		cr_assert_eq(moves[i].status, i == 1 ? STATUS_OUT_OF_RANGE : 0, "%s: move %lu: %d", rig_text,
		             i, moves[i].status);
		cr_assert_eq(moves[i].changed, i == 1 ? 36 : 0, "%s: move %lu: %lu", rig_text, i,
		             moves[i].changed);
		cr_assert(is_saturated(PAGE + 64 * i), "%s: move %lu", rig_text, i);
	}
	close_all();
}

/* ---- Memory that fails -------------------------------------------------------------------------------- */

enum part {
	SOURCE,
	DESTINATION,
	INDEX,
	LIST_SOURCE,
	LIST_DESTINATION,
	TABLE_SOURCE,
	TABLE_DESTINATION,
	MOVE_SOURCE,
	MOVE_DESTINATION,
	PARTS
};

static const char *const part_names[PARTS] = {
	[SOURCE] = "source",
	[DESTINATION] = "destination",
	[INDEX] = "index of a list",
	[LIST_SOURCE] = "source of a list",
	[LIST_DESTINATION] = "destination of a list",
	[TABLE_SOURCE] = "source of a layer",
	[TABLE_DESTINATION] = "destination of a layer",
	[MOVE_SOURCE] = "source of a move of a batch",
	[MOVE_DESTINATION] = "destination of a move of a batch",
};

/* A client's file is cut to its first page, and a job needs all of it. */
enum { CLIENT_PAGES = 16, BLOCKS = CLIENT_PAGES };

static struct memory far, aside; /* aside is host memory, as is the client's file */

static void work_init_blocks(struct work *work, struct engine_blocks *blocks, enum part part)
{
	struct transform_spec spec = { .n_perm = -1, .n_before = -1, .n_after = -1 };
	const int64_t shape[] = { PAGE };
	static int32_t index[BLOCKS];
	static struct layers good, bad;
	struct error err;

	*blocks = (struct engine_blocks){ .n = BLOCKS,
		                          .layers = 1,
		                          .index_bytes = 4,
		                          .limit = BLOCKS,
		                          .index = part == INDEX ? NULL : index,
		                          .index_memory = part == INDEX ? client.of : NULL,
		                          .index_offset = PAGE - 16,
		                          .dst = { .step = PAGE },
		                          .src = { .step = PAGE } };
	for (int i = 0; i < BLOCKS; i++)
		index[i] = i;
	/* One layer of that side, the second, fails. */
	if (part == TABLE_SOURCE || part == TABLE_DESTINATION) {
		const struct memory *near = part == TABLE_SOURCE ? &dst : &far;

		layers_init(&good, 2, (struct memory[]){ *near, *near },
		            (uint64_t[]){ 0, CLIENT_PAGES * PAGE });
		layers_init(&bad, 2, (struct memory[]){ aside, client }, (uint64_t[]){ 0, 0 });
		blocks->layers = 2;
		blocks_use_table(&blocks->dst, part == TABLE_SOURCE ? &good.table : &bad.table);
		blocks_use_table(&blocks->src, part == TABLE_SOURCE ? &bad.table : &good.table);
	}
	tensor_layout_init(&spec.dst, DTYPE_UINT8, 1, shape, NULL, "dst", &err);
	tensor_layout_init(&spec.src, DTYPE_UINT8, 1, shape, NULL, "src", &err);
	work_init(work, &spec, blocks,
	          part == LIST_DESTINATION    ? &client
	          : part == TABLE_DESTINATION ? &aside
	                                      : &dst,
	          0,
	          part == LIST_SOURCE    ? &client
	          : part == TABLE_SOURCE ? &aside
	                                 : &far,
	          0);
}

/* Makes the job that has `part` in the client's file, and everything else in memory that does not fail. */
static void work_init_bad(struct work *work, struct engine_move moves[3], struct engine_blocks *blocks,
                          enum part part)
{
	const bool is_source = part == SOURCE || part == MOVE_SOURCE;

	if (part >= INDEX && part <= TABLE_DESTINATION) {
		work_init_blocks(work, blocks, part);
		return;
	}
	for (size_t i = 0; i < 3; i++) {
		if (i == 1)
			work_init_copy(work, CLIENT_PAGES * PAGE, is_source ? &dst : &client, 0,
			               is_source ? &client : &far, 0);
		else
			work_init_page(work, CLIENT_PAGES + i);
		moves[i] = work->job.move;
	}
	if (part == SOURCE || part == DESTINATION)
		work_init_copy(work, CLIENT_PAGES * PAGE, is_source ? &dst : &client, 0,
		               is_source ? &client : &far, 0);
	else
		work_init_batch(work, moves, 3);
}

ParameterizedTestParameters(ends, memory_that_fails)
{
	return RIG_ROWS(PARTS, NULL);
}

/* The job ends with DEVICE, and so does its move of a batch; jobs before and after it in its stream, and in
 * another stream, succeed. The engine reports which memory was lost. */
ParameterizedTest(struct row *row, ends, memory_that_fails)
{
	const enum part part = (enum part)row->i;
	const bool is_batch = part >= MOVE_SOURCE;
	static struct work before, bad, after, beside;
	struct engine_blocks blocks;
	struct engine_move moves[3];
	uint64_t bytes = 0;

	open_all(row->engine, part_names[part]);
	client = memory_of_file(CLIENT_PAGES * PAGE);
	far = memory_new(memory_kind(), 2 * CLIENT_PAGES * PAGE);
	aside = memory_new(REGION_KIND_MEMFD, CLIENT_PAGES * PAGE);
	cr_assert_eq(ftruncate(client.fd, PAGE), 0);
	work_init_page(&before, 40);
	work_init_bad(&bad, moves, &blocks, part);
	bad.job.signal = (struct engine_point){ words.of, 8, 1 };
	work_init_page(&after, 41);
	work_init_page(&beside, 42);
	submit(stream, &before);
	submit(stream, &bad);
	submit(stream, &after);
	submit(other, &beside);
	wait_done(4);
	cr_assert_eq(bad.job.status, STATUS_DEVICE, "%s: %d", rig_text, bad.job.status);
	cr_assert_eq(before.job.status, 0, "%s: %d", rig_text, before.job.status);
	cr_assert_eq(after.job.status, 0, "%s: %d", rig_text, after.job.status);
	cr_assert_eq(beside.job.status, 0, "%s: %d", rig_text, beside.job.status);
	for (uint64_t i = 0; i < 3 && is_batch; i++)
		cr_assert_eq(moves[i].status, i == 1 ? STATUS_DEVICE : 0, "%s: move %lu: %d", rig_text, i,
		             moves[i].status);
	cr_assert(page_is(40, 1) && page_is(41, 1) && page_is(42, 1), "%s", rig_text);
	cr_assert(!is_batch || (page_is(CLIENT_PAGES, 1) && page_is(CLIENT_PAGES + 2, 1)), "%s", rig_text);
	/* A CUDA engine judges each move of a batch when the batch has ended, which is after the signal. */
	if (!is_batch || !rig_is_cuda(row->engine))
		cr_assert_eq(word_get(&words, 8), 0, "%s: it was signalled", rig_text);
	cr_assert_eq(engine_memory_loss(client.of, &bytes), ENGINE_LOSS_SHRUNK, "%s", rig_text);
	cr_assert_eq(bytes, PAGE, "%s: %lu", rig_text, bytes);
	cr_assert_not(engine->lost, "%s: %s", rig_text, engine->lost_why);
	memory_free(&client);
	memory_free(&far);
	memory_free(&aside);
	close_all();
}

enum word { WAITED_FOR, WAITED_FOR_LATER, SIGNALLED, WORDS };

static const char *const word_names[WORDS] = {
	[WAITED_FOR] = "waited for",
	[WAITED_FOR_LATER] = "waited for, later",
	[SIGNALLED] = "signalled",
};

ParameterizedTestParameters(ends, words_that_fail)
{
	return RIG_ROWS(WORDS, NULL);
}

/* A job whose word is gone ends with DEVICE. It has moved nothing if it waits for the word, or finds it gone
 * before it starts. */
ParameterizedTest(struct row *row, ends, words_that_fail)
{
	const enum word word = (enum word)row->i;
	const struct engine_point gone = { .offset = PAGE, .value = 1 };
	static struct work bad, well, after;

	open_all(row->engine, word_names[word]);
	client = memory_of_file(2 * PAGE);
	work_init_page(&bad, 0);
	bad.job.wait_until_ns = UINT64_MAX;
	if (word == SIGNALLED)
		bad.job.signal = gone;
	else
		bad.job.wait = gone;
	bad.job.wait.memory = word == SIGNALLED ? NULL : client.of;
	bad.job.signal.memory = word == SIGNALLED ? client.of : NULL;
	work_init_page(&well, 1);
	wait_for(&well, 1);
	work_init_page(&after, 2);
	submit(other, &well);
	if (word == WAITED_FOR_LATER)
		submit(stream, &bad);
	cr_assert_eq(ftruncate(client.fd, PAGE), 0);
	if (word != WAITED_FOR_LATER)
		submit(stream, &bad);
	submit(stream, &after);
	wait_done(2);
	cr_assert_eq(done[0], &bad.job, "%s", rig_text);
	cr_assert_eq(bad.job.status, STATUS_DEVICE, "%s: %d", rig_text, bad.job.status);
	cr_assert(word == SIGNALLED || page_is(0, 0), "%s", rig_text);
	cr_assert_eq(after.job.status, 0, "%s: %d", rig_text, after.job.status);
	word_set(&words, 0, 1);
	wait_done(3);
	cr_assert_eq(well.job.status, 0, "%s: %d", rig_text, well.job.status);
	memory_free(&client);
	close_all();
}

/* ---- Nothing to do ------------------------------------------------------------------------------------ */

ParameterizedTestParameters(ends, of_nothing)
{
	return RIG_ROWS(1, NULL);
}

/* A move, a list and a batch without any element signal as others do. */
ParameterizedTest(struct row *row, ends, of_nothing)
{
	struct engine_blocks blocks = {
		.n = 4, .layers = 1, .index_bytes = 4, .limit = 4, .dst.step = PAGE, .src.step = PAGE
	};
	static struct work work[4];
	struct engine_move move;

	open_all(row->engine, "");
	blocks.index_memory = words.of;
	work_init_square(&work[0], 0, true, &dst, &src);
	work_init_square(&work[1], 0, true, &dst, &src);
	work[1].job.blocks = &blocks;
	work_init_square(&work[2], 0, false, &dst, &src);
	move = work[2].job.move;
	work_init_batch(&work[2], &move, 1);
	work_init_batch(&work[3], &move, 0);
	for (uint64_t i = 0; i < 4; i++) {
		work[i].job.signal = (struct engine_point){ words.of, 64, i + 1 };
		cr_assert_eq(run(stream, &work[i]), 0, "%s: job %lu: %d", rig_text, i, work[i].job.status);
		cr_assert_eq(word_get(&words, 64), i + 1, "%s: job %lu", rig_text, i);
	}
	cr_assert_eq(move.status, 0, "%s: %d", rig_text, move.status);
	cr_assert(page_is(0, 0), "%s", rig_text);
	close_all();
}
