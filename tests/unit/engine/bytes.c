/* SPDX-License-Identifier: Apache-2.0 */
/* Runs random jobs of every kind on every engine, between all kinds of memory, and compares them with the
 * oracles: the whole of both memories, the statuses, the counts and the signals. */
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "rig.h"
#include "tests/support/blocks.h"
#include "tests/support/conversion_case.h"
#include "tests/support/element.h"
#include "tests/support/tap.h"

TestSuite(bytes, .timeout = 300);

/* ---- Places ------------------------------------------------------------------------------------------- */

static const struct place {
	const char *name;
	enum region_kind dst, src;
	uint64_t scratch_bytes;
} places[] = {
	{ "host to host", REGION_KIND_MEMFD, REGION_KIND_MEMFD, 64 << 10 },
	{ "device to device", REGION_KIND_CUDA_FD, REGION_KIND_CUDA_FD, 0 },
	{ "host to device", REGION_KIND_CUDA_FD, REGION_KIND_MEMFD, 64 << 10 },
	{ "device to host", REGION_KIND_MEMFD, REGION_KIND_CUDA_FD, 64 << 10 },
	/* Only an engine in this process takes these. */
	{ "device to device by handles", REGION_KIND_CUDA_IPC, REGION_KIND_CUDA_IPC, 0 },
	{ "host to host, little scratch", REGION_KIND_MEMFD, REGION_KIND_MEMFD, 8 << 10 },
	{ "host to host, no scratch", REGION_KIND_MEMFD, REGION_KIND_MEMFD, 0 },
};

#define PLACES (sizeof places / sizeof *places)

static bool suits(enum rig_engine which, uint32_t i)
{
	return i == 0 || (rig_is_cuda(which) && (i < 4 || which == RIG_CUDA));
}

static const struct place *place;
static struct engine_stream *stream;
static struct memory words;

static void open_all(const struct row *row)
{
	place = &places[row->i];
	rig_scratch_bytes = place->scratch_bytes;
	rig_open(row->engine, place->name);
	stream = engine_stream_new(engine, &owner);
	words = memory_new(memory_kind(), 4096);
}

static void close_all(void)
{
	engine_stream_free(engine, stream);
	memory_free(&words);
	rig_close();
}

/* Runs the job of a seed; the seed also decides a point to wait for, a signal and a priority. */
static int run_seed(struct work *work, uint64_t seed)
{
	int status;

	word_set(&words, 64, seed - 1);
	work->job.share.priority = (enum job_priority)(seed % 3);
	work->job.share.host_threads = (uint32_t)(seed / 3 % 3);
	work->job.share.multiprocessors = (uint32_t)(seed / 9 % 3);
	work->job.signal = (struct engine_point){ words.of, 64, seed };
	if (seed / 27 % 3 == 0) {
		work->job.wait = (struct engine_point){ words.of, 64, seed - 1 };
		work->job.wait_until_ns = UINT64_MAX;
	}
	status = run(stream, work);
	cr_assert(work->job.begun, "%s: seed %lu", rig_text, seed);
	cr_assert_eq(word_get(&words, 64), status ? seed - 1 : seed, "%s: seed %lu: the signal", rig_text,
	             seed);
	return status;
}

/* ---- Transforms and conversions ----------------------------------------------------------------------- */

/* Makes two memories, each with the bytes that a case needs and a guard on either side. */
static void case_memories(const struct oracle_case *c, struct memory *dst, struct memory *src)
{
	*dst = memory_new(place->dst, c->dst_size + 2 * ORACLE_GUARD);
	*src = memory_new(place->src, c->src_size + 2 * ORACLE_GUARD);
	memcpy(dst->bytes, c->dst, dst->size);
	memcpy(src->bytes, c->src, src->size);
}

static void case_done(struct oracle_case *c, struct memory *dst, struct memory *src, const char *text)
{
	cr_assert_eq(memcmp(src->bytes, c->src, src->size), 0, "%s: the source was written: %s", rig_text,
	             text);
	memcpy(c->dst, dst->bytes, dst->size);
	memory_free(dst);
	memory_free(src);
	works_free();
}

ParameterizedTestParameters(bytes, random_transforms)
{
	return RIG_ROWS(PLACES, suits);
}

