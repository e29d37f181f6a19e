/* SPDX-License-Identifier: Apache-2.0 */
/* Tests lists of blocks on the host that packers and copy engines move. Buffers, stretches and parts are so
 * small that each list takes many. Whole memories are compared with the oracle. Also tests a job whose memory
 * fails, one that is cancelled and one whose device is lost, and that no kernel is launched where none is
 * needed. */
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "counted.h"
#include "kernels/cuda/stage/packing.h"
#include "rig.h"
#include "tests/support/blocks.h"
#include "tests/support/tap.h"

enum index_place { INDEX_INLINE, INDEX_HOST, INDEX_DEVICE };

struct place_row {
	char name[40];
	enum region_kind dst, src;
	enum index_place index;
	long seeds; /* at TEST_SHARE 1; other shares run fewer */
};

#define CASES_AN_ENGINE 20

ParameterizedTestParameters(pack_lists, random)
{
	static struct place_row rows[] = {
		{ "host to device", REGION_KIND_CUDA_IPC, REGION_KIND_MEMFD, INDEX_INLINE, 600 },
		{ "device to host", REGION_KIND_MEMFD, REGION_KIND_CUDA_FD, INDEX_INLINE, 600 },
		{ "host to host", REGION_KIND_MEMFD, REGION_KIND_MEMFD, INDEX_INLINE, 600 },
		{ "index on the host", REGION_KIND_CUDA_FD, REGION_KIND_MEMFD, INDEX_HOST, 400 },
		{ "index on the host, out", REGION_KIND_MEMFD, REGION_KIND_CUDA_FD, INDEX_HOST, 400 },
		{ "index on the device", REGION_KIND_CUDA_FD, REGION_KIND_MEMFD, INDEX_DEVICE, 400 },
		{ "index on the device, out", REGION_KIND_MEMFD, REGION_KIND_CUDA_FD, INDEX_DEVICE, 400 },
	};
	return cr_make_param_array(struct place_row, rows, sizeof rows / sizeof *rows);
}

struct bench {
	struct engine_stream *stream;
	struct engine_memory *dst, *src, *index, *index_device;
	unsigned char *expected;
};

static void bench_open(struct bench *bench, const struct cuda_limits *limits, enum region_kind dst,
                       enum region_kind src)
{
	uint64_t state = 5;

	open_engine(limits);
	count_launches();
	bench->stream = engine_stream_new(engine, &owner);
	bench->dst = new_memory(dst, BLOCKS_CASE_BYTES);
	bench->src = new_memory(src, BLOCKS_CASE_BYTES);
	bench->index = new_memory(REGION_KIND_MEMFD, 4096);
	bench->index_device = new_memory(REGION_KIND_CUDA_FD, 4096);
	bench->expected = malloc(BLOCKS_CASE_BYTES);
	cr_assert_not_null(bench->expected);
	for (size_t i = 0; i < BLOCKS_CASE_BYTES; i += 8) {
		const uint64_t word = oracle_random(&state);

		memcpy(data(bench->src) + i, &word, 8);
		memcpy(data(bench->dst) + i, (uint64_t[]){ ~word }, 8);
	}
}

static void bench_close(struct bench *bench)
{
	engine_stream_free(engine, bench->stream);
	engine_unmap(engine, bench->dst);
	engine_unmap(engine, bench->src);
	engine_unmap(engine, bench->index);
	engine_unmap(engine, bench->index_device);
	free(bench->expected);
	close_engine();
}

static void expect_bytes(const struct bench *bench, size_t n, const char *name, uint64_t seed,
                         const char *text)
{
	const unsigned char *got = data(bench->dst);
	size_t i = 0;

	while (i < n && got[i] == bench->expected[i])
		i++;
	cr_assert_eq(i, n, "%s: seed %lu: byte %zu of %zu: %s", name, (unsigned long)seed, i, n, text);
}

/* The limits and the list decide which blocks are packed. The bytes have to be right either way. */
static void run_case(const struct bench *bench, const struct place_row *row, uint64_t seed)
{
	static struct blocks_case c;
	static struct work work;
	static char text[2000];
	struct engine_blocks *b = &c.blocks;

	blocks_case_draw(seed, &c, row->index == INDEX_INLINE);
	oracle_case_text(&c.block, text, sizeof text);
	work_init_spec(&work, &c.block.spec, bench->dst, c.dst.offset, bench->src, c.src.offset);
	if (row->index == INDEX_INLINE) {
		b->index = c.packed + 1;
	} else {
		b->index_memory = row->index == INDEX_HOST ? bench->index : bench->index_device;
		b->index_offset = 8 * (seed % 3);
		memcpy(data(b->index_memory) + b->index_offset, c.packed + 1, b->n * blocks_entry_bytes(b));
	}
	work.job.blocks = b;
	memcpy(bench->expected, data(bench->dst), BLOCKS_CASE_BYTES);
	blocks_case_expect(&c, bench->expected, data(bench->src));
	n_done = 0;
	engine_submit(engine, bench->stream, &work.job);
	wait_done(1);
	cr_assert_eq(work.job.status, 0, "%s: seed %lu: %d: %s", row->name, (unsigned long)seed,
	             work.job.status, text);
	expect_bytes(bench, BLOCKS_CASE_BYTES, row->name, seed, text);
	if (work.transform.count > 0) {
		cr_assert_eq(b->passed, c.passed, "%s: seed %lu", row->name, (unsigned long)seed);
		cr_assert_eq(b->beyond, c.beyond, "%s: seed %lu", row->name, (unsigned long)seed);
	}
	oracle_case_free(&c.block);
}

