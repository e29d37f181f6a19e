/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of blocks whose layers lie in memories of their own: moved as by one memory, and the end of a job
 * under which one of them fails. */
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/plan/layer_table.h"
#include "rig.h"

#define LAYERS 5
#define PAGE   4096

/* A side's layers, in a memory each. */
struct side {
	struct layer_table table;
	struct layer_place places[LAYERS];
	struct engine_memory *memories[LAYERS];
	int64_t layers[LAYERS];
	uint32_t order[LAYERS];
};

/* Block 0 of layer l is at byte 16 * l of its memory, which is a page longer than needed. */
static void side_init(struct side *side, uint64_t bytes)
{
	struct error err;

	for (uint64_t l = 0; l < LAYERS; l++) {
		struct engine_memory *memory = new_memory(16 * LAYERS + bytes + PAGE);

		side->memories[l] = memory;
		side->places[l] =
		    (struct layer_place){ .at = { .memory = { memory->memory[0], memory->memory[1] },
			                          .base = memory->base,
			                          .offset = 16 * l,
			                          .size = memory->size },
			                  .address = memory->address + 16 * l };
	}
	side->table = (struct layer_table){ .n = LAYERS,
		                            .places = side->places,
		                            .memories = side->memories,
		                            .noun = "table",
		                            .layers = side->layers,
		                            .order = side->order };
	cr_assert_eq(layer_table_init(&side->table, "places", &err), 0, "%s", err.message);
}

static char *layer_data(const struct side *side, uint64_t l)
{
	return data(side->memories[l]) + 16 * l;
}

static void side_deinit(struct side *side)
{
	for (int l = 0; l < LAYERS; l++)
		engine_unmap(engine, side->memories[l]);
}

struct row {
	char name[32];
	int64_t inline_bytes;
	int64_t bytes; /* of a block */
	uint64_t n;
	bool scatter;
	int broken; /* a layer's memory, from its last page on; -1: none */
	bool dst;   /* of that side */
};

/* Blocks of more than 4 KiB are handed out in partitions (rig.c). */
ParameterizedTestParameters(tables, layers_in_memories_of_their_own)
{
	static struct row rows[] = {
		{ .name = "inline", .inline_bytes = 1 << 20, .bytes = 64, .n = 4, .broken = -1 },
		{ .name = "inline, scatter",
		  .inline_bytes = 1 << 20,
		  .bytes = 64,
		  .n = 4,
		  .scatter = true,
		  .broken = -1 },
		{ .name = "threads", .bytes = 256, .n = 700, .broken = -1 },
		{ .name = "threads, scatter", .bytes = 256, .n = 700, .scatter = true, .broken = -1 },
		{ .name = "threads, layers together", .bytes = 128, .n = 3, .broken = -1 },
		{ .name = "partitions", .bytes = 65536, .n = 3, .broken = -1 },
		{ .name = "inline, first source", .inline_bytes = 1 << 20, .bytes = 2048, .n = 8 },
		{ .name = "inline, last source",
		  .inline_bytes = 1 << 20,
		  .bytes = 2048,
		  .n = 8,
		  .broken = LAYERS - 1 },
		{ .name = "inline, destination",
		  .inline_bytes = 1 << 20,
		  .bytes = 2048,
		  .n = 8,
		  .broken = 2,
		  .dst = true },
		{ .name = "threads, source", .bytes = 1024, .n = 64, .broken = 3 },
		{ .name = "threads, destination", .bytes = 1024, .n = 64, .broken = 3, .dst = true },
		{ .name = "layers together, source", .bytes = 4000, .n = 3, .broken = 1 },
		{ .name = "layers together, destination", .bytes = 4000, .n = 3, .broken = 4, .dst = true },
		{ .name = "partitions, source", .bytes = 65536, .n = 2, .broken = 4 },
		{ .name = "partitions, destination", .bytes = 65536, .n = 2, .broken = 1, .dst = true },
	};
	return cr_make_param_array(struct row, rows, sizeof(rows) / sizeof(rows[0]));
}