ParameterizedTest(struct row *row, bytes, random_transforms)
{
	const uint64_t seeds = (uint64_t)tap_portion(500);
	static struct work work;
	static char text[2000];

	open_all(row);
	for (uint64_t seed = 1; seed <= seeds; seed++) {
		struct memory dst, src;
		struct oracle_case c;

		oracle_random_case(seed, &c);
		oracle_case_text(&c, text, sizeof text);
		cr_assert(oracle_case_prepare(&c));
		case_memories(&c, &dst, &src);
		work_init(&work, &c.spec, NULL, &dst, ORACLE_GUARD + c.dst_offset, &src,
		          ORACLE_GUARD + c.src_offset);
		cr_assert_eq(run_seed(&work, seed), 0, "%s: %d: %s", rig_text, work.job.status, text);
		case_done(&c, &dst, &src, text);
		cr_assert(oracle_case_check(&c, text, sizeof text), "%s: %s", rig_text, text);
		oracle_case_free(&c);
	}
	close_all();
}

/* Returns an operand of the conversion, with its tensor in a memory of its own. */
static struct engine_operand operand_of(const struct operand_case *operand, struct memory *memory)
{
	struct engine_operand ret = { .number = operand->number };

	if (operand->size) {
		*memory = memory_new(place->src, operand->size);
		memcpy(memory->bytes, operand->bytes, operand->size);
		ret.memory = memory->of;
		ret.offset = operand->offset;
	}
	return ret;
}

/* Returns whether the count of changed elements is right. Elements of a border that repeats the source may be
 * counted once each or as often as they are written. */
static bool is_counted(const struct conversion_case *c, uint64_t changed)
{
	return c->c.spec.mode == PAD_MODE_CONSTANT ? changed == c->changed : !changed == !c->changed;
}

ParameterizedTestParameters(bytes, random_conversions)
{
	return RIG_ROWS(PLACES, suits);
}

/* An exact cast that changes values ends with OUT_OF_RANGE and leaves what a saturating cast does. */
ParameterizedTest(struct row *row, bytes, random_conversions)
{
	const uint64_t seeds = (uint64_t)tap_portion(300);
	static struct work work;
	static char text[4096];

	open_all(row);
	for (uint64_t seed = 1; seed <= seeds; seed++) {
		struct memory dst, src, scale = { .of = NULL }, bias = { .of = NULL };
		struct conversion_case c;
		int status;

		conversion_random_case(seed, &c);
		cr_assert(conversion_case_prepare(&c));
		conversion_case_text(&c, text, sizeof text);
		case_memories(&c.c, &dst, &src);
		work_init(&work, &c.c.spec, NULL, &dst, ORACLE_GUARD + c.c.dst_offset, &src,
		          ORACLE_GUARD + c.c.src_offset);
		work.job.move.operand[ROLE_SCALE] = operand_of(&c.scale, &scale);
		work.job.move.operand[ROLE_BIAS] = operand_of(&c.bias, &bias);
		status = run_seed(&work, seed);
		cr_assert_eq(status, c.changed ? STATUS_OUT_OF_RANGE : 0, "%s: seed %lu: %d:%s", rig_text,
		             seed, status, text);
		cr_assert(is_counted(&c, work.job.move.changed), "%s: seed %lu: %lu changed, not %lu:%s",
		          rig_text, seed, work.job.move.changed, c.changed, text);
		if (scale.of)
			memory_free(&scale);
		if (bias.of)
			memory_free(&bias);
		case_done(&c.c, &dst, &src, text);
		cr_assert(conversion_case_check(&c, text, sizeof text), "%s: %s", rig_text, text);
		conversion_case_free(&c);
	}
	close_all();
}

/* ---- Scales ------------------------------------------------------------------------------------------- */

/* A conversion of bfloat16 [rows, columns] to float8_e4m3fn with a scale for each block. */
struct scaled {
	struct transform_spec spec;
	int64_t shape[2], block[2], blocks[2];
	bool transposed;
	uint16_t *src;
	uint8_t *dst;
	uint8_t *scale; /* float32 values, or exponents of one byte */
	float *inverse;
};

