/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how moves of a batch become work items, and that each move has its own status. */
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/cpu/run/running_job.h"
#include "rig.h"

#define MOST_MOVES 64

/* Moves that transpose float32 [n[i], n[i]], each in memory of its own. */
struct batch {
	struct engine_job job;
	struct engine_move moves[MOST_MOVES];
	struct work work[MOST_MOVES];
};

static void batch_init(struct batch *batch, uint32_t n_moves, const int64_t *n)
{
	for (uint32_t i = 0; i < n_moves; i++) {
		uint64_t size = (uint64_t)(n[i] * n[i]) * 4 + 4;
		struct engine_memory *dst = new_memory(size), *src = new_memory(size);
		memset(data(src), 1 + (int)i, size);
		work_init(&batch->work[i], n[i], true, dst, src);
		batch->moves[i] = batch->work[i].job.move;
		batch->moves[i].status = 1;
	}
	batch->job = (struct engine_job){ .moves = batch->moves,
		                          .n_moves = n_moves,
		                          .on_done = batch->work[0].job.on_done };
}

/* Starts a batch that is not submitted to a stream. */
static void batch_start(struct batch *batch, struct running_job *running, const struct cpu_tuning *tuning,
                        uint32_t threads)
{
	running_job_clear(&batch->job);
	running_job_start(running, &batch->job, tuning, threads);
}

static void batch_deinit(struct batch *batch)
{
	for (uint32_t i = 0; i < batch->job.n_moves; i++) {
		engine_unmap(engine, batch->moves[i].dst);
		engine_unmap(engine, batch->moves[i].src);
	}
}

/* Returns whether all of a move's bytes have been written or, if all is false, none. */
static bool is_moved(const struct batch *batch, uint32_t i, bool all)
{
	const struct transform *t = batch->moves[i].transform;
	const char *dst = data(batch->moves[i].dst);
	int64_t n = t->count * t->element;
	for (int64_t at = 0; at < n; at++)
		if (dst[at] != (all ? 1 + (int)i : 0))
			return false;
	return dst[n] == 0;
}

/* ---- Work items -----------------------------------------------------------------------------------------
 */

struct work_items_row {
	char name[24];
	uint32_t small, large; /* numbers of moves of 32 x 32 and of 1024 x 1024 */
	uint64_t least, most;  /* bounds of the number of work items */
	unsigned start;        /* work items that the job reports at its start, when asked for up to 4 */
};

ParameterizedTestParameters(batch, work_items)
{
	static struct work_items_row rows[] = {
		{ "small ones", 48, 0, 2, 16, 4 }, { "large ones", 0, 3, 12, 100, 4 },
		{ "both", 20, 2, 9, 80, 4 },       { "one, small", 1, 0, 1, 1, 1 },
		{ "one, large", 0, 1, 4, 40, 4 },  { "none", 0, 0, 0, 0, 0 },
	};
	return cr_make_param_array(struct work_items_row, rows, sizeof(rows) / sizeof(rows[0]));
}

/* Small moves share a work item, and large ones have many. No work item is executed. */
ParameterizedTest(struct work_items_row *row, batch, work_items)
{
	static struct running_job running;
	static struct work_item work_item;
	static struct batch batch;
	int64_t n[MOST_MOVES];
	uint64_t work_items = 0, small = 0;
	struct cpu_tuning tuning = cpu_tuning_get();
	open_engine(2, 0);
	for (uint32_t i = 0; i < row->small + row->large; i++)
		n[i] = i % 2 ? (i / 2 < row->large ? 1024 : 32) : (i / 2 < row->small ? 32 : 1024);
	batch_init(&batch, row->small + row->large, n);
	batch_start(&batch, &running, &tuning, 2);
	cr_assert_eq(running_job_work_items(&running, 4), row->start, "%s: %u", row->name,
	             running_job_work_items(&running, 4));
	for (; running_job_work_items(&running, 1); work_items++) {
		running_job_work_item(&running, &work_item);
		if (work_item.kind == WORK_ITEM_MOVES)
			small += work_item.n;
		for (uint32_t i = 0; work_item.kind == WORK_ITEM_MOVES && i < work_item.n; i++) {
			cr_assert_leq(work_item.move[i].transform->count, 1024, "%s", row->name);
			work_item.move[i].status = 0;
		}
		running_job_end_work_item(&running, &work_item, 0);
	}
	struct engine_job *ended;
	cr_assert(running_job_end(&running, &ended));
	cr_assert_eq(ended->status, 0, "%s", row->name);
	for (uint32_t i = 0; i < batch.job.n_moves; i++)
		cr_assert_eq(batch.moves[i].status, 0, "%s: move %u", row->name, i);
	uint64_t expected = 0;
	for (uint32_t i = 0; i < batch.job.n_moves; i++)
		expected += n[i] == 32;
	cr_assert_eq(small, expected, "%s", row->name);
	cr_assert(work_items >= row->least && work_items <= row->most, "%s: %lu work items", row->name,
	          (unsigned long)work_items);
	batch_deinit(&batch);
	close_engine();
}

