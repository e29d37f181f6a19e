/* SPDX-License-Identifier: Apache-2.0 */
/* Random jobs of every kind through an engine in a process of its own and through one in this process: what
 * they leave in memory, and what they say, is the same. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/plan/layer_table.h"
#include "rig.h"
#include "tests/support/blocks.h"
#include "tests/support/conversion_case.h"
#include "tests/support/tap.h"

#define BYTES  BLOCKS_CASE_BYTES
#define MOVES  24
#define LAYERS 6

/* Of either engine: memory of its own to write to, and of both to read. */
struct side {
	struct rig rig;
	struct engine_stream *stream;
	int file;
	struct engine_memory *dst, *src, *other, *words;
	struct work *work; /* MOVES of them */
	struct engine_move moves[MOVES];
	struct engine_blocks blocks;
	struct blocks_case lists;
	struct layer_table table;
	struct layer_place places[LAYERS];
	struct engine_memory *memories[LAYERS];
	int64_t layers[LAYERS];
	uint32_t order[LAYERS];
};

static struct side side[2]; /* here, and in a process */
static int src_file, other_file;

static void open_side(struct side *s)
{
	s->work = calloc(MOVES, sizeof *s->work);
	s->stream = engine_stream_new(s->rig.engine, &s->rig.owner);
	s->file = rig_file(BYTES);
	s->dst = rig_map(&s->rig, s->file, BYTES);
	s->src = rig_map(&s->rig, src_file, BYTES);
	s->other = rig_map(&s->rig, other_file, BYTES);
	s->words = rig_make(&s->rig, REGION_KIND_MEMFD, 4096);
}

static void close_side(struct side *s)
{
	engine_stream_free(s->rig.engine, s->stream);
	engine_unmap(s->rig.engine, s->dst);
	engine_unmap(s->rig.engine, s->src);
	engine_unmap(s->rig.engine, s->other);
	engine_unmap(s->rig.engine, s->words);
	rig_close(&s->rig);
	close(s->file);
	free(s->work);
}

static void open_sides(const struct engine_options *options)
{
	src_file = rig_file(BYTES);
	other_file = rig_file(BYTES);
	rig_open_here(&side[0].rig, "cpu", NULL);
	rig_open(&side[1].rig, "cpu", options);
	open_side(&side[0]);
	open_side(&side[1]);
}

static void close_sides(void)
{
	close_side(&side[0]);
	close_side(&side[1]);
	close(src_file);
	close(other_file);
}

/* ---- What is asked ------------------------------------------------------------------------------------ */

enum what { TRANSFORM, CONVERSION, SCALES, LIST, LIST_IN_MEMORY, TABLES, BATCH, NOTHING };

static void fill(uint64_t seed)
{
	uint64_t state = seed;

	for (size_t i = 0; i < BYTES; i += 8) {
		const uint64_t word = oracle_random(&state);

		memcpy((char *)side[0].src->host + i, &word, 8);
	}
	memset(side[0].dst->host, 0xa5, BYTES);
	memset(side[1].dst->host, 0xa5, BYTES);
}

static void draw_transform(struct side *s, struct work *work, uint64_t seed, uint64_t to)
{
	struct oracle_case c;

	oracle_random_case(seed, &c);
	work_init_spec(work, &s->rig, &c.spec, s->dst, to + c.dst_offset, s->src, c.src_offset);
}

static void draw_conversion(struct side *s, struct work *work, uint64_t seed)
{
	struct conversion_case c;

	conversion_random_case(seed, &c);
	work_init_spec(work, &s->rig, &c.c.spec, s->dst, c.c.dst_offset, s->src, c.c.src_offset);
	work->job.move.scale =
	    (struct engine_operand){ c.scale.number, c.scale.size ? s->other : NULL, c.scale.offset };
	work->job.move.bias =
	    (struct engine_operand){ c.bias.number, c.bias.size ? s->other : NULL, c.bias.offset };
	conversion_case_free(&c);
}