/* The last page that blocks touch. */
static void break_layer(const struct side *side, const struct row *row)
{
	const size_t end = 16 * (size_t)row->broken + (size_t)row->bytes * row->n;

	break_memory(side->memories[row->broken], (end - 1) / PAGE * PAGE);
}

ParameterizedTest(struct row *row, tables, layers_in_memories_of_their_own)
{
	static struct side dst, src;
	static struct list_work work;
	static int32_t index[1024];
	const uint64_t bytes = (uint64_t)row->bytes * row->n;
	struct engine_stream *stream;

	open_engine(2, row->inline_bytes);
	stream = engine_stream_new(engine, &owner);
	side_init(&dst, bytes);
	side_init(&src, bytes);
	for (uint64_t i = 0; i < row->n; i++)
		index[i] = (int32_t)(row->n - 1 - i);
	for (uint64_t l = 0; l < LAYERS; l++)
		for (uint64_t i = 0; i < row->n; i++)
			memset(layer_data(&src, l) + i * (uint64_t)row->bytes, (int)(1 + (l * 31 + i) % 251),
			       (size_t)row->bytes);
	list_work_init(&work, row->bytes, row->n, LAYERS, row->scatter, dst.memories[0], src.memories[0]);
	work.blocks.limit = row->n;
	work.blocks.index = index;
	blocks_use_table(&work.blocks.dst, &dst.table);
	blocks_use_table(&work.blocks.src, &src.table);
	if (row->broken >= 0)
		break_layer(row->dst ? &dst : &src, row);
	engine_submit(engine, stream, &work.job);
	wait_done(1);
	cr_assert_eq(work.job.status, row->broken < 0 ? 0 : STATUS_DEVICE, "%s: %d", row->name,
	             work.job.status);
	for (uint64_t l = 0; l < LAYERS && row->broken < 0; l++)
		for (uint64_t i = 0; i < row->n; i++)
			for (int64_t byte = 0; byte < row->bytes; byte++)
				cr_assert_eq((uint8_t)layer_data(&dst, l)[(int64_t)i * row->bytes + byte],
				             1 + (l * 31 + row->n - 1 - i) % 251, "%s: layer %lu, block %lu",
				             row->name, (unsigned long)l, (unsigned long)i);
	engine_stream_free(engine, stream);
	side_deinit(&dst);
	side_deinit(&src);
	close_engine();
}

/* Small blocks, whose layers a worker takes several at once; then a large one that is passed over: nothing of
 * what the worker did before is left. */
Test(tables, a_block_that_is_passed_over, .timeout = 60)
{
	static struct side dst, src;
	static struct list_work work[2];
	static const int64_t bytes[2] = { 16, 16384 };
	static int32_t index[2][2] = { { 0 }, { 0, -1 } };
	struct engine_stream *stream;

	open_engine(1, 0);
	stream = engine_stream_new(engine, &owner);
	side_init(&dst, 3 * 16384);
	side_init(&src, 3 * 16384);
	for (int l = 0; l < LAYERS; l++)
		memset(layer_data(&src, (uint64_t)l), 1 + l, 3 * 16384);
	for (size_t i = 0; i < 2; i++) {
		list_work_init(&work[i], bytes[i], 1 + i, LAYERS - 2 + 2 * (uint32_t)i, false,
		               dst.memories[0], src.memories[0]);
		work[i].blocks.limit = 3;
		work[i].blocks.index = index[i];
		blocks_use_table(&work[i].blocks.dst, &dst.table);
		blocks_use_table(&work[i].blocks.src, &src.table);
		engine_submit(engine, stream, &work[i].job);
		wait_done(i + 1);
		cr_assert_eq(work[i].job.status, 0);
	}
	for (int l = 0; l < LAYERS; l++)
		cr_assert_eq(layer_data(&dst, (uint64_t)l)[16383], 1 + l);
	engine_stream_free(engine, stream);
	side_deinit(&dst);
	side_deinit(&src);
	close_engine();
}
