/* SPDX-License-Identifier: Apache-2.0 */
/* Memories that share allocations, against memories whose every byte has a number of its own. */
#include "kernels/plan/aliases.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <string.h>

#include "kernels/plan/layer_aliases.h"
#include "kernels/plan/layer_table.h"
#include "kernels/plan/overlap.h"
#include "kernels/plan/transform.h"
#include "tests/support/oracle.h"

#define MOST  60 /* allocations of a memory; few of them are looked up, many are walked along */
#define KINDS 80 /* that there are */
#define SIZE  5  /* bytes of each */

struct memory {
	struct memory_chunks chunks;
	struct memory_chunk list[MOST];
	struct memory_chunk by_id[MOST];
	int bytes[MOST * SIZE]; /* which byte of which allocation */
	uint64_t size;
};

/* Allocations in an order of their own, each once. */
static void memory_draw(struct memory *memory, uint64_t *state)
{
	uint64_t ignored;
	bool is_taken[KINDS] = { false };

	*memory = (struct memory){ .chunks = { .by_place = memory->list, .by_id = memory->by_id } };
	atomic_init(&memory->chunks.shared, true);
	memory->chunks.n = 1 + (uint32_t)(oracle_random(state) % (oracle_random(state) % 4 ? 6 : MOST));
	for (uint32_t i = 0; i < memory->chunks.n; i++) {
		size_t kind = oracle_random(state) % (memory->chunks.n > 6 ? KINDS : 8);

		while (is_taken[kind])
			kind = (kind + 1) % KINDS;
		is_taken[kind] = true;
		memory->list[i] = (struct memory_chunk){ 1 + kind, i * SIZE, SIZE };
		for (int b = 0; b < SIZE; b++)
			memory->bytes[i * SIZE + (uint32_t)b] = (int)kind * SIZE + b;
	}
	memory->size = memory->chunks.n * SIZE;
	cr_assert(memory_chunks_sort(&memory->chunks, &ignored));
}

static struct memory_range range_draw(const struct memory *memory, uint64_t *state)
{
	const uint64_t low = oracle_random(state) % memory->size;

	return (struct memory_range){ &memory->chunks, low,
		                      low + 1 + oracle_random(state) % (memory->size - low) };
}

/* By every pair of bytes. */
static enum alias compare(const struct memory *a, const struct memory_range *x, const struct memory *b,
                          const struct memory_range *y, __int128 *ret_shift)
{
	enum alias alias = ALIAS_NONE;

	for (uint64_t i = x->low; i < x->high; i++) {
		for (uint64_t j = y->low; j < y->high; j++) {
			const __int128 shift = (__int128)j - i;

			if (a->bytes[i] != b->bytes[j])
				continue;
			if (alias != ALIAS_NONE && *ret_shift != shift)
				return ALIAS_MANY;
			alias = ALIAS_ONE;
			*ret_shift = shift;
		}
	}
	for (uint64_t i = x->low; i < x->high && alias == ALIAS_ONE; i++) {
		const __int128 j = i + *ret_shift;

		if (j >= y->low && j < y->high && a->bytes[i] != b->bytes[j])
			alias = ALIAS_SOME;
	}
	return alias;
}

Test(aliases, of_random_memories)
{
	static struct memory a, b;
	uint64_t state = 3;
	int seen[4] = { 0 };

	for (int i = 0; i < 20000; i++) {
		__int128 wanted = 0, shift = 0;

		memory_draw(&a, &state);
		memory_draw(&b, &state);
		const struct memory_range x = range_draw(&a, &state), y = range_draw(&b, &state);
		const enum alias alias = compare(&a, &x, &b, &y, &wanted);

		cr_assert_eq(alias_between(&x, &y, &shift), alias, "case %d", i);
		if (alias == ALIAS_ONE || alias == ALIAS_SOME)
			cr_assert(shift == wanted, "case %d", i);
		seen[alias]++;
	}
	cr_assert(seen[ALIAS_NONE] > 100 && seen[ALIAS_ONE] > 100 && seen[ALIAS_SOME] > 100 &&
	          seen[ALIAS_MANY] > 100);
}

/* What a batch is charged for: a range of few allocations costs little in memories of many. */
Test(aliases, steps)
{
	enum { N = 1000 };
	static struct memory_chunk list[2][N], by_id[2][N];
	struct memory_chunks chunks[2];
	uint64_t ignored, before;
	__int128 shift = 0;

	for (int m = 0; m < 2; m++) {
		chunks[m] =
		    (struct memory_chunks){ .shared = true, .n = N, .by_place = list[m], .by_id = by_id[m] };
		for (uint32_t i = 0; i < N; i++)
			list[m][i] = (struct memory_chunk){ 1 + i, i * SIZE, SIZE };
		cr_assert(memory_chunks_sort(&chunks[m], &ignored));
	}
	struct memory_range few = { &chunks[0], 7 * SIZE - 1, 7 * SIZE + 1 },
			    all = { &chunks[1], 0, N * SIZE };

	before = overlap_steps();
	cr_assert_eq(alias_between(&few, &all, &shift), ALIAS_ONE);
	cr_assert_eq(alias_between(&all, &few, &shift), ALIAS_ONE);
	cr_assert_leq(overlap_steps() - before, 4 * 16, "two allocations are looked up, twice");
	few = (struct memory_range){ &chunks[0], 0, N * SIZE };
	before = overlap_steps();
	cr_assert_eq(alias_between(&few, &all, &shift), ALIAS_ONE);
	cr_assert_eq(overlap_steps() - before, 2 * N, "never more than there are");
}