static void scaled_draw(struct scaled *s, uint64_t seed)
{
	struct amax_spec *amax = &s->spec.conversion.amax;
	int64_t of_src[2];
	uint64_t state = seed;
	struct error err;

	*s = (struct scaled){ .spec = { .n_perm = 2, .n_before = -1, .n_after = -1 },
		              .transposed = oracle_random(&state) % 2 };
	s->spec.conversion.is_given = amax->is_given = true;
	amax->scale.is_given = amax->inverse.is_given = true;
	amax->power_of_two = oracle_random(&state) % 2;
	amax->n_block = 2;
	for (int d = 0; d < 2; d++) {
		s->shape[d] = oracle_between(&state, 1, d ? 300 : 70);
		s->block[d] = amax->block[d] = oracle_between(&state, 1, d ? 150 : 40);
		s->blocks[d] = (s->shape[d] + s->block[d] - 1) / s->block[d];
		s->spec.perm[d] = s->transposed ? 1 - d : d;
		of_src[s->spec.perm[d]] = s->shape[d];
	}
	tensor_layout_init(&s->spec.dst, DTYPE_FLOAT8_E4M3FN, 2, s->shape, NULL, "dst", &err);
	tensor_layout_init(&s->spec.src, DTYPE_BFLOAT16, 2, of_src, NULL, "src", &err);
	tensor_layout_init(&amax->scale.layout, amax->power_of_two ? DTYPE_UINT8 : DTYPE_FLOAT32, 2,
	                   s->blocks, NULL, "scale", &err);
	tensor_layout_init(&amax->inverse.layout, DTYPE_FLOAT32, 2, s->blocks, NULL, "inverse", &err);
	s->src = calloc((size_t)(s->shape[0] * s->shape[1]), sizeof *s->src);
	s->dst = calloc((size_t)(s->shape[0] * s->shape[1]), 1);
	s->scale = calloc((size_t)(s->blocks[0] * s->blocks[1]), 4);
	s->inverse = calloc((size_t)(s->blocks[0] * s->blocks[1]), 4);
	/* The values have any magnitude, but are neither infinite nor NaN. */
	for (int64_t i = 0; i < s->shape[0] * s->shape[1]; i++)
		s->src[i] = (uint16_t)oracle_random(&state) & 0xbfff;
}

static void scaled_free(struct scaled *s)
{
	free(s->src);
	free(s->dst);
	free(s->scale);
	free(s->inverse);
}

static const uint8_t *scaled_element(const struct scaled *s, int64_t r, int64_t c)
{
	return (const uint8_t *)&s->src[s->transposed ? c * s->shape[0] + r : r * s->shape[1] + c];
}

/* The part of a block that the tensor has: elements [low, high) of either dimension. */
struct box {
	int64_t low[2], high[2];
};

static struct box scaled_box(const struct scaled *s, int64_t b)
{
	const int64_t at[2] = { b / s->blocks[1], b % s->blocks[1] };
	struct box ret;

	for (int d = 0; d < 2; d++) {
		ret.low[d] = at[d] * s->block[d];
		ret.high[d] = ret.low[d] + s->block[d];
		if (ret.high[d] > s->shape[d])
			ret.high[d] = s->shape[d];
	}
	return ret;
}

/* Returns the bits of a float32. */
static uint32_t largest_magnitude(const struct scaled *s, const struct box *box)
{
	uint64_t most = 0;

	for (int64_t r = box->low[0]; r < box->high[0]; r++)
		for (int64_t c = box->low[1]; c < box->high[1]; c++) {
			const uint64_t bits = element_magnitude(DTYPE_BFLOAT16, scaled_element(s, r, c));

			most = bits > most ? bits : most;
		}
	return (uint32_t)most << 16;
}

static void scaled_expect(const struct scaled *s, const struct amax_rule *rule)
{
	const struct conversion_spec scaling = { .is_given = true, .scale.kind = OPERAND_NUMBER };
	const enum dtype dtype = s->spec.conversion.amax.scale.layout.dtype;

	for (int64_t b = 0; b < s->blocks[0] * s->blocks[1]; b++) {
		const struct box box = scaled_box(s, b);
		const struct amax_scale scale = amax_scale_of(rule, largest_magnitude(s, &box));

		for (int64_t r = box.low[0]; r < box.high[0]; r++)
			for (int64_t c = box.low[1]; c < box.high[1]; c++)
				element_convert(&scaling, DTYPE_FLOAT8_E4M3FN, &s->dst[r * s->shape[1] + c],
				                DTYPE_BFLOAT16, scaled_element(s, r, c), scale.inverse, 0);
		amax_encode(dtype, scale.scale, s->scale + b * dtype_size(dtype));
		s->inverse[b] = scale.inverse;
	}
}