/* The scales lie behind the destination. */
static void draw_scales(struct side *s, struct work *work, uint64_t seed)
{
	uint64_t state = seed;
	const int64_t shape[] = { oracle_between(&state, 1, 70), oracle_between(&state, 1, 300) };
	const int64_t block[] = { oracle_between(&state, 1, 40), oracle_between(&state, 1, 130) };
	int64_t blocks[2];
	struct transform_spec spec = { .n_perm = -1, .n_before = -1, .n_after = -1 };
	struct amax_spec *amax = &spec.conversion.amax;
	struct error err;

	spec.conversion.is_given = amax->is_given = amax->scale.is_given = amax->inverse.is_given = true;
	amax->power_of_two = oracle_random(&state) % 2;
	amax->n_block = 2;
	for (int d = 0; d < 2; d++) {
		amax->block[d] = block[d];
		blocks[d] = (shape[d] + block[d] - 1) / block[d];
	}
	tensor_layout_init(&spec.dst, DTYPE_FLOAT8_E4M3FN, 2, shape, NULL, "dst", &err);
	tensor_layout_init(&spec.src, DTYPE_BFLOAT16, 2, shape, NULL, "src", &err);
	tensor_layout_init(&amax->scale.layout, amax->power_of_two ? DTYPE_UINT8 : DTYPE_FLOAT32, 2, blocks,
	                   NULL, "scale", &err);
	tensor_layout_init(&amax->inverse.layout, DTYPE_FLOAT32, 2, blocks, NULL, "inverse", &err);
	work_init_spec(work, &s->rig, &spec, s->dst, 0, s->src, 64);
	work->job.move.amax_scale = (struct engine_result){ s->dst, BYTES / 2 };
	work->job.move.amax_inverse = (struct engine_result){ s->dst, BYTES / 4 * 3 };
}

static void draw_list(struct side *s, struct work *work, uint64_t seed, bool in_memory)
{
	struct blocks_case *c = &s->lists;

	blocks_case_draw(seed, c, !in_memory);
	work_init_spec(work, &s->rig, &c->block.spec, s->dst, c->dst.offset, s->src, c->src.offset);
	const struct plan_facts facts = blocks_facts(
	    &s->rig.engine->facts, &c->blocks, s->dst->base + c->dst.offset, s->src->base + c->src.offset);

	plan_init(&work->plan, &work->transform, &facts);
	s->blocks = c->blocks;
	s->blocks.index = in_memory ? NULL : c->packed + 1;
	if (in_memory) {
		memcpy(s->other->host, c->packed + 1, sizeof c->packed - 1);
		s->blocks.index_memory = s->other;
	}
	work->job.blocks = &s->blocks;
}

/* Layers of the destination in memory of every sort of place: that of all, or the words'. */
static void draw_tables(struct side *s, struct work *work, uint64_t seed)
{
	static int32_t index[8];
	uint64_t state = seed;
	const int64_t bytes = oracle_between(&state, 1, 40) * 8;
	const uint32_t n = (uint32_t)oracle_between(&state, 1, LAYERS);
	struct error err;

	for (uint32_t l = 0; l < n; l++) {
		struct engine_memory *memory = oracle_random(&state) % 3 ? s->dst : s->other;
		const uint64_t offset = l * 16384 + (uint64_t)oracle_between(&state, 0, 400) * 8;

		s->memories[l] = memory;
		s->places[l] =
		    (struct layer_place){ .at = { .memory = { memory->memory[0], memory->memory[1] },
			                          .base = memory->base,
			                          .offset = offset,
			                          .size = memory->size },
			                  .address = memory->address + offset };
	}
	s->table = (struct layer_table){ .n = n,
		                         .places = s->places,
		                         .memories = s->memories,
		                         .noun = "table",
		                         .layers = s->layers,
		                         .order = s->order };
	cr_assert_eq(layer_table_init(&s->table, "places", &err), 0, "%s", err.message);
	for (int i = 0; i < 8; i++)
		index[i] = (int)oracle_between(&state, -1, 7);
	work_init_copy(work, &s->rig, bytes, s->memories[0], s->places[0].at.offset, s->src, 0);
	s->blocks = (struct engine_blocks){ .n = 8,
		                            .layers = n,
		                            .index_bytes = 4,
		                            .limit = 8,
		                            .index = index,
		                            .dst = { .step = (uint64_t)bytes },
		                            .src = { .step = (uint64_t)bytes, .layer_step = 8192 } };
	blocks_use_table(&s->blocks.dst, &s->table);
	work->job.blocks = &s->blocks;
}

static void draw_batch(struct side *s, struct work *work, uint64_t seed)
{
	uint64_t state = seed;
	const uint32_t n = (uint32_t)oracle_between(&state, 0, MOVES);

	for (uint32_t i = 0; i < n; i++) {
		const bool again = i > 0 && oracle_random(&state) % 3 == 0;
		struct work *one = &s->work[i];

		draw_transform(s, one, seed * 100 + i, i * (ORACLE_MAX_BYTES * 4));
		s->moves[i] = one->job.move;
		if (again) { /* the layout of the one before, elsewhere */
			s->moves[i].transform = s->moves[i - 1].transform;
			s->moves[i].plan = s->moves[i - 1].plan;
			s->moves[i].src_offset = s->moves[i - 1].src_offset;
			s->moves[i].dst_offset = s->moves[i - 1].dst_offset + ORACLE_MAX_BYTES * 4;
		}
	}
	if (n == 0)
		draw_transform(s, work, seed, 0);
	work->job.moves = s->moves;
	work->job.n_moves = n;
}

