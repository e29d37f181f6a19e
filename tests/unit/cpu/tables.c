/* SPDX-License-Identifier: Apache-2.0 */
/* Tests a list of blocks whose layers lie in memories of their own, on a worker that has moved another list
 * before. */
#include <string.h>

#include <criterion/criterion.h>

#include "kernels/transform/layer_table.h"
#include "rig.h"

#define LAYERS 5
#define PAGE   4096

/* The layers of one side, each in a memory of its own. */
struct side {
	struct layer_table table;
	struct layer_place places[LAYERS];
	struct engine_memory *memories[LAYERS];
	int64_t layers[LAYERS];
	uint32_t order[LAYERS];
};

/* Makes a side with block 0 of layer l at byte 16 * l of its memory, which is a page longer than needed. */
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

/* The first list has small blocks, of which a worker takes several layers at once. The second one skips a
 * large block, for which nothing must be left over from the first. */
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
