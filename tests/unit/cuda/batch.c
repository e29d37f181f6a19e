/* SPDX-License-Identifier: Apache-2.0 */
/* Tests batches: copies and tiles are compared with the oracle, each move has its own status, and a batch
 * takes as few launches as it can. */
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "counted.h"
#include "rig.h"
#include "tests/support/oracle.h"
#include "kernels/cuda/cuda_plan.h"

#define MEMORY_BYTES (2u << 20)

static struct engine_memory *dst[2], *src[2];
static struct engine_stream *stream;
static unsigned char *expected[2];

static void open_all(enum region_kind first, enum region_kind second)
{
	struct cuda_limits limits = small_limits();
	const enum region_kind kind[] = { first, second };
	uint64_t state = 9;

	limits.owner_bytes = 1 << 30;
	open_engine(&limits);
	count_launches();
	stream = engine_stream_new(engine, &owner);
	for (int m = 0; m < 2; m++) {
		dst[m] = new_memory(kind[m], MEMORY_BYTES);
		src[m] = new_memory(kind[1 - m], MEMORY_BYTES);
		expected[m] = malloc(MEMORY_BYTES);
		cr_assert_not_null(expected[m]);
		for (size_t i = 0; i < MEMORY_BYTES; i += 8) {
			const uint64_t word = oracle_random(&state);

			memcpy(data(src[m]) + i, &word, 8);
			memcpy(data(dst[m]) + i, (uint64_t[]){ ~word }, 8);
		}
		memcpy(expected[m], data(dst[m]), MEMORY_BYTES);
	}
}

static void close_all(void)
{
	engine_stream_free(engine, stream);
	for (int m = 0; m < 2; m++) {
		engine_unmap(engine, dst[m]);
		engine_unmap(engine, src[m]);
		free(expected[m]);
	}
	close_engine();
}

/* Submits all moves as one job and waits for it. */
static void run(struct engine_job *job, struct engine_move *moves, uint32_t n, const char *name)
{
	*job = (struct engine_job){ .moves = moves, .n_moves = n, .on_done = job->on_done };
	n_done = 0;
	n_launches = n_late_launches = 0;
	engine_submit(engine, stream, job);
	wait_done(1);
	cr_assert_eq(n_late_launches, 0, "%s: %u launches", name, n_late_launches);
	cr_assert_eq(job->status, 0, "%s: %d", name, job->status);
	cr_assert_not(job->is_measured, "%s: it is many moves", name);
	for (uint32_t i = 0; i < n; i++)
		cr_assert_eq(moves[i].status, 0, "%s: move %u: %d", name, i, moves[i].status);
	for (int m = 0; m < 2; m++)
		for (size_t i = 0; i < MEMORY_BYTES; i++)
			cr_assert_eq(expected[m][i], data(dst[m])[i], "%s: byte %zu of %d", name, i, m);
}

/* ---- Many copies, one launch ----------------------------------------------------------------------- */

struct copy_row {
	char name[40];
	enum region_kind first, second;
	uint32_t n;
	uint64_t bytes; /* of move 0; move i has i % 100 times `longer` more */
	uint64_t longer;
	uint64_t gap;
};

ParameterizedTestParameters(batch, copies)
{
	static struct copy_row rows[] = {
		{ "4 KiB", REGION_KIND_CUDA_FD, REGION_KIND_CUDA_FD, 400, 4096, 0, 0 },
		{ "4 KiB and a gap", REGION_KIND_CUDA_FD, REGION_KIND_MEMFD, 300, 4096, 0, 16 },
		{ "odd sizes", REGION_KIND_CUDA_FD, REGION_KIND_CUDA_FD, 300, 1, 37, 1 },
		{ "64 KiB", REGION_KIND_MEMFD, REGION_KIND_CUDA_FD, 30, 65536, 0, 5 },
		{ "one", REGION_KIND_CUDA_FD, REGION_KIND_CUDA_FD, 1, 20000, 0, 0 },
	};
	return cr_make_param_array(struct copy_row, rows, sizeof rows / sizeof *rows);
}

ParameterizedTest(struct copy_row *row, batch, copies)
{
	struct work *work = calloc(row->n, sizeof *work);
	struct engine_move *moves = calloc(row->n, sizeof *moves);
	uint64_t state = 3, at = 0;

	cr_assert(work && moves);
	open_all(row->first, row->second);
	for (uint32_t i = 0; i < row->n; i++) {
		struct transform_spec spec = { .n_perm = -1, .n_before = -1, .n_after = -1 };
		const int64_t bytes = (int64_t)(row->bytes + i % 100 * row->longer);
		const uint64_t from =
		    row->gap % 16 ? oracle_random(&state) % 70000 : oracle_random(&state) % 4000 * 16;
		struct error err;

		tensor_layout_init(&spec.dst, DTYPE_UINT8, 1, &bytes, NULL, "dst", &err);
		tensor_layout_init(&spec.src, DTYPE_UINT8, 1, &bytes, NULL, "src", &err);
		work_init_spec(&work[i], &spec, dst[i % 2], at, src[i % 2], from);
		moves[i] = work[i].job.move;
		memcpy(expected[i % 2] + at, data(src[i % 2]) + from, (size_t)bytes);
		at += i % 2 * ((uint64_t)bytes + row->gap + row->longer);
		cr_assert_leq(at, MEMORY_BYTES - 70000);
	}
	run(&work[0].job, moves, row->n, row->name);
	cr_assert_eq(n_launches, 1, "%s: %u launches", row->name, n_launches);
	close_all();
	free(moves);
	free(work);
}

