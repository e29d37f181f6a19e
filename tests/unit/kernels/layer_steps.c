/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what checks of tables of layers are charged. A message's items are no longer checked once they have
 * taken too many steps, so a check that walks entries has to count as many steps as it visits entries. */
#include <criterion/criterion.h>

#include "kernels/transform/aliases.h"
#include "kernels/transform/layer_table.h"
#include "proto/overlap.h"

#define MANY   100
#define SHARED 20 /* memories that share allocations */

/* A table of many entries, each in a memory of its own; the memories are numbered from the first on. */
struct many {
	struct layer_table table;
	struct layer_place places[MANY];
	int64_t layers[MANY];
	uint32_t order[MANY];
};

static void many_make(struct many *many, uint64_t first, uint64_t serial)
{
	struct error err;

	for (uint64_t i = 0; i < MANY; i++)
		many->places[i] = (struct layer_place){ .at = { .memory = { first + i, 0 }, .size = 1000 },
			                                .region = first + i,
			                                .address = (first + i) << 32 };
	many->table = (struct layer_table){ .n = MANY,
		                            .places = many->places,
		                            .serial = serial,
		                            .noun = "table",
		                            .layers = many->layers,
		                            .order = many->order };
	cr_assert_eq(layer_table_init(&many->table, "places", &err), 0, "%s", err.message);
}

Test(layer_steps, of_entries)
{
	static struct many dst, src;
	const struct stretch block = { 0, 100 };
	const struct tensor_place other = { .memory = { 999, 0 }, .size = 1000 };
	uint64_t before;
	uint32_t d, s;

	many_make(&dst, 1, 1);
	many_make(&src, 501, 2);
	before = overlap_steps();
	cr_assert(layers_are_apart(layer_table_meets(&dst.table, block, &other, block, &d)));
	cr_assert_eq(overlap_steps() - before, MANY);
	before = overlap_steps();
	cr_assert(layers_are_apart(layer_tables_meet(&dst.table, block, &src.table, block, &d, &s)));
	cr_assert_eq(overlap_steps() - before, 2 * MANY);
	before = overlap_steps();
	cr_assert(layers_are_apart(layer_tables_meet(&dst.table, block, &src.table, block, &d, &s)));
	cr_assert_eq(overlap_steps() - before, 0, "the second time it is known");
}

/* Memories that may share allocations are compared allocation by allocation. */
Test(layer_steps, of_shared_memories)
{
	static struct many table;
	static struct memory_chunk list[SHARED], by_id[SHARED];
	static struct memory_chunks chunks[SHARED];
	const struct layer_side side = { .table = &table.table, .stretch = { 0, 100 } };
	uint64_t before, ignored;
	uint32_t a, b;

	many_make(&table, 1, 1);
	before = overlap_steps();
	cr_assert_eq(layers_share(&side, &side, &a, &b), LAYERS_FAR);
	cr_assert_eq(overlap_steps() - before, 0, "none of them may");
	for (uint32_t i = 0; i < SHARED; i++) {
		list[i] = (struct memory_chunk){ 1 + i, 0, 1000 };
		chunks[i] = (struct memory_chunks){
			.shared = true, .n = 1, .by_place = &list[i], .by_id = &by_id[i]
		};
		cr_assert(memory_chunks_sort(&chunks[i], &ignored));
		table.places[i].at.chunks = &chunks[i];
		before = overlap_steps();
		cr_assert_eq(layers_share(&side, &side, &a, &b), LAYERS_FAR);
		cr_assert(i == 0 ? overlap_steps() == before : overlap_steps() - before >= (i + 1) / 2,
		          "%u allocations", i + 1);
	}
}
