/* SPDX-License-Identifier: Apache-2.0 */
/* Tests tables in memories that share allocations against memories in which every byte has a number, and how
 * long a comparison may take. */
#include "kernels/transform/aliases.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/transform/blocks.h"
#include "kernels/transform/layer_table.h"
#include "memories.h"
#include "proto/overlap.h"
#include "tests/support/oracle.h"

#define MEMORIES 6
#define ENTRIES  8

struct entries {
	struct layer_place place[LAYER_TABLE_MOST];
	struct engine_memory *memory[LAYER_TABLE_MOST];
	int64_t layers[LAYER_TABLE_MOST];
	uint32_t order[LAYER_TABLE_MOST];
	struct layer_table table;
};

static void entries_make(struct entries *entries, uint32_t n, uint64_t serial)
{
	struct error err = { 0 };

	entries->table = (struct layer_table){ .n = n,
		                               .serial = serial,
		                               .places = entries->place,
		                               .memories = entries->memory,
		                               .noun = "table",
		                               .layers = entries->layers,
		                               .order = entries->order };
	cr_assert_eq(layer_table_init(&entries->table, "table", &err), 0, "%s", err.message);
}

/* ---- Exactly ------------------------------------------------------------------------------------------ */

/* Draws entries in some of the memories, each with room for `reach` bytes before its place and from it on. */
static void entries_draw(struct entries *entries, struct memory *memories, uint64_t reach, uint64_t serial,
                         uint64_t *state)
{
	const uint32_t n = 1 + (uint32_t)(oracle_random(state) % ENTRIES);

	for (uint32_t i = 0; i < n; i++) {
		uint64_t m = oracle_random(state) % MEMORIES, low, at, high;

		while (memories[m].size < 2 * reach)
			m = (m + 1) % MEMORIES;
		at = reach + oracle_random(state) % (memories[m].size - 2 * reach + 1);
		low = oracle_random(state) % (at - reach + 1);
		high = at + reach + oracle_random(state) % (memories[m].size - at - reach + 1);
		entries->place[i] = (struct layer_place){ .at = { .memory = { m, 7 },
			                                          .base = low,
			                                          .offset = at - low,
			                                          .size = high - low,
			                                          .chunks = &memories[m].chunks },
			                                  .address = 0x10000 * (m + 1) + at };
	}
	entries_make(entries, n, serial);
}

static struct stretch stretch_draw(uint64_t reach, uint64_t *state)
{
	const int64_t low = -(int64_t)(oracle_random(state) % (reach + 1));

	return (struct stretch){ low, low + 1 + (int64_t)(oracle_random(state) % (reach - (uint64_t)low)) };
}

/* Returns whether the stretches of two entries have a byte in common. */
static bool do_meet(const struct memory *memories, const struct layer_place *a, struct stretch of_a,
                    const struct layer_place *b, struct stretch of_b)
{
	const int64_t from_a = (int64_t)(a->at.base + a->at.offset),
		      from_b = (int64_t)(b->at.base + b->at.offset);

	for (int64_t i = from_a + (int64_t)of_a.low; i < from_a + of_a.high; i++)
		for (int64_t j = from_b + (int64_t)of_b.low; j < from_b + of_b.high; j++)
			if (memories[a->at.memory[0]].bytes[i] == memories[b->at.memory[0]].bytes[j])
				return true;
	return false;
}

/* Returns whether any stretches of two tables' entries have a byte in common. If beside is set, only pairs in
 * two different memories count. */
static bool do_share(const struct memory *memories, const struct entries *a, struct stretch of_a,
                     const struct entries *b, struct stretch of_b, bool beside)
{
	for (uint32_t i = 0; i < a->table.n; i++)
		for (uint32_t j = 0; j < b->table.n; j++)
			if ((!beside || a->place[i].at.memory[0] != b->place[j].at.memory[0]) &&
			    do_meet(memories, &a->place[i], of_a, &b->place[j], of_b))
				return true;
	return false;
}