Test(aliases, only_where_both_memories_say_so)
{
	static struct memory a, b;
	uint64_t state = 9;
	__int128 shift;

	memory_draw(&a, &state);
	b = a;
	b.chunks.by_place = b.list;
	b.chunks.by_id = b.by_id;
	struct memory_range x = { &a.chunks, 0, a.size }, y = { &b.chunks, 0, b.size };

	cr_assert_eq(alias_between(&x, &y, &shift), ALIAS_ONE);
	atomic_store(&b.chunks.shared, false);
	cr_assert_eq(alias_between(&x, &y, &shift), ALIAS_NONE);
	y.chunks = NULL;
	cr_assert_eq(alias_between(&x, &y, &shift), ALIAS_NONE);
}

Test(aliases, an_allocation_twice)
{
	struct memory_chunk list[] = { { 7, 0, 4 }, { 3, 4, 4 }, { 9, 8, 4 }, { 3, 12, 4 } };
	struct memory_chunk sorted[4];
	struct memory_chunks chunks = { .n = 4, .by_place = list, .by_id = sorted };
	uint64_t at = 0;

	cr_assert_not(memory_chunks_sort(&chunks, &at));
	cr_assert_eq(at, 12, "where it is the second time");
	chunks.n = 3;
	cr_assert(memory_chunks_sort(&chunks, &at));
	cr_assert(sorted[0].id == 3 && sorted[1].id == 7 && sorted[2].id == 9);
}

/* Two memories have allocations 1 and 2, in one of them 8 bytes further and, in rows that say so, the other
 * way round, or without allocation 1; an allocation has 8 bytes. */
struct places_row {
	char name[48];
	uintptr_t from[2]; /* none: 1, 2 */
	uint64_t dst;
	uint64_t src;
	int64_t n;
	int64_t stride;
	int status;
};

ParameterizedTestParameters(aliases, of_transforms)
{
	static struct places_row rows[] = {
		{ "the same bytes", { 0 }, 0, 8, 4, 1, STATUS_OVERLAP },
		{ "beside each other", { 0 }, 0, 12, 4, 1, 0 },
		{ "by a byte", { 0 }, 0, 11, 4, 1, STATUS_OVERLAP },
		{ "across allocations", { 0 }, 6, 16, 4, 1, STATUS_OVERLAP },
		{ "interleaved", { 0 }, 0, 9, 7, 2, 0 },
		{ "interleaved, the same", { 0 }, 0, 8, 7, 2, STATUS_OVERLAP },
		{ "what only one has", { 0 }, 0, 0, 8, 1, 0 },
		{ "turned, apart", { 2, 1 }, 0, 8, 4, 1, 0 },
		{ "turned, the same bytes", { 2, 1 }, 0, 16, 4, 1, STATUS_OVERLAP },
		{ "turned, all", { 2, 1 }, 0, 8, 16, 1, STATUS_OVERLAP },
		{ "in the allocation that both have", { 9, 2 }, 0, 8, 16, 1, STATUS_OVERLAP },
		{ "only where they differ", { 9, 2 }, 0, 8, 8, 1, 0 },
		{ "interleaved, and one differs", { 9, 2 }, 0, 9, 7, 2, 0 },
	};

	return cr_make_param_array(struct places_row, rows, sizeof rows / sizeof *rows);
}

ParameterizedTest(struct places_row *row, aliases, of_transforms)
{
	struct memory_chunk to_by_id[2], from_by_id[3];
	struct memory_chunk to[] = { { 1, 0, 8 }, { 2, 8, 8 } };
	struct memory_chunk from[] = { { 5, 0, 8 },
		                       { row->from[0] ? row->from[0] : 1, 8, 8 },
		                       { row->from[1] ? row->from[1] : 2, 16, 8 } };
	struct memory_chunks dst_chunks = { .shared = true, .n = 2, .by_place = to, .by_id = to_by_id };
	struct memory_chunks src_chunks = { .shared = true, .n = 3, .by_place = from, .by_id = from_by_id };
	const struct tensor_place dst = {
		.memory = { 1, 1 }, .offset = row->dst, .size = 16, .chunks = &dst_chunks
	};
	const struct tensor_place src = {
		.memory = { 1, 2 }, .offset = row->src, .size = 24, .chunks = &src_chunks
	};
	const struct tensor_layout layout = {
		.dtype = DTYPE_INT8, .rank = 1, .shape = { row->n }, .stride = { row->stride }
	};
	const struct transform_spec spec = {
		.dst = layout, .src = layout, .n_perm = -1, .n_before = -1, .n_after = -1
	};
	struct error err = { 0 };
	struct transform t;
	uint64_t ignored;

	cr_assert(memory_chunks_sort(&dst_chunks, &ignored) && memory_chunks_sort(&src_chunks, &ignored));
	cr_assert_eq(transform_init(&t, &spec, &err), 0, "%s: %s", row->name, err.message);
	const struct transform_sides sides = transform_sides(&t);

	cr_assert_eq(transform_check_sides(&sides, &dst, &src, &err), row->status, "%s: %s", row->name,
	             err.message);
	if (row->from[0] == 9 && row->status)
		cr_assert(strstr(err.message, "not all of them"), "%s: %s", row->name, err.message);
}

