/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the plans that the engine makes itself: each is made once, and a job waits for those that are still
 * to be made. */
#include <string.h>

#include <criterion/criterion.h>

#include "kernels/cuda/cuda_plan.h"
#include "kernels/cuda/sched/queue.h"
#include "rig.h"
#include "tests/support/oracle.h"

enum { N = 64, BYTES = N * N * 4, MOVES = 3 * ADMISSION_PLANS };

static struct engine_memory *dst, *src;
static struct engine_stream *stream;

static void open_all(enum region_kind kind)
{
	const struct cuda_limits limits = small_limits();

	open_engine(&limits);
	stream = engine_stream_new(engine, &owner);
	dst = new_memory(kind, MOVES * BYTES);
	src = new_memory(kind, MOVES * BYTES);
	for (size_t i = 0; i < BYTES; i++)
		data(src)[i] = (unsigned char)(i * 7 + i / 256);
}

static void close_all(void)
{
	engine_unmap(engine, dst);
	engine_unmap(engine, src);
	engine_stream_free(engine, stream);
	close_engine();
}

static void run(struct engine_job *job)
{
	n_done = 0;
	engine_submit(engine, stream, job);
	wait_done(1);
	cr_assert_eq(job->status, 0);
}

static uint64_t plans_made(void)
{
	struct engine_cache_stats stats;

	engine_plan_stats(engine, &stats);
	return stats.misses;
}

/* The job moves between two places on the host, in rounds. */
Test(plans, of_rounds)
{
	static struct work work;
	uint64_t made = 0;

	open_all(REGION_KIND_MEMFD);
	for (int i = 0; i < 4; i++) {
		work_init(&work, N, true, dst, src);
		run(&work.job);
		cr_expect_eq(work.job.move.family, FAMILY_TILE_TRANSPOSE);
		if (i == 0)
			made = plans_made();
		cr_expect_gt(made, 0);
		cr_expect_eq(plans_made(), made, "run %d", i);
	}
	close_all();
}

/* Lists with the same number of blocks share a plan, and so do lists of so many blocks that each block has
 * less than a multiprocessor. */
Test(plans, of_lists)
{
	static struct work work;
	static int32_t index[1024];
	const uint64_t numbers[] = { 4, 4, 4, 300, 500, 1000 };
	uint64_t made[sizeof numbers / sizeof *numbers];
	struct transform_spec spec = { .n_perm = -1, .n_before = -1, .n_after = -1 };
	struct error err;

	open_all(REGION_KIND_CUDA_FD);
	tensor_layout_init(&spec.dst, DTYPE_UINT8, 1, (int64_t[]){ 64 }, NULL, "dst", &err);
	spec.src = spec.dst;
	work_init_spec(&work, &spec, dst, 0, src, 0);
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
		struct engine_blocks blocks = { .n = numbers[i],
			                        .layers = 1,
			                        .index_bytes = 4,
			                        .limit = 1024,
			                        .index = index,
			                        .dst.step = 64,
			                        .src.step = 64 };

		work.job.blocks = &blocks;
		run(&work.job);
		made[i] = plans_made();
	}
	cr_expect_eq(made[1], made[0]);
	cr_expect_eq(made[2], made[0]);
	cr_expect_eq(made[4], made[3]);
	cr_expect_eq(made[5], made[3]);
	close_all();
}

/* The batch needs more plans than the engine makes between two passes. */
Test(plans, of_a_batch)
{
	static struct work work[MOVES];
	static struct engine_move moves[MOVES];
	uint64_t made = 0;

	open_all(REGION_KIND_CUDA_FD);
	for (int i = 0; i < 3; i++) {
		for (int m = 0; m < MOVES; m++) {
			if (i == 0)
				work_init(&work[m], N - m, true, dst, src);
			moves[m] = work[m].job.move;
			moves[m].dst_offset = (uint64_t)m * BYTES;
		}
		work[0].job.moves = moves;
		work[0].job.n_moves = MOVES;
		run(&work[0].job);
		for (int m = 0; m < MOVES; m++)
			cr_expect_eq(moves[m].family, FAMILY_TILE_TRANSPOSE, "move %d", m);
		if (i == 0)
			made = plans_made();
		cr_expect_eq(plans_made(), made, "run %d", i);
	}
	close_all();
}

/* A job that is cancelled while it waits for plans leaves nothing behind, and the job after it runs. */
Test(plans, of_a_job_that_is_canceled)
{
	static struct work work[2][MOVES];
	static struct engine_move moves[MOVES];

	open_all(REGION_KIND_CUDA_FD);
	for (int round = 0; round < 50; round++) {
		for (int m = 0; m < MOVES; m++) {
			work_init(&work[0][m], N - m, true, dst, src);
			moves[m] = work[0][m].job.move;
			moves[m].dst_offset = (uint64_t)m * BYTES;
		}
		work_init(&work[1][0], N, true, dst, src);
		work[0][0].job.moves = moves;
		work[0][0].job.n_moves = MOVES;
		n_done = 0;
		engine_submit(engine, stream, &work[0][0].job);
		engine_cancel(engine, stream, &work[0][0].job);
		engine_submit(engine, stream, &work[1][0].job);
		wait_done(2);
		cr_expect_eq(work[1][0].job.status, 0);
	}
	close_all();
}