static bool regions_share(const struct memory *memories, const struct entries *a, const struct entries *b)
{
	for (uint32_t i = 0; i < a->table.n; i++)
		for (uint32_t j = 0; j < b->table.n; j++) {
			struct layer_place x = a->place[i], y = b->place[j];

			x.at.offset = y.at.offset = 0;
			if (x.at.memory[0] != y.at.memory[0] &&
			    do_meet(memories, &x, (struct stretch){ 0, (int64_t)x.at.size }, &y,
			            (struct stretch){ 0, (int64_t)y.at.size }))
				return true;
		}
	return false;
}

static void assert_shares(const struct memory *memories, const struct entries *a, struct stretch of_a,
                          const struct entries *b, struct stretch of_b, int round)
{
	const struct layer_side x = { .table = &a->table, .stretch = of_a };
	const struct layer_side y = { .table = &b->table, .stretch = of_b };
	const bool shares = do_share(memories, a, of_a, b, of_b, true);
	uint32_t i = UINT32_MAX, j = UINT32_MAX;
	const enum layer_sharing sharing = layers_share(&x, a == b ? &x : &y, &i, &j);

	cr_assert_eq(sharing == LAYERS_SHARE, shares, "round %d", round);
	cr_assert(shares || layers_are_apart(sharing), "round %d", round);
	if (shares)
		cr_assert(do_meet(memories, &a->place[i], of_a, &b->place[j], of_b) &&
		              a->place[i].at.memory[0] != b->place[j].at.memory[0],
		          "round %d: entries %u and %u", round, i, j);
	if (sharing == LAYERS_FAR)
		cr_assert_not(regions_share(memories, a, b), "round %d", round);
}

/* The comparison is repeated, and made with shorter stretches, once the tables have kept the result. */
static void assert_tables(const struct memory *memories, struct entries *a, const struct entries *b,
                          struct stretch of_a, struct stretch of_b, int round)
{
	const struct stretch less = { of_a.low, (of_a.low + of_a.high + 1) / 2 };
	uint32_t i, j;

	for (int again = 0; again < 2; again++)
		for (int k = 0; k < 2; k++) {
			const struct stretch own = k ? less : of_a;

			cr_assert_eq(
			    layers_are_apart(layer_tables_meet(&a->table, own, &b->table, of_b, &i, &j)),
			    !do_share(memories, a, own, b, of_b, false), "round %d: %d, %d", round, again, k);
		}
}

Test(layer_aliases, of_random_tables)
{
	enum { REACH = 6 };
	static struct memory memories[MEMORIES];
	static struct entries a, b;
	uint64_t state = 11;
	int seen[2] = { 0 };

	for (int round = 0; round < 6000; round++) {
		const struct stretch of_a = stretch_draw(REACH, &state), of_b = stretch_draw(REACH, &state);
		bool shares;

		for (int m = 0; m < MEMORIES; m++) {
			memory_draw(&memories[m], &state);
			while (m == 0 && memories[m].size < 2 * REACH)
				memory_draw(&memories[m], &state);
			atomic_store(&memories[m].chunks.shared, true);
		}
		entries_draw(&a, memories, REACH, 1, &state);
		entries_draw(&b, memories, REACH, round % 2 ? 2 : 0, &state);
		shares = do_share(memories, &a, of_a, &b, of_b, true);
		assert_shares(memories, &a, of_a, &b, of_b, round);
		assert_shares(memories, &a, of_a, &a, of_a, round);
		assert_tables(memories, &a, &b, of_a, of_b, round);
		seen[shares]++;
	}
	cr_assert(seen[0] > 500 && seen[1] > 500, "%d, %d", seen[0], seen[1]);
}

/* As far as the service knows, no other memory has the allocations of these. */
Test(layer_aliases, of_tables_that_share_nothing)
{
	static struct memory memories[MEMORIES];
	static struct entries a;
	uint64_t state = 5;
	uint32_t to, from;

	for (int m = 0; m < MEMORIES; m++) {
		memory_draw(&memories[m], &state);
		atomic_store(&memories[m].chunks.shared, false);
	}
	entries_draw(&a, memories, 2, 1, &state);
	const struct layer_side side = { .table = &a.table, .stretch = { 0, 1 } };

	cr_assert_eq(layers_share(&side, &side, &to, &from), LAYERS_FAR);
}