static bool suits_scales(enum rig_engine which, uint32_t i)
{
	return i < 2 && suits(which, i);
}

ParameterizedTestParameters(bytes, random_scales)
{
	return RIG_ROWS(2, suits_scales);
}

ParameterizedTest(struct row *row, bytes, random_scales)
{
	enum { BYTES = 1 << 17 };
	const uint64_t seeds = (uint64_t)tap_portion(50);
	static struct work work;
	struct memory dst, src, scale, inverse;

	open_all(row);
	dst = memory_new(place->dst, BYTES);
	src = memory_new(place->src, BYTES);
	scale = memory_new(place->dst, BYTES);
	inverse = memory_new(place->dst, BYTES);
	for (uint64_t seed = 1; seed <= seeds; seed++) {
		struct scaled s;
		size_t n, blocks;

		scaled_draw(&s, seed);
		n = (size_t)(s.shape[0] * s.shape[1]);
		blocks = (size_t)(s.blocks[0] * s.blocks[1]);
		memset(dst.bytes, 0xa5, BYTES);
		memcpy(src.bytes, s.src, 2 * n);
		work_init(&work, &s.spec, NULL, &dst, seed % 5, &src, 0);
		work.job.move.operand[ROLE_AMAX_SCALE] = (struct engine_operand){ .memory = scale.of };
		work.job.move.operand[ROLE_AMAX_INVERSE] =
		    (struct engine_operand){ .memory = inverse.of, .offset = 64 };
		cr_assert_eq(run_seed(&work, seed), 0, "%s: seed %lu: %d", rig_text, seed, work.job.status);
		scaled_expect(&s, &work.job.move.transform->conversion.amax.rule);
		cr_assert_arr_eq(dst.bytes + seed % 5, s.dst, n, "%s: seed %lu", rig_text, seed);
		cr_assert_eq(dst.bytes[seed % 5 + n], 0xa5, "%s: seed %lu", rig_text, seed);
		cr_assert_arr_eq(scale.bytes, s.scale,
		                 blocks * (size_t)dtype_size(s.spec.conversion.amax.scale.layout.dtype),
		                 "%s: seed %lu: scales", rig_text, seed);
		cr_assert_arr_eq(inverse.bytes + 64, s.inverse, 4 * blocks, "%s: seed %lu: inverses",
		                 rig_text, seed);
		scaled_free(&s);
		works_free();
	}
	memory_free(&dst);
	memory_free(&src);
	memory_free(&scale);
	memory_free(&inverse);
	close_all();
}

/* ---- Lists -------------------------------------------------------------------------------------------- */

static void fill(const struct memory *dst, const struct memory *src)
{
	uint64_t state = 5;

	for (size_t i = 0; i < src->size; i += 8) {
		const uint64_t word = oracle_random(&state);

		memcpy(src->bytes + i, &word, 8);
	}
	memset(dst->bytes, 0xa5, dst->size);
}

static void expect_bytes(const struct memory *dst, const unsigned char *expected, size_t n, uint64_t seed,
                         const char *text)
{
	for (size_t i = 0; memcmp(dst->bytes, expected, n) != 0 && i < n; i++)
		cr_assert_eq(dst->bytes[i], expected[i],
		             "%s: seed %lu: byte %zu of %zu is 0x%02x, not 0x%02x: %s", rig_text, seed, i, n,
		             dst->bytes[i], expected[i], text);
}

ParameterizedTestParameters(bytes, random_lists)
{
	return RIG_ROWS(PLACES, suits);
}

