/* Lists of blocks against the oracle, block by block: random transforms, lists, layers and places, whole
 * memories compared; and how many launches one takes. */
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "counted.h"
#include "rig.h"
#include "tests/support/oracle.h"

#define MOST_ENTRIES 24
#define MOST_BLOCKS  16
#define MOST_LAYERS  4
#define MEMORY_BYTES (4u << 20)
#define FILL_BYTES   600000 /* of one side, for large blocks fewer of them */

enum index_place { INDEX_INLINE, INDEX_DEVICE, INDEX_HOST };

/* Where the blocks of one side lie: bytes from its memory's first byte to element [0, ..., 0] of block 0 of
 * layer 0, which is `offset`, and from there on. */
struct side {
	uint64_t offset;
	uint64_t blocks;
	struct engine_blocks_side list;
	int64_t layers[MOST_LAYERS];
	uint64_t end;
};

struct blocks_case {
	struct oracle_case block;
	struct engine_blocks blocks;
	struct side dst, src;
	int64_t entry[MOST_ENTRIES];
	unsigned char packed[MOST_ENTRIES * 8 + 1];
	uint64_t passed, beyond;
};

static uint64_t chance(uint64_t *state, uint64_t n)
{
	return oracle_random(state) % n;
}

static uint64_t pitch(uint64_t *state, uint64_t bytes, uint32_t element)
{
	const uint64_t aligns[] = { 16, 128, element, 1 };
	const uint64_t align = aligns[chance(state, 4)];

	bytes += chance(state, 3) ? 0 : chance(state, 100);
	return (bytes + align - 1) / align * align;
}

static void draw_side(uint64_t *state, struct side *side, uint64_t blocks, uint32_t layers, uint64_t bytes,
                      uint64_t offset, uint32_t element)
{
	uint64_t step = pitch(state, bytes, element), layer = pitch(state, step * blocks, element);

	side->offset = ORACLE_GUARD + offset;
	side->blocks = blocks;
	side->list = (struct engine_blocks_side){ .step = step, .layer_step = layer };
	side->end = 2 * ORACLE_GUARD + layer * layers;
	if (chance(state, 2))
		return;
	/* The same places in another order. */
	for (uint32_t l = 0; l < layers; l++) {
		uint32_t at = (uint32_t)chance(state, l + 1);

		side->layers[l] = side->layers[at];
		side->layers[at] = (int64_t)(l * layer);
	}
	side->list.layer_step = 0;
	side->list.layers = side->layers;
}

/* In a scatter no block is named twice. */
static void draw_index(uint64_t *state, struct blocks_case *c, bool inline_index)
{
	struct engine_blocks *b = &c->blocks;
	bool used[MOST_BLOCKS] = { false };

	for (uint64_t i = 0; i < b->n; i++) {
		int64_t entry = (int64_t)chance(state, b->limit);
		uint64_t kind = chance(state, 8);

		if (kind == 0 || (b->scatter && used[entry]))
			entry = -1;
		else if (kind == 1 && !inline_index)
			entry = chance(state, 2) ? (int64_t)(b->limit + chance(state, 1000))
			                         : -2 - (int64_t)chance(state, 1000);
		if (kind == 2 && !inline_index && b->index_bytes == 8)
			entry += INT64_C(1) << 32;
		c->passed += entry == -1;
		c->beyond += entry != -1 && (uint64_t)entry >= b->limit;
		if (entry >= 0 && (uint64_t)entry < b->limit)
			used[entry] = true;
		c->entry[i] = entry;
		memcpy(c->packed + 1 + i * b->index_bytes, &entry, b->index_bytes);
	}
}

static void draw(uint64_t seed, struct blocks_case *c, bool inline_index)
{
	uint64_t state = seed * 77 + 1, most;
	struct engine_blocks *b = &c->blocks;

	*c = (struct blocks_case){ 0 };
	oracle_random_case(seed, &c->block);
	most = FILL_BYTES / (c->block.dst_size + c->block.src_size + 1) + 1;
	b->n = 1 + chance(&state, most < MOST_ENTRIES ? most : MOST_ENTRIES);
	b->limit = 1 + chance(&state, most < MOST_BLOCKS ? most : MOST_BLOCKS);
	b->layers = 1 + (uint32_t)chance(&state, MOST_LAYERS);
	b->scatter = chance(&state, 2);
	b->index_bytes = chance(&state, 2) ? 4 : 8;
	draw_index(&state, c, inline_index);
	draw_side(&state, &c->dst, b->scatter ? b->limit : b->n, b->layers, c->block.dst_size,
	          c->block.dst_offset, dtype_size(c->block.spec.dst.dtype));
	draw_side(&state, &c->src, b->scatter ? b->n : b->limit, b->layers, c->block.src_size,
	          c->block.src_offset, dtype_size(c->block.spec.src.dtype));
	b->dst = c->dst.list;
	b->src = c->src.list;
}

static uint64_t place_of(const struct side *side, uint64_t block, uint32_t layer)
{
	return side->offset + block * side->list.step +
	       (side->list.layers ? (uint64_t)side->list.layers[layer] : layer * side->list.layer_step);
}

static void expect(const struct blocks_case *c, unsigned char *dst, const unsigned char *src)
{
	const struct engine_blocks *b = &c->blocks;

	for (uint32_t l = 0; l < b->layers; l++)
		for (uint64_t i = 0; i < b->n; i++) {
			const uint64_t entry = (uint64_t)c->entry[i];

			if (entry < b->limit)
				oracle_run(&c->block.spec, dst + place_of(&c->dst, b->scatter ? entry : i, l),
				           src + place_of(&c->src, b->scatter ? i : entry, l));
		}
}

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

	draw(seed, &c, row->index == INDEX_INLINE);
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
	expect(&c, bench->expected, data(bench->src));
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
