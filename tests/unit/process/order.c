/* SPDX-License-Identifier: Apache-2.0 */
/* Tests order and cancelling if more is submitted than the ring between owner and child has room for. */
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "rig.h"

#define BYTES (1u << 20)
TestSuite(process_order, .timeout = 120);

static struct rig rig;
static struct engine_memory *dst, *src, *words;
static struct engine_stream *stream, *other;

static void open_all(const struct engine_options *options)
{
	rig_open(&rig, "cpu", options);
	dst = rig_make(&rig, REGION_KIND_MEMFD, BYTES);
	src = rig_make(&rig, REGION_KIND_MEMFD, BYTES);
	words = rig_make(&rig, REGION_KIND_MEMFD, 4096);
	stream = engine_stream_new(rig.engine, &rig.owner);
	other = engine_stream_new(rig.engine, &rig.owner);
}

static void close_all(void)
{
	engine_stream_free(rig.engine, stream);
	engine_stream_free(rig.engine, other);
	engine_unmap(rig.engine, dst);
	engine_unmap(rig.engine, src);
	engine_unmap(rig.engine, words);
	rig_close(&rig);
}

static void wait_for_word(struct work *work, uint64_t value)
{
	work->job.wait = (struct engine_point){ words, 0, value };
	work->job.wait_until_ns = UINT64_MAX;
}

static void signal_word(struct work *work, uint64_t value)
{
	work->job.signal = (struct engine_point){ words, 0, value };
}

/* Submits a small job that only serves to signal. */
static void give(struct work *work, uint64_t value)
{
	work_init_copy(work, &rig, 8, dst, BYTES - 8, src, 0);
	signal_word(work, value);
	engine_submit(rig.engine, other, &work->job);
}

/* ---- Canceling ---------------------------------------------------------------------------------------- */

/* ---- Many, and large ---------------------------------------------------------------------------------- */

struct row {
	char name[24];
	bool drives;
	bool held; /* the first job waits until all have been submitted */
};

ParameterizedTestParameters(process_order, a_chain)
{
	static struct row rows[] = {
		{ "run as they come", false, false },
		{ "held", false, true },
		{ "driven", true, false },
		{ "driven and held", true, true },
	};

	return cr_make_param_array(struct row, rows, sizeof rows / sizeof *rows);
}

/* Each job reads what the one before wrote, and there are more than a stream may have sent at a time. */
ParameterizedTest(struct row *row, process_order, a_chain)
{
	enum { JOBS = 20000 };
	static struct work first, signal;
	struct work *work = calloc(JOBS, sizeof *work);

	open_all(&(struct engine_options){ .threads = 2, .drives = row->drives });
	uint64_t *numbers = dst->host;

	work_init_copy(&first, &rig, 8, dst, 0, dst, 8);
	memset(numbers, 0, (JOBS + 2) * 8);
	numbers[0] = 4711;
	for (uint64_t i = 0; i < JOBS; i++) {
		work[i].rig = &rig;
		work[i].job = first.job;
		work[i].job.move.src_offset = i * 8;
		work[i].job.move.dst_offset = (i + 1) * 8;
		if (row->held && i == 0)
			wait_for_word(&work[i], 1);
		engine_submit(rig.engine, stream, &work[i].job);
	}
	if (row->held)
		give(&signal, 1);
	rig_wait(&rig, JOBS + row->held);
	for (uint64_t i = 0; i <= JOBS; i++)
		cr_assert_eq(numbers[i], 4711, "%s: after job %lu", row->name, (unsigned long)i);
	close_all();
	free(work);
}

/* A batch whose message is many times as large as the ring goes between small jobs. */
Test(process_order, a_large_batch)
{
	enum { MOVES = 600 };
	struct work *work = calloc(MOVES, sizeof *work);
	struct engine_move *moves = calloc(MOVES, sizeof *moves);
	static struct work before, after;

	open_all(NULL);
	for (uint64_t i = 0; i < BYTES; i++)
		((unsigned char *)src->host)[i] = (unsigned char)(i * 7 + i / 256);
	for (int64_t i = 0; i < MOVES; i++) {
		work_init_copy(&work[i], &rig, i + 1, dst, (uint64_t)i * 1024, src, (uint64_t)i * 1024);
		moves[i] = work[i].job.move;
	}
	work_init_copy(&before, &rig, 8, dst, 0, src, 8);
	work_init_copy(&after, &rig, 8, dst, BYTES - 8, dst, 1024 * (MOVES - 1));
	work[0].job.moves = moves;
	work[0].job.n_moves = MOVES;
	engine_submit(rig.engine, stream, &before.job);
	engine_submit(rig.engine, stream, &work[0].job);
	engine_submit(rig.engine, stream, &after.job);
	rig_wait(&rig, 3);
	cr_assert_eq(work[0].job.status, 0);
	for (uint64_t i = 0; i < MOVES; i++) {
		cr_assert_eq(moves[i].status, 0, "move %lu: %d", (unsigned long)i, moves[i].status);
		cr_assert_eq(memcmp((char *)dst->host + i * 1024, (char *)src->host + i * 1024, i + 1), 0,
		             "move %lu", (unsigned long)i);
	}
	cr_assert_eq(memcmp((char *)dst->host + BYTES - 8, (char *)src->host + 1024 * (MOVES - 1), 8), 0);
	close_all();
	free(moves);
	free(work);
}

/* A stream may wait for a job that is queued behind another stream's unsent jobs. */
Test(process_order, streams_do_not_wait_for_each_other)
{
	enum { JOBS = 5000 };
	static struct work first, signal;
	struct work *work = calloc(JOBS, sizeof *work);

	open_all(NULL);
	work_init_copy(&first, &rig, 8, dst, 0, src, 0);
	for (int i = 0; i < JOBS; i++) {
		work[i].rig = &rig;
		work[i].job = first.job;
		wait_for_word(&work[i], 1);
		engine_submit(rig.engine, stream, &work[i].job);
	}
	give(&signal, 1);
	rig_wait(&rig, JOBS + 1);
	for (int i = 0; i < JOBS; i++)
		cr_assert_eq(work[i].job.status, 0, "job %d", i);
	close_all();
	free(work);
}

/* Cancelling a stream reaches the child although the ring is full. */
Test(process_order, cancels_what_is_not_sent)
{
	enum { JOBS = 20000 };
	static struct work first;
	struct work *work = calloc(JOBS, sizeof *work);
	int canceled = 0;

	open_all(NULL);
	work_init_copy(&first, &rig, 8, dst, 0, src, 0);
	for (int i = 0; i < JOBS; i++) {
		work[i].rig = &rig;
		work[i].job = first.job;
		wait_for_word(&work[i], 1);
		engine_submit(rig.engine, stream, &work[i].job);
	}
	cr_expect(engine_cancel(rig.engine, stream, &work[JOBS - 1].job));
	engine_stream_cancel(rig.engine, stream);
	rig_wait(&rig, JOBS);
	for (int i = 0; i < JOBS; i++)
		canceled += work[i].job.status == STATUS_CANCELED;
	cr_expect_eq(canceled, JOBS);
	close_all();
	free(work);
}