/* The list of blocks comes with the job, or lies in memory of the destination's kind or the source's. */
ParameterizedTest(struct row *row, bytes, random_lists)
{
	const uint64_t seeds = (uint64_t)tap_portion(120);
	static struct blocks_case c;
	static struct work work;
	static char text[2000];
	unsigned char *expected = malloc(BLOCKS_CASE_BYTES);
	struct memory dst, src, index[2];

	open_all(row);
	dst = memory_new(place->dst, BLOCKS_CASE_BYTES);
	src = memory_new(place->src, BLOCKS_CASE_BYTES);
	index[0] = memory_new(place->dst, 4096);
	index[1] = memory_new(place->src, 4096);
	fill(&dst, &src);
	for (uint64_t seed = 1; seed <= seeds; seed++) {
		struct engine_blocks *b = &c.blocks;
		const struct memory *list = &index[seed % 2];

		blocks_case_draw(seed, &c, seed % 3 == 0);
		oracle_case_text(&c.block, text, sizeof text);
		if (seed % 3 == 0) {
			b->index = c.packed + 1; /* makes the list unaligned */
		} else {
			b->index_memory = list->of;
			b->index_offset = 8 * (seed % 3);
			memcpy(list->bytes + b->index_offset, c.packed + 1, b->n * blocks_entry_bytes(b));
		}
		b->passed = b->beyond = 999;
		memcpy(expected, dst.bytes, c.dst.end);
		blocks_case_expect(&c, expected, src.bytes);
		work_init(&work, &c.block.spec, b, &dst, c.dst.offset, &src, c.src.offset);
		cr_assert_eq(run_seed(&work, seed), 0, "%s: %d: %s", rig_text, work.job.status, text);
		expect_bytes(&dst, expected, c.dst.end, seed, text);
		if (work.job.move.transform->count > 0) {
			cr_assert_eq(b->passed, c.passed, "%s: seed %lu: %lu", rig_text, seed, b->passed);
			cr_assert_eq(b->beyond, c.beyond, "%s: seed %lu: %lu", rig_text, seed, b->beyond);
		}
		oracle_case_free(&c.block);
		works_free();
	}
	memory_free(&dst);
	memory_free(&src);
	memory_free(&index[0]);
	memory_free(&index[1]);
	close_all();
	free(expected);
}

/* ---- Tables ------------------------------------------------------------------------------------------- */

#define TABLE_BYTES (64u << 10)

/* One side of a list of blocks, with each layer in a memory of its own. */
struct side {
	struct memory memory[RIG_LAYERS];
	uint64_t offset[RIG_LAYERS];
	struct layers layers;
};

static void side_place(struct side *side, uint32_t layers, uint64_t align, uint64_t *state)
{
	for (uint32_t l = 0; l < layers; l++)
		side->offset[l] = align * (uint64_t)oracle_between(state, 0, (int64_t)(1024 / align));
	layers_init(&side->layers, layers, side->memory, side->offset);
}

ParameterizedTestParameters(bytes, random_tables)
{
	return RIG_ROWS(PLACES, suits);
}

/* The blocks are float32 [rows, columns]. Half of the lists transpose them, and half are scatters. */
ParameterizedTest(struct row *row, bytes, random_tables)
{
	const uint64_t seeds = (uint64_t)tap_portion(150);
	static struct side dst, src;
	static unsigned char expected[RIG_LAYERS][TABLE_BYTES];
	static struct work work;

	open_all(row);
	for (int l = 0; l < RIG_LAYERS; l++) {
		dst.memory[l] = memory_new(place->dst, TABLE_BYTES);
		src.memory[l] = memory_new(place->src, TABLE_BYTES);
		fill(&dst.memory[l], &src.memory[l]);
		src.memory[l].bytes[0] = (unsigned char)l;
	}
	for (uint64_t seed = 1; seed <= seeds; seed++) {
		uint64_t state = seed;
		const int64_t shape[] = { oracle_between(&state, 1, 60), oracle_between(&state, 1, 24) };
		const bool transposed = oracle_random(&state) % 2;
		const int64_t made[] = { shape[transposed], shape[!transposed] };
		const uint64_t align = UINT64_C(4) << oracle_random(&state) % 4,
			       step =
				   (uint64_t)(shape[0] * shape[1]) * 4 + align * (oracle_random(&state) % 3);
		struct transform_spec spec = {
			.n_perm = 2, .perm = { transposed, !transposed }, .n_before = -1, .n_after = -1
		};
		struct engine_blocks b = { .n = 10,
			                   .layers = (uint32_t)oracle_between(&state, 1, RIG_LAYERS),
			                   .scatter = oracle_random(&state) % 2,
			                   .index_bytes = 4,
			                   .limit = 10,
			                   .dst.step = step,
			                   .src.step = step };
		int32_t index[10];
		struct error err;

		tensor_layout_init(&spec.src, DTYPE_FLOAT32, 2, shape, NULL, "src", &err);
		tensor_layout_init(&spec.dst, DTYPE_FLOAT32, 2, made, NULL, "dst", &err);
		side_place(&dst, b.layers, align, &state);
		side_place(&src, b.layers, align, &state);
		blocks_use_table(&b.dst, &dst.layers.table);
		blocks_use_table(&b.src, &src.layers.table);
		for (int32_t i = 0; i < 10; i++)
			index[i] = i == 4 ? -1 : (i * 3 + 7) % 10;
		b.index = index;
		for (uint32_t l = 0; l < b.layers; l++) {
			memcpy(expected[l], dst.memory[l].bytes, TABLE_BYTES);
			for (uint64_t i = 0; i < b.n; i++)
				if (index[i] >= 0)
					oracle_run(&spec,
					           expected[l] + dst.offset[l] +
					               (b.scatter ? (uint64_t)index[i] : i) * step,
					           src.memory[l].bytes + src.offset[l] +
					               (b.scatter ? i : (uint64_t)index[i]) * step);
		}
		work_init(&work, &spec, &b, &dst.memory[0], dst.offset[0], &src.memory[0], src.offset[0]);
		cr_assert_eq(run_seed(&work, seed), 0, "%s: seed %lu: %d", rig_text, seed, work.job.status);
		for (uint32_t l = 0; l < b.layers; l++)
			expect_bytes(&dst.memory[l], expected[l], TABLE_BYTES, seed, "a layer");
		cr_assert_eq(b.passed, 1, "%s: seed %lu: %lu", rig_text, seed, b.passed);
		works_free();
	}
	for (int l = 0; l < RIG_LAYERS; l++) {
		memory_free(&dst.memory[l]);
		memory_free(&src.memory[l]);
	}
	close_all();
}

