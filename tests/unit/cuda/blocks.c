/* Lists of blocks against the oracle, block by block: random transforms, lists, layers and places, whole
 * memories compared; and how many launches one takes. */
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "counted.h"
#include "rig.h"
#include "tests/support/blocks.h"

#define MEMORY_BYTES BLOCKS_CASE_BYTES

enum index_place { INDEX_INLINE, INDEX_DEVICE, INDEX_HOST };

struct place_row {
	char name[40];
	enum region_kind dst, src;
	enum index_place index;
	uint64_t seeds;
};

ParameterizedTestParameters(blocks, random_lists)
{
	static struct place_row rows[] = {
		{ "device to device", REGION_KIND_CUDA_FD, REGION_KIND_CUDA_IPC, INDEX_INLINE, 600 },
		{ "host to device", REGION_KIND_CUDA_IPC, REGION_KIND_MEMFD, INDEX_INLINE, 300 },
		{ "device to host", REGION_KIND_MEMFD, REGION_KIND_CUDA_FD, INDEX_INLINE, 300 },
		{ "host to host", REGION_KIND_MEMFD, REGION_KIND_MEMFD, INDEX_INLINE, 200 },
		{ "index on the device", REGION_KIND_CUDA_FD, REGION_KIND_CUDA_FD, INDEX_DEVICE, 600 },
		{ "index on the host", REGION_KIND_CUDA_FD, REGION_KIND_MEMFD, INDEX_HOST, 300 },
	};
	return cr_make_param_array(struct place_row, rows, sizeof rows / sizeof *rows);
}

/* A test's memories, and what the destination has to be. */
struct bench {
	struct engine_stream *stream;
	struct engine_memory *dst, *src, *index;
	unsigned char *expected;
};

static void bench_open(struct bench *bench, const struct place_row *row)
{
	struct cuda_limits limits = small_limits();
	uint64_t state = 5;

	limits.owner_bytes = 1 << 30;
	open_engine(&limits);
	count_launches();
	bench->stream = engine_stream_new(engine, &owner);
	bench->dst = new_memory(row->dst, MEMORY_BYTES);
	bench->src = new_memory(row->src, MEMORY_BYTES);
	bench->index = new_memory(row->index == INDEX_HOST ? REGION_KIND_MEMFD : REGION_KIND_CUDA_FD, 4096);
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

/* A border may be another launch's. */
static unsigned most_launches(const struct transform *transform)
{
	for (int d = 0; d < transform->rank; d++)
		if (transform->axis[d].source != transform->axis[d].extent)
			return 2;
	return 1;
}

static void run_case(const struct bench *bench, const struct place_row *row, uint64_t seed)
{
	static struct blocks_case c;
	static struct work work;
	static char text[2000];
	struct engine_blocks *b = &c.blocks;

	blocks_case_draw(seed, &c, row->index == INDEX_INLINE);
	oracle_case_text(&c.block, text, sizeof text);
	cr_assert_leq(c.dst.end, MEMORY_BYTES);
	cr_assert_leq(c.src.end, MEMORY_BYTES);
	work_init_spec(&work, &c.block.spec, bench->dst, c.dst.offset, bench->src, c.src.offset);
	if (row->index == INDEX_INLINE) {
		b->index = c.packed + 1;
	} else {
		b->index_memory = bench->index;
		b->index_offset = 8 * (seed % 3);
		memcpy(data(bench->index) + b->index_offset, c.packed + 1, b->n * b->index_bytes);
	}
	b->passed = b->beyond = 999;
	work.job.blocks = b;
	memcpy(bench->expected, data(bench->dst), c.dst.end);
	blocks_case_expect(&c, bench->expected, data(bench->src));
	n_done = 0;
	n_launches = 0;
	engine_submit(engine, bench->stream, &work.job);
	wait_done(1);
	cr_assert_eq(work.job.status, 0, "%s: seed %lu: %d: %s", row->name, (unsigned long)seed,
	             work.job.status, text);
	for (size_t i = 0; i < c.dst.end; i++)
		cr_assert_eq(bench->expected[i], data(bench->dst)[i],
		             "%s: seed %lu: byte %zu of %lu: %s, n %lu, limit %lu, %u layers, steps %lu %lu, "
		             "scatter %d",
		             row->name, (unsigned long)seed, i, (unsigned long)c.dst.end, text,
		             (unsigned long)b->n, (unsigned long)b->limit, b->layers,
		             (unsigned long)b->dst.step, (unsigned long)b->src.step, b->scatter);
	if (work.transform.count > 0) {
		cr_assert_eq(b->passed, c.passed, "%s: seed %lu: %lu", row->name, (unsigned long)seed,
		             (unsigned long)b->passed);
		cr_assert_eq(b->beyond, c.beyond, "%s: seed %lu: %lu", row->name, (unsigned long)seed,
		             (unsigned long)b->beyond);
		cr_assert_leq(n_launches, most_launches(&work.transform), "%s: seed %lu: %u launches: %s",
		              row->name, (unsigned long)seed, n_launches, text);
	}
	oracle_case_free(&c.block);
}

ParameterizedTest(struct place_row *row, blocks, random_lists)
{
	struct bench bench;

	bench_open(&bench, row);
	for (uint64_t seed = 1; seed <= row->seeds; seed++)
		run_case(&bench, row, seed);
	bench_close(&bench);
}