/* ---- Tables ------------------------------------------------------------------------------------------- */

#define MEMORIES 6
#define ENTRIES  8

struct entries {
	struct layer_place place[ENTRIES];
	struct engine_memory *memory[ENTRIES];
	int64_t layers[ENTRIES];
	uint32_t order[ENTRIES];
	struct layer_table table;
};

/* Regions of some of the memories; *ret: from the first region in each to the last one's end. */
static void entries_draw(struct entries *entries, struct memory *memories, uint64_t *state,
                         struct memory_range ret[MEMORIES])
{
	const uint32_t n = 1 + (uint32_t)(oracle_random(state) % ENTRIES);
	struct error err;

	*entries = (struct entries){ 0 };
	for (int m = 0; m < MEMORIES; m++)
		ret[m] = (struct memory_range){ &memories[m].chunks, UINT64_MAX, 0 };
	for (uint32_t i = 0; i < n; i++) {
		const uint64_t m = oracle_random(state) % MEMORIES;
		const struct memory_range range = range_draw(&memories[m], state);

		entries->place[i] = (struct layer_place){ .at = { .memory = { m, 7 },
			                                          .base = range.low,
			                                          .size = range.high - range.low,
			                                          .chunks = &memories[m].chunks },
			                                  .address = 0x10000 * (m + 1) + range.low };
		ret[m].low = range.low < ret[m].low ? range.low : ret[m].low;
		ret[m].high = range.high > ret[m].high ? range.high : ret[m].high;
	}
	entries->table = (struct layer_table){ .n = n,
		                               .places = entries->place,
		                               .memories = entries->memory,
		                               .noun = "table",
		                               .layers = entries->layers,
		                               .order = entries->order };
	cr_assert_eq(layer_table_init(&entries->table, "table", &err), 0);
}

static bool do_share(const struct memory *memories, const struct memory_range *a,
                     const struct memory_range *b, bool are_one)
{
	__int128 shift = 0;

	for (int i = 0; i < MEMORIES; i++)
		for (int j = are_one ? i + 1 : 0; j < MEMORIES; j++)
			if (i != j && a[i].low < a[i].high && b[j].low < b[j].high &&
			    compare(&memories[i], &a[i], &memories[j], &b[j], &shift) != ALIAS_NONE)
				return true;
	return false;
}

Test(aliases, of_random_tables)
{
	static struct memory memories[MEMORIES];
	struct memory_range in_a[MEMORIES], in_b[MEMORIES];
	static struct entries a, b;
	uint64_t state = 11;
	uint32_t to, from;
	int seen[2] = { 0 };

	for (int round = 0; round < 3000; round++) {
		bool shares;

		for (int m = 0; m < MEMORIES; m++) {
			memory_draw(&memories[m], &state);
			atomic_store(&memories[m].chunks.shared, true);
		}
		entries_draw(&a, memories, &state, in_a);
		entries_draw(&b, memories, &state, in_b);
		cr_assert_eq(a.table.is_tangled, do_share(memories, in_a, in_a, true), "round %d", round);
		shares = layer_tables_share(&a.table, &b.table, &to, &from);
		cr_assert_eq(shares, do_share(memories, in_a, in_b, false), "round %d", round);
		if (shares) {
			cr_assert_lt(to, a.table.n);
			cr_assert_lt(from, b.table.n);
			cr_assert_neq(a.place[to].at.memory[0], b.place[from].at.memory[0]);
		}
		seen[shares]++;
	}
	cr_assert_gt(seen[0], 100);
	cr_assert_gt(seen[1], 100);
}

/* No other memory has what a region consists of, as far as anybody knows. */
Test(aliases, of_tables_that_share_nothing)
{
	static struct memory memories[MEMORIES];
	struct memory_range ranges[MEMORIES];
	static struct entries a;
	uint64_t state = 5;
	uint32_t to, from;

	for (int m = 0; m < MEMORIES; m++) {
		memory_draw(&memories[m], &state);
		atomic_store(&memories[m].chunks.shared, false);
	}
	entries_draw(&a, memories, &state, ranges);
	cr_assert_not(a.table.is_tangled);
	cr_assert_not(layer_tables_share(&a.table, &a.table, &to, &from));
}
