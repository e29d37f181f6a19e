/* SPDX-License-Identifier: Apache-2.0 */
/* Tests lists of blocks that kernels alone move: the bytes are compared with the oracle, and the launches of
 * a list are counted. */
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "counted.h"
#include "kernels/cuda/cuda_plan.h"
#include "kernels/transform/blocks.h"
#include "rig.h"
#include "tests/support/oracle.h"
#include "tests/support/plans.h"

#define MEMORY_BYTES (4u << 20)

enum index_place { INDEX_INLINE, INDEX_DEVICE, INDEX_HOST };

/* The memories of a test, and the bytes that the destination is to have. */
struct bench {
	struct engine_stream *stream;
	struct engine_memory *dst, *src, *index;
	unsigned char *expected;
};

static void bench_open(struct bench *bench, enum index_place index)
{
	struct cuda_limits limits = small_limits();
	uint64_t state = 5;

	limits.owner_bytes = 1 << 30;
	open_engine(&limits);
	count_launches();
	bench->stream = engine_stream_new(engine, &owner);
	bench->dst = new_memory(REGION_KIND_CUDA_FD, MEMORY_BYTES);
	bench->src = new_memory(REGION_KIND_CUDA_FD, MEMORY_BYTES);
	bench->index = new_memory(index == INDEX_HOST ? REGION_KIND_MEMFD : REGION_KIND_CUDA_FD, 4096);
	bench->expected = malloc(MEMORY_BYTES);
	cr_assert_not_null(bench->expected);
	for (size_t i = 0; i < MEMORY_BYTES; i += 8) {
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
	free(bench->expected);
	close_engine();
}

#define MOST_ENTRIES 8193

/* A list of n entries in each of `layers` layers, with blocks of a shape for which there is a kernel. */
struct kernel_row {
	char name[40];
	enum strategy_id strategy;
	enum index_place index;
	uint8_t index_bytes; /* bytes of an entry; 0: 4 */
	uint64_t n, limit;
	uint32_t layers;
	bool scatter;
	bool pairs;
	int rank;
	int64_t shape[3];
	int64_t perm[3];
	int64_t pad[3];    /* the same before and after */
	uint64_t step;     /* bytes from one block's end to the next block */
	uint64_t src_step; /* 0: the same as step, which is then the destination's as well */
	bool listed;       /* offsets of the layers are given as a list */
	bool is_sent;      /* the list, or that of the layers, has to be sent to device memory */
};

#define ROWS      .strategy = STRATEGY_memcpy
#define MAPS      .strategy = STRATEGY_copy
#define VECTOR(n) .rank = 1, .shape = { n }
#define HEADS     .rank = 3, .shape = { 16, 8, 64 }, .perm = { 1, 0, 2 }
#define SMALL     .rank = 3, .shape = { 2, 2, 16 }, .perm = { 1, 0, 2 }

ParameterizedTestParameters(blocks, by_their_kernels)
{
	static struct kernel_row rows[] = {
		{ .name = "4 KiB", ROWS, .n = 40, .limit = 60, .layers = 1, VECTOR(1024) },
		{ .name = "scattered",
		  ROWS,
		  .n = 40,
		  .limit = 60,
		  .layers = 1,
		  VECTOR(1024),
		  .scatter = true },
		{ .name = "many small", ROWS, .n = 500, .limit = 300, .layers = 2, VECTOR(256) },
		{ .name = "in pieces", ROWS, .n = 9, .limit = 12, .layers = 3, VECTOR(8188), .step = 48 },
		{ .name = "in pieces and a rest",
		  ROWS,
		  .n = 9,
		  .limit = 12,
		  .layers = 3,
		  VECTOR(8196),
		  .step = 48 },
		{ .name = "most of 2 bytes in short arguments",
		  ROWS,
		  .n = 1024,
		  .limit = 1500,
		  .layers = 1,
		  VECTOR(256) },
		{ .name = "one more", ROWS, .n = 1025, .limit = 1500, .layers = 1, VECTOR(256) },
		{ .name = "8 bytes",
		  ROWS,
		  .n = 31,
		  .index_bytes = 8,
		  .limit = 40,
		  .layers = 1,
		  VECTOR(256),
		  .scatter = true },
		{ .name = "most blocks of 2 bytes",
		  ROWS,
		  .n = 65,
		  .limit = 65535,
		  .layers = 1,
		  VECTOR(256),
		  .src_step = 16 },
		{ .name = "most of 4 bytes in short arguments",
		  ROWS,
		  .n = 512,
		  .limit = 65536,
		  .layers = 1,
		  VECTOR(256),
		  .src_step = 16 },
		{ .name = "one more of 4 bytes",
		  ROWS,
		  .n = 513,
		  .index_bytes = 8,
		  .limit = 70000,
		  .layers = 1,
		  VECTOR(256),
		  .src_step = 16 },
		{ .name = "index on the device",
		  ROWS,
		  .index = INDEX_DEVICE,
		  .n = 40,
		  .limit = 60,
		  .layers = 2,
		  VECTOR(1024) },
		{ .name = "index on the host",
		  ROWS,
		  .index = INDEX_HOST,
		  .index_bytes = 8,
		  .n = 40,
		  .limit = 60,
		  .layers = 1,
		  VECTOR(1024),
		  .scatter = true },
		{ .name = "pairs",
		  ROWS,
		  .n = 40,
		  .limit = 60,
		  .layers = 2,
		  VECTOR(1024),
		  .pairs = true,
		  .is_sent = true },
		{ .name = "pairs on the device",
		  ROWS,
		  .index = INDEX_DEVICE,
		  .index_bytes = 8,
		  .n = 40,
		  .limit = 60,
		  .layers = 1,
		  VECTOR(1024),
		  .pairs = true },
		{ .name = "permuted, pairs",
		  MAPS,
		  .n = 20,
		  .limit = 30,
		  .layers = 2,
		  HEADS,
		  .pairs = true,
		  .is_sent = true },
		{ .name = "transposed, pairs on the device",
		  .strategy = STRATEGY_tiles,
		  .index = INDEX_DEVICE,
		  .n = 11,
		  .limit = 7,
		  .layers = 2,
		  .rank = 2,
		  .shape = { 40, 36 },
		  .perm = { 1, 0 },
		  .pairs = true },
		{ .name = "layers by a list",
		  ROWS,
		  .n = 9,
		  .limit = 12,
		  .layers = 3,
		  VECTOR(516),
		  .step = 16,
		  .scatter = true,
		  .listed = true,
		  .is_sent = true },
		{ .name = "not of 16 bytes",
		  .strategy = STRATEGY_rows,
		  .n = 9,
		  .limit = 12,
		  .layers = 2,
		  VECTOR(1025),
		  .is_sent = true },
		{ .name = "permuted", MAPS, .n = 20, .limit = 30, .layers = 1, HEADS },
		{ .name = "permuted, scattered",
		  MAPS,
		  .n = 20,
		  .limit = 30,
		  .layers = 1,
		  HEADS,
		  .scatter = true },
		{ .name = "permuted, most in long arguments",
		  MAPS,
		  .n = 8192,
		  .limit = 4000,
		  .layers = 1,
		  SMALL },
		{ .name = "permuted, one more",
		  MAPS,
		  .n = 8193,
		  .limit = 4000,
		  .layers = 1,
		  SMALL,
		  .is_sent = true },
		{ .name = "permuted, index on the device",
		  MAPS,
		  .index = INDEX_DEVICE,
		  .n = 20,
		  .limit = 30,
		  .layers = 2,
		  HEADS },
		{ .name = "permuted, layers", MAPS, .n = 11, .limit = 7, .layers = 3, HEADS, .step = 64 },
		{ .name = "padded",
		  MAPS,
		  .n = 11,
		  .limit = 7,
		  .layers = 2,
		  .rank = 2,
		  .shape = { 30, 64 },
		  .perm = { 0, 1 },
		  .pad = { 2, 4 } },
		{ .name = "permuted, layers by a list",
		  .strategy = STRATEGY_short,
		  .n = 11,
		  .limit = 7,
		  .layers = 3,
		  HEADS,
		  .listed = true,
		  .is_sent = true },
		{ .name = "transposed",
		  .strategy = STRATEGY_tiles,
		  .n = 11,
		  .limit = 7,
		  .layers = 2,
		  .rank = 2,
		  .shape = { 40, 36 },
		  .perm = { 1, 0 },
		  .is_sent = true },
		{ .name = "transposed, few rows",
		  .strategy = STRATEGY_gather,
		  .n = 11,
		  .limit = 7,
		  .layers = 2,
		  .rank = 2,
		  .shape = { 12, 36 },
		  .perm = { 1, 0 },
		  .is_sent = true },
	};
	return cr_make_param_array(struct kernel_row, rows, sizeof rows / sizeof *rows);
}

static void kernel_spec(const struct kernel_row *row, struct transform_spec *spec)
{
	int64_t made[3];
	struct error err;

	*spec = (struct transform_spec){ .n_perm = row->rank, .n_before = row->rank, .n_after = row->rank };
	for (int d = 0; d < row->rank; d++) {
		spec->perm[d] = row->perm[d];
		spec->before[d] = spec->after[d] = row->pad[d];
		made[d] = row->shape[row->perm[d]] + 2 * row->pad[d];
	}
	tensor_layout_init(&spec->src, DTYPE_FLOAT32, row->rank, row->shape, NULL, "src", &err);
	tensor_layout_init(&spec->dst, DTYPE_FLOAT32, row->rank, made, NULL, "dst", &err);
}

static void kernel_side(struct engine_blocks_side *side, const struct kernel_row *row, int64_t *layers,
                        uint64_t bytes, uint64_t blocks)
{
	side->step = (bytes + row->step + 15) / 16 * 16;
	if (row->strategy == STRATEGY_rows)
		side->step = bytes;
	side->layer_step = side->step * blocks + 32;
	for (uint32_t l = 0; l < row->layers; l++)
		layers[l] = (int64_t)((row->layers - 1 - l) * side->layer_step);
	if (row->listed)
		side->layers = layers;
}

/* Fills the list: entry i names the block 7 * i after the last one, modulo the limit, so that a scatter names
 * each once. Every fifth entry names none; the first of these are past the limit. */
static void kernel_index(const struct kernel_row *row, int64_t *index)
{
	for (uint64_t i = 0; i < row->n; i++)
		index[i] = i == 3       ? (int64_t)row->limit
		           : i == 8     ? INT32_MIN
		           : i % 5 == 3 ? -1
		                        : (int64_t)((row->limit - 1 + i * 7) % row->limit);
}

/* Returns the block of dst in entry i of a list of pairs; every seventh entry names none. */
static int64_t pair_dst(const struct kernel_row *row, uint64_t i)
{
	return i == 7 ? (int64_t)row->n : i % 7 == 6 ? -1 : (int64_t)(row->n - 1 - i);
}

static void lay_index(struct engine_blocks *b, const struct kernel_row *row, const struct bench *bench,
                      const int64_t *index)
{
	static char packed[MOST_ENTRIES * 8];
	const uint64_t numbers = row->n << row->pairs;
	char *at = packed;

	if (row->index != INDEX_INLINE) {
		b->index_memory = bench->index;
		at = (char *)data(bench->index);
	} else {
		b->index = packed;
	}
	for (uint64_t i = 0; i < numbers; i++) {
		const int64_t number = !row->pairs ? index[i] : i % 2 ? pair_dst(row, i / 2) : index[i / 2];

		if (b->index_bytes == 8)
			memcpy(at + i * 8, &number, 8);
		else
			memcpy(at + i * 4, (int32_t[]){ (int32_t)number }, 4);
	}
}

ParameterizedTest(struct kernel_row *row, blocks, by_their_kernels)
{
	static struct work work;
	static int64_t dst_layers[4], src_layers[4];
	static int64_t index[MOST_ENTRIES];
	struct engine_blocks b = { .n = row->n,
		                   .layers = row->layers,
		                   .scatter = row->scatter,
		                   .pairs = row->pairs,
		                   .dst_limit = row->n,
		                   .index_bytes = row->index_bytes ? row->index_bytes : 4,
		                   .limit = row->limit };
	struct transform_spec spec;
	struct engine_plan *plan;
	struct bench bench;
	uint64_t passed = 0;

	bench_open(&bench, row->index);
	for (uint64_t i = 0; i < row->n; i++)
		passed += (i % 5 == 3 && i != 3 && i != 8) || (row->pairs && i % 7 == 6);
	kernel_spec(row, &spec);
	work_init_spec(&work, &spec, bench.dst, 64, bench.src, 64);
	kernel_side(&b.dst, row, dst_layers, (uint64_t)work.transform.dst_extent.high,
	            row->scatter ? row->limit : row->n);
	kernel_side(&b.src, row, src_layers, (uint64_t)work.transform.src_extent.high,
	            row->scatter ? row->n : row->limit);
	if (row->src_step)
		b.src.step = row->src_step;
	kernel_index(row, index);
	lay_index(&b, row, &bench, index);
	plan = cuda_plan_of_list(work.job.move.plan, &b, 0, 0);
	cr_assert_eq(cuda_plan(plan)->tma.strategy, row->strategy, "%s: by strategy %d", row->name,
	             cuda_plan(plan)->tma.strategy);
	memcpy(bench.expected, data(bench.dst), MEMORY_BYTES);
	for (uint32_t l = 0; l < row->layers; l++)
		for (uint64_t i = 0; i < row->n; i++) {
			const uint64_t other = row->pairs ? (uint64_t)pair_dst(row, i) : i;
			const uint64_t to = row->scatter ? (uint64_t)index[i] : other,
				       from = row->scatter ? i : (uint64_t)index[i];

			if (index[i] < 0 || (uint64_t)index[i] >= row->limit || other >= row->n)
				continue;
			oracle_run(&spec,
			           bench.expected + 64 + to * b.dst.step +
			               (row->listed ? (uint64_t)dst_layers[l] : l * b.dst.layer_step),
			           data(bench.src) + 64 + from * b.src.step +
			               (row->listed ? (uint64_t)src_layers[l] : l * b.src.layer_step));
		}
	work.job.move.plan = plan_for_list(engine, &work.transform, &b, 64, 64);
	work.job.blocks = &b;
	n_launches = n_sends = 0;
	engine_submit(engine, bench.stream, &work.job);
	wait_done(1);
	cr_assert_eq(work.job.status, 0, "%s: %d", row->name, work.job.status);
	cr_assert_eq(b.family, cuda_plan(plan)->family, "%s: by family %d", row->name, b.family);
	engine_plan_unref(plan);
	cr_assert_eq(n_sends, row->is_sent, "%s: %u", row->name, n_sends);
	for (size_t i = 0; i < MEMORY_BYTES; i++)
		cr_assert_eq(bench.expected[i], data(bench.dst)[i], "%s: byte %zu", row->name, i);
	cr_assert_eq(n_launches, 1, "%s: %u launches", row->name, n_launches);
	cr_assert_eq(b.passed, passed, "%s: %lu", row->name, (unsigned long)b.passed);
	cr_assert_eq(b.beyond, row->pairs ? 3 : 2, "%s: %lu", row->name, (unsigned long)b.beyond);
	bench_close(&bench);
}