/* ---- Pools -------------------------------------------------------------------------------------------- */

#define UNIT 1000 /* bytes of an allocation */

/* Makes a memory of n allocations with the ids first, first + step, ... */
static void pool_make(struct memory_chunks *chunks, uint32_t n, uintptr_t first, uintptr_t step)
{
	uint64_t ignored;

	*chunks = (struct memory_chunks){ .shared = true, .n = n };
	chunks->by_place = calloc(n, sizeof *chunks->by_place);
	chunks->by_id = calloc(n, sizeof *chunks->by_id);
	cr_assert(chunks->by_place && chunks->by_id);
	for (uint32_t i = 0; i < n; i++)
		chunks->by_place[i] = (struct memory_chunk){ first + i * step, (uint64_t)i * UNIT, UNIT };
	cr_assert(memory_chunks_sort(chunks, &ignored));
}

static void pool_free(struct memory_chunks *chunks)
{
	free(chunks->by_place);
	free(chunks->by_id);
}

static struct layer_place place_in(const struct memory_chunks *chunks, uint64_t memory, uint64_t offset)
{
	return (struct layer_place){ .at = { .memory = { memory, 0 },
		                             .offset = offset,
		                             .size = (uint64_t)chunks->n * UNIT,
		                             .chunks = chunks },
		                     .region = memory,
		                     .address = memory << 40 | offset };
}

/* Checks a list of blocks of 100 bytes, ten of which fill an allocation. */
static int check(struct entries *dst, struct entries *src, struct error *err)
{
	struct transform_spec spec = { .n_perm = -1, .n_before = -1, .n_after = -1 };
	struct engine_blocks blocks = { .n = 10, .limit = 10, .layers = dst->table.n };
	const int64_t shape[] = { 100 };
	struct transform t;

	*err = (struct error){ 0 };
	cr_assert_eq(tensor_layout_init(&spec.dst, DTYPE_UINT8, 1, shape, NULL, "dst", err), 0);
	spec.src = spec.dst;
	cr_assert_eq(transform_init(&t, &spec, err), 0);
	blocks.dst.step = blocks.src.step = 100;
	blocks_use_table(&blocks.dst, &dst->table);
	blocks_use_table(&blocks.src, &src->table);
	return blocks_check(&blocks, &t, &dst->place[0].at, &src->place[0].at, NULL, err);
}

/* A pool has grown: the old region's allocations are all part of the new region. */
Test(layer_aliases, a_pool_that_has_grown)
{
	static struct entries dst, src;
	struct memory_chunks old, grown;
	struct error err;

	pool_make(&old, 4, 1, 1);
	pool_make(&grown, 8, 1, 1);
	for (uint32_t i = 0; i < 2; i++) {
		src.place[i] = place_in(&old, 1, i * 2000);
		dst.place[i] = place_in(&grown, 2, 1000 + i * 2000);
	}
	entries_make(&src, 2, 1);
	entries_make(&dst, 2, 2);
	cr_assert_eq(check(&dst, &src, &err), 0, "%s", err.message);
	dst.place[1] = place_in(&grown, 2, 2999);
	entries_make(&dst, 2, 3);
	cr_assert_eq(check(&dst, &src, &err), STATUS_OVERLAP);
	cr_assert(strstr(err.message, "dst_table: the blocks of entry 1 and those of entry 1 of src_table"),
	          "%s", err.message);

	/* The same holds for two entries as one destination. */
	dst.place[1] = place_in(&old, 1, 3000);
	entries_make(&dst, 2, 4);
	src.place[0] = src.place[1] = place_in(&grown, 2, 7000);
	entries_make(&src, 2, 5);
	cr_assert_eq(check(&dst, &src, &err), 0, "%s", err.message);
	cr_assert_eq(check(&dst, &src, &err), 0, "%s", err.message);
	dst.place[1] = place_in(&old, 1, 1999);
	entries_make(&dst, 2, 6);
	cr_assert_eq(check(&dst, &src, &err), STATUS_OVERLAP);
	cr_assert(strstr(err.message, "dst_table: the blocks of entries") &&
	              strstr(err.message, "share bytes of an allocation that both regions have"),
	          "%s", err.message);
	pool_free(&old);
	pool_free(&grown);
}