static void draw(struct side *s, uint64_t seed)
{
	struct work *work = &s->work[0];
	uint64_t state = seed;
	const enum what what = (enum what)(seed % NOTHING);

	switch (what) {
	case TRANSFORM:
		draw_transform(s, work, seed, 0);
		break;
	case CONVERSION:
		draw_conversion(s, work, seed);
		break;
	case SCALES:
		draw_scales(s, work, seed);
		break;
	case LIST:
	case LIST_IN_MEMORY:
		draw_list(s, work, seed, what == LIST_IN_MEMORY);
		break;
	case TABLES:
		draw_tables(s, work, seed);
		break;
	default:
		draw_batch(s, work, seed);
	}
	work->job.priority = (enum job_priority)(oracle_random(&state) % 3);
	work->job.host_threads = (uint32_t)(oracle_random(&state) % 3);
	if (oracle_random(&state) % 3 == 0) {
		work->job.wait = (struct engine_point){ s->words, 8, seed - 1 };
		work->job.wait_until_ns = UINT64_MAX;
	}
	work->job.signal = (struct engine_point){ s->words, 8, seed };
}

/* ---- What comes of it --------------------------------------------------------------------------------- */

static void compare(uint64_t seed)
{
	const struct engine_job *here = &side[0].work[0].job, *there = &side[1].work[0].job;
	const unsigned char *a = side[0].dst->host, *b = side[1].dst->host;

	cr_assert_eq(there->status, here->status, "seed %lu: %d, not %d", seed, there->status, here->status);
	cr_assert_eq(there->begun, here->begun, "seed %lu", seed);
	cr_assert_eq(there->move.changed, here->move.changed, "seed %lu: %lu changed", seed,
	             there->move.changed);
	cr_assert(there->ns > 0 || here->ns == 0, "seed %lu", seed);
	for (uint32_t i = 0; here->moves && i < here->n_moves; i++) {
		cr_assert_eq(there->moves[i].status, here->moves[i].status, "seed %lu: move %u", seed, i);
		cr_assert_eq(there->moves[i].changed, here->moves[i].changed, "seed %lu: move %u", seed, i);
	}
	if (here->blocks) {
		cr_assert_eq(there->blocks->family, here->blocks->family, "seed %lu", seed);
		cr_assert_eq(there->blocks->passed, here->blocks->passed, "seed %lu", seed);
		cr_assert_eq(there->blocks->beyond, here->blocks->beyond, "seed %lu", seed);
	}
	for (size_t i = 0; memcmp(a, b, BYTES) != 0 && i < BYTES; i++)
		cr_assert_eq(b[i], a[i], "seed %lu: byte %zu is 0x%02x, not 0x%02x", seed, i, b[i], a[i]);
	cr_assert_eq(((uint64_t *)side[1].words->host)[1], ((uint64_t *)side[0].words->host)[1],
	             "seed %lu: the signal", seed);
	if (here->status == 0)
		cr_assert_eq(((uint64_t *)side[1].words->host)[1], seed, "seed %lu: the signal", seed);
}

struct row {
	char name[24];
	bool drives;
	uint32_t threads;
};

ParameterizedTestParameters(process_random, as_in_this_process)
{
	static struct row rows[] = { { "woken", false, 2 }, { "driven", true, 1 } };

	return cr_make_param_array(struct row, rows, sizeof rows / sizeof *rows);
}

ParameterizedTest(struct row *row, process_random, as_in_this_process, .timeout = 600)
{
	const uint64_t seeds = (uint64_t)tap_portion(10000);

	open_sides(&(struct engine_options){ .threads = row->threads, .drives = row->drives });
	for (uint64_t seed = 1; seed <= seeds; seed++) {
		fill(seed);
		for (int i = 0; i < 2; i++) {
			((uint64_t *)side[i].words->host)[1] = seed - 1;
			memset(side[i].other->host, (int)seed, 65536);
			draw(&side[i], seed);
			side[i].rig.n_done = 0;
			engine_submit(side[i].rig.engine, side[i].stream, &side[i].work[0].job);
			rig_wait(&side[i].rig, 1);
		}
		compare(seed);
	}
	close_sides();
}