ParameterizedTest(struct place_row *row, pack_lists, random)
{
	const long seeds = tap_portion(row->seeds);
	struct bench bench = { 0 };

	for (long seed = 1; seed <= seeds; seed++) {
		if (seed % CASES_AN_ENGINE == 1) {
			uint64_t state = (uint64_t)seed;
			const struct cuda_limits limits = random_pack_limits(&state);

			bench_open(&bench, &limits, row->dst, row->src);
		}
		run_case(&bench, row, (uint64_t)seed);
		if (seed % CASES_AN_ENGINE == 0 || seed == seeds)
			bench_close(&bench);
	}
}

/* ---- Without a kernel ------------------------------------------------------------------------------------
 */

#define BLOCK 4096

struct run_row {
	char name[40];
	enum region_kind dst, src;
	bool scatter;
	uint64_t dst_step, src_step;
	unsigned launches;
};

ParameterizedTestParameters(pack_lists, runs)
{
	static struct run_row rows[] = {
		{ "gathered to the device", REGION_KIND_CUDA_FD, REGION_KIND_MEMFD, false, BLOCK, BLOCK, 0 },
		{ "scattered from the device", REGION_KIND_MEMFD, REGION_KIND_CUDA_FD, true, BLOCK, BLOCK,
		  0 },
		{ "host to host", REGION_KIND_MEMFD, REGION_KIND_MEMFD, false, BLOCK + 32, BLOCK, 0 },
		{ "blocks apart on the device", REGION_KIND_CUDA_FD, REGION_KIND_MEMFD, false, BLOCK + 16,
		  BLOCK, 1 },
		{ "scattered on the device", REGION_KIND_CUDA_FD, REGION_KIND_MEMFD, true, BLOCK, BLOCK, 1 },
		{ "gathered on the device", REGION_KIND_MEMFD, REGION_KIND_CUDA_FD, false, BLOCK, BLOCK, 1 },
	};
	return cr_make_param_array(struct run_row, rows, sizeof rows / sizeof *rows);
}

enum { RUN_BLOCKS = 100 };

static void run_limits(struct cuda_limits *limits)
{
	*limits = small_limits();
	limits->owner_bytes = limits->scratch_bytes = 8 << 20;
	limits->pack_threads = 3;
	limits->pack_slots = 6;
	limits->pack_slot_bytes = 3 * PACKING_PART_BYTES / 2;
	limits->pack_run_bytes = 1024;
	limits->pack_piece_bytes = 3 * BLOCK;
	limits->pack_stretch_bytes = 1 << 20;
}

/* Makes a list of all blocks in the order 0, 7, 14, ... */
static void init_runs(struct work *work, struct engine_blocks *blocks, struct bench *bench, bool scatter,
                      uint64_t dst_step, uint64_t src_step)
{
	static int32_t index[RUN_BLOCKS];
	struct transform_spec spec = { .n_perm = -1, .n_before = -1, .n_after = -1 };
	const int64_t shape[1] = { BLOCK / 4 };
	struct error err;

	tensor_layout_init(&spec.dst, DTYPE_FLOAT32, 1, shape, NULL, "dst", &err);
	tensor_layout_init(&spec.src, DTYPE_FLOAT32, 1, shape, NULL, "src", &err);
	work_init_spec(work, &spec, bench->dst, 64, bench->src, 128);
	for (int32_t i = 0; i < RUN_BLOCKS; i++)
		index[i] = i * 7 % RUN_BLOCKS;
	*blocks = (struct engine_blocks){ .n = RUN_BLOCKS,
		                          .layers = 2,
		                          .scatter = scatter,
		                          .index_bytes = 4,
		                          .limit = RUN_BLOCKS,
		                          .index = index,
		                          .dst = { .step = dst_step, .layer_step = 1 << 20 },
		                          .src = { .step = src_step, .layer_step = 1 << 20 } };
	work->job.blocks = blocks;
}

static void expect_runs(const struct bench *bench, const struct engine_blocks *blocks, const char *name)
{
	const int32_t *index = blocks->index;

	for (uint64_t l = 0; l < blocks->layers; l++)
		for (uint64_t i = 0; i < RUN_BLOCKS; i++) {
			const uint64_t named = (uint64_t)index[i], to = blocks->scatter ? named : i,
				       from = blocks->scatter ? i : named;

			memcpy(bench->expected + 64 + to * blocks->dst.step + (l << 20),
			       data(bench->src) + 128 + from * blocks->src.step + (l << 20), BLOCK);
		}
	expect_bytes(bench, BLOCKS_CASE_BYTES, name, 0, "runs");
}

ParameterizedTest(struct run_row *row, pack_lists, runs)
{
	struct bench bench = { 0 };
	struct cuda_limits limits;
	struct engine_blocks blocks;
	static struct work work;

	run_limits(&limits);
	bench_open(&bench, &limits, row->dst, row->src);
	memcpy(bench.expected, data(bench.dst), BLOCKS_CASE_BYTES);
	init_runs(&work, &blocks, &bench, row->scatter, row->dst_step, row->src_step);
	n_launches = 0;
	engine_submit(engine, bench.stream, &work.job);
	wait_done(1);
	cr_assert_eq(work.job.status, 0, "%s: %d", row->name, work.job.status);
	cr_assert_gt(work.job.ns, 0, "%s", row->name);
	cr_assert_eq(n_launches, row->launches, "%s: %u launches", row->name, n_launches);
	expect_runs(&bench, &blocks, row->name);
	bench_close(&bench);
}