/* ---- How long it takes -------------------------------------------------------------------------------- */

/* The tables have as many entries as they can, in two memories that have all allocations in common, and use
 * disjoint halves. */
Test(layer_aliases, halves_of_many_allocations)
{
	enum { N = 40000 };
	static struct entries dst, src;
	struct memory_chunks pools[2];
	const uint64_t before = overlap_steps();
	struct error err;

	for (uint32_t m = 0; m < 2; m++)
		pool_make(&pools[m], N, 1, 1);
	for (uint32_t i = 0; i < LAYER_TABLE_MOST; i++) {
		dst.place[i] = place_in(&pools[0], 1, (uint64_t)i * 2 * UNIT);
		src.place[i] = place_in(&pools[1], 2, (N / 2 + (uint64_t)i) * UNIT);
	}
	entries_make(&dst, LAYER_TABLE_MOST, 1);
	entries_make(&src, LAYER_TABLE_MOST, 2);
	cr_assert_eq(check(&dst, &src, &err), 0, "%s", err.message);
	cr_assert_leq(overlap_steps() - before, 3 * LAYERS_MOST_STEPS);

	const struct stretch of_layer = { 0, UNIT };
	const struct tensor_place other = src.place[0].at;
	const uint64_t start = overlap_steps();
	uint32_t entry;

	cr_assert_eq(
	    layer_table_meets(&dst.table, of_layer, &other, (struct stretch){ 30000000, 40000000 }, &entry),
	    LAYERS_APART);
	cr_assert_leq(overlap_steps() - start, LAYERS_MOST_STEPS + LAYER_TABLE_MOST);
	cr_assert_eq(layer_table_meets(&dst.table, of_layer, &other, (struct stretch){ 8999, 9000 }, &entry),
	             LAYERS_SHARE);
	cr_assert_eq(entry, 4);
	for (int m = 0; m < 2; m++)
		pool_free(&pools[m]);
}

/* All memories have the same allocations, and each entry lies in another memory. */
Test(layer_aliases, too_many)
{
	enum { N = 200 };
	static struct entries dst, src;
	static struct memory_chunks pools[LAYER_TABLE_MOST];
	uint64_t before;
	struct error err;

	for (uint32_t i = 0; i < LAYER_TABLE_MOST; i++) {
		pool_make(&pools[i], N, 1, 1);
		dst.place[i] = place_in(&pools[i], 1 + i, 0);
		src.place[i] = place_in(&pools[i], 1 + i, 5000);
	}
	entries_make(&dst, LAYER_TABLE_MOST, 1);
	entries_make(&src, LAYER_TABLE_MOST, 2);
	before = overlap_steps();
	cr_assert_eq(check(&dst, &src, &err), STATUS_OVERLAP, "each entry is the same block");
	cr_assert(strstr(err.message, "share bytes of an allocation"), "%s", err.message);
	cr_assert_leq(overlap_steps() - before, 2 * LAYERS_MOST_STEPS);

	const struct layer_side sides[] = { { .table = &dst.table, .stretch = { 0, 10 } },
		                            { .table = &src.table, .stretch = { 0, 10 } } };
	uint32_t i, j;

	before = overlap_steps();
	cr_assert_eq(layers_share(&sides[0], &sides[1], &i, &j), LAYERS_UNKNOWN);
	cr_assert_leq(overlap_steps() - before, LAYERS_MOST_STEPS);
	for (uint32_t k = 0; k < LAYER_TABLE_MOST; k++)
		pool_free(&pools[k]);
}