/* Transposes of one shape share a kernel and therefore a launch. */
Test(batch, transposes_are_one_launch)
{
	enum { N = 40, EDGE = 48 };
	static struct work work[N];
	static struct engine_move moves[N];

	open_all(REGION_KIND_CUDA_FD, REGION_KIND_CUDA_FD);
	for (uint32_t i = 0; i < N; i++) {
		work_init(&work[i], EDGE, true, dst[0], src[0]);
		moves[i] = work[i].job.move;
		moves[i].dst_offset = moves[i].src_offset = i * EDGE * EDGE * 4;
		for (int r = 0; r < EDGE; r++)
			for (int c = 0; c < EDGE; c++)
				memcpy(expected[0] + moves[i].dst_offset + (r * EDGE + c) * 4,
				       data(src[0]) + moves[i].src_offset + (c * EDGE + r) * 4, 4);
	}
	run(&work[0].job, moves, N, "transposes");
	cr_assert_eq(n_launches, 1, "%u launches", n_launches);
	close_all();
}

/* ---- Moves that go by tiles of many axes when they are alone --------------------------------------- */

struct tile_row {
	char name[40];
	int rank;
	int64_t shape[4], perm[4], strides[4], pad[4]; /* shape of uint32; pad is the same before and after */
	uint64_t first;                                /* elements in memory before element [0, ..., 0] */
};

static struct tile_row tile_rows[] = {
	{ "ragged rows", 2, { 101, 103 }, { 1, 0 }, { 103, 1 }, { 0 }, 0 },
	{ "backwards", 2, { 101, 103 }, { 1, 0 }, { 103, -1 }, { 0 }, 102 },
	{ "an edge", 4, { 8, 10, 15, 16 }, { 0, 3, 1, 2 }, { 2400, 240, 16, 1 }, { 0, 0, 1, 1 }, 0 },
	{ "four axes", 4, { 15, 9, 11, 7 }, { 3, 1, 0, 2 }, { 693, 77, 7, 1 }, { 0 }, 0 },
};

static void tile_spec(const struct tile_row *row, struct transform_spec *ret)
{
	int64_t shape[4];
	struct error err;

	*ret = (struct transform_spec){
		.n_perm = row->rank, .n_before = row->rank, .n_after = row->rank, .mode = PAD_MODE_EDGE
	};
	for (int d = 0; d < row->rank; d++) {
		ret->perm[d] = row->perm[d];
		ret->before[d] = ret->after[d] = row->pad[d];
		shape[d] = row->shape[row->perm[d]] + 2 * row->pad[d];
	}
	cr_assert_eq(
	    tensor_layout_init(&ret->src, DTYPE_UINT32, row->rank, row->shape, row->strides, "src", &err), 0);
	cr_assert_eq(tensor_layout_init(&ret->dst, DTYPE_UINT32, row->rank, shape, NULL, "dst", &err), 0);
}

/* In a batch, these are moved by kernels that many moves share. */
Test(batch, tiles_of_many_axes)
{
	enum { ROWS = sizeof tile_rows / sizeof *tile_rows, N = 3 * ROWS };
	static struct work work[N];
	static struct engine_move moves[N];
	uint64_t at = 0;

	open_all(REGION_KIND_CUDA_FD, REGION_KIND_CUDA_FD);
	for (uint32_t i = 0; i < N; i++) {
		const struct tile_row *row = &tile_rows[i % ROWS];
		const uint64_t from = row->first * 4 + i / ROWS * 4;
		struct transform_spec spec;

		tile_spec(row, &spec);
		work_init_spec(&work[i], &spec, dst[0], at, src[0], from);
		const enum strategy_id strategy = cuda_plan(work[i].job.move.plan)->tma.strategy;

		cr_assert_eq(strategy, STRATEGY_permute, "%s: strategy %d", row->name, strategy);
		moves[i] = work[i].job.move;
		oracle_run(&spec, expected[0] + at, data(src[0]) + from);
		at += (uint64_t)work[i].transform.count * 4 + 4;
		cr_assert_leq(at, MEMORY_BYTES);
	}
	run(&work[0].job, moves, N, "tiles");
	cr_assert_lt(n_launches, N, "%u launches", n_launches);
	close_all();
}

/* ---- Ends ------------------------------------------------------------------------------------------ */

Test(batch, of_nothing)
{
	static struct work work;

	open_all(REGION_KIND_CUDA_FD, REGION_KIND_CUDA_FD);
	work_init(&work, 0, false, dst[0], src[0]);
	run(&work.job,
	    &(struct engine_move){
		.transform = &work.transform, .plan = work.job.move.plan, .dst = dst[0], .src = src[0] },
	    1, "nothing");
	cr_assert_eq(n_launches, 0);
	close_all();
}