/* However many moves there are, pieces have only a few sizes, and moves that are not cut are planned for one
 * of them. */
Test(batch, pieces_have_few_sizes)
{
	static struct running_job running;
	static struct batch batch;
	struct cpu_tuning tuning = cpu_tuning_get();
	int64_t n[MOST_MOVES], before = 0;
	uint32_t sizes = 0;
	open_engine(2, 0);
	for (uint32_t i = 0; i < MOST_MOVES; i++)
		n[i] = 256;
	batch_init(&batch, MOST_MOVES, n);
	for (batch.job.n_moves = 1; batch.job.n_moves <= MOST_MOVES; batch.job.n_moves++) {
		struct engine_job *ended;
		batch_start(&batch, &running, &tuning, 2);
		const struct task whole = running_job_whole_task(&running, &batch.moves[0]);
		cr_assert_eq(whole.place.piece_bytes, tuning.piece_most);
		cr_assert(running.piece >= tuning.piece_least && running.piece <= tuning.piece_most);
		sizes += running.piece != before;
		before = running.piece;
		running_job_stop(&running, STATUS_CANCELED);
		cr_assert(running_job_end(&running, &ended));
	}
	cr_expect_eq(sizes, 5, "%u sizes from 64 KiB to 1 MiB", sizes);
	batch.job.n_moves = MOST_MOVES;
	batch_deinit(&batch);
	close_engine();
}

/* ---- The end ---------------------------------------------------------------------------------------- */

/* The batch is cancelled after each possible number of work items: one has been made but is not executed, and
 * the rest are never made. */
Test(batch, cancel_in_the_middle)
{
	static struct running_job running;
	static struct work_item work_item;
	static struct batch batch;
	static const int64_t n[] = { 20, 64, 0, 100, 1, 30, 7, 33, 16 };
	enum { N = sizeof(n) / sizeof(n[0]) };
	struct cpu_scratch *scratch = cpu_scratch_new();
	bool all = false;
	open_engine(1, 0);
	struct cpu_tuning tuning = cpu_tuning_get();
	tuning.piece_least = tuning.piece_most = 8192;
	for (int work_items = 0; !all; work_items++) {
		uint32_t good = 0;
		struct engine_job *ended;
		batch_init(&batch, N, n);
		batch_start(&batch, &running, &tuning, 1);
		for (int i = 0; i < work_items && running_job_work_items(&running, 1); i++) {
			running_job_work_item(&running, &work_item);
			running_job_end_work_item(&running, &work_item,
			                          work_item_execute(&work_item, scratch));
		}
		all = !running_job_work_items(&running, 1);
		if (!all) {
			running_job_work_item(&running, &work_item);
			running_job_stop(&running, STATUS_CANCELED);
			running_job_end_work_item(&running, &work_item,
			                          work_item_execute(&work_item, scratch));
		}
		cr_assert(running_job_end(&running, &ended));
		cr_assert_eq(ended->status, all ? 0 : STATUS_CANCELED, "%d work items", work_items);
		for (uint32_t i = 0; i < N; i++) {
			int status = batch.moves[i].status;
			good += status == 0;
			cr_assert(status == 0 || status == STATUS_CANCELED, "%d work items, move %u: %d",
			          work_items, i, status);
			cr_assert(status || is_moved(&batch, i, true), "%d work items, move %u", work_items,
			          i);
			cr_assert(!status || !n[i] || !is_moved(&batch, i, true), "%d work items, move %u",
			          work_items, i);
		}
		cr_assert_eq(good == N, all, "%d work items: %u moves done", work_items, good);
		cr_assert(work_items || !good, "%u moves were done by no work item", good);
		batch_deinit(&batch);
	}
	close_engine();
	cpu_scratch_free(scratch);
}