/* ---- Batches ------------------------------------------------------------------------------------------ */

#define MOST_MOVES  48
#define BATCH_BYTES (2u << 20)

ParameterizedTestParameters(bytes, random_batches)
{
	return RIG_ROWS(PLACES, suits);
}

/* A batch has up to MOST_MOVES moves, or none, and some have the layout of the move before. Every other batch
 * moves from one place to the other, and the rest move back. */
ParameterizedTest(struct row *row, bytes, random_batches)
{
	const uint64_t seeds = (uint64_t)tap_portion(80);
	static struct engine_move moves[MOST_MOVES];
	static struct work work;
	unsigned char *expected = malloc(BATCH_BYTES);
	struct memory dst, src;

	open_all(row);
	dst = memory_new(place->dst, BATCH_BYTES);
	src = memory_new(place->src, BATCH_BYTES);
	fill(&dst, &src);
	for (uint64_t seed = 1; seed <= seeds; seed++) {
		const struct memory *to = seed % 2 ? &dst : &src, *from = seed % 2 ? &src : &dst;
		uint64_t state = seed, end = 0;
		const uint32_t n = (uint32_t)(oracle_random(&state) % (MOST_MOVES + 1));
		struct oracle_case c;

		memcpy(expected, to->bytes, BATCH_BYTES);
		for (uint32_t i = 0; i < n; i++) {
			if (i == 0 || oracle_random(&state) % 3)
				oracle_random_case(seed * 1000 + i, &c);
			const uint64_t to_offset = end + ORACLE_GUARD + c.dst_offset,
				       from_offset = oracle_random(&state) % 512 + c.src_offset;

			work_init(&work, &c.spec, NULL, to, to_offset, from, from_offset);
			moves[i] = work.job.move;
			moves[i].status = 99;
			oracle_run(&c.spec, expected + to_offset, from->bytes + from_offset);
			end += (c.dst_size + 2 * ORACLE_GUARD) / 16 * 16 + oracle_random(&state) % 2 * 8;
			cr_assert_leq(end, BATCH_BYTES);
		}
		work_init_batch(&work, moves, n);
		cr_assert_eq(run_seed(&work, seed), 0, "%s: seed %lu: %d", rig_text, seed, work.job.status);
		cr_assert_not(work.job.is_measured, "%s: seed %lu", rig_text, seed);
		for (uint32_t i = 0; i < n; i++)
			cr_assert_eq(moves[i].status, 0, "%s: seed %lu: move %u: %d", rig_text, seed, i,
			             moves[i].status);
		expect_bytes(to, expected, BATCH_BYTES, seed, "a batch");
		works_free();
	}
	memory_free(&dst);
	memory_free(&src);
	close_all();
	free(expected);
}
