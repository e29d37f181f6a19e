/* SPDX-License-Identifier: Apache-2.0 */
/* Tests memories that share allocations against memories in which every byte has a number. */
#include "kernels/transform/aliases.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <string.h>

#include "kernels/transform/transform.h"
#include "memories.h"
#include "proto/overlap.h"
#include "tests/support/oracle.h"

static struct memory_range range_draw(const struct memory *memory, uint64_t *state)
{
	const uint64_t low = oracle_random(state) % memory->size;

	return (struct memory_range){ &memory->chunks, low,
		                      low + 1 + oracle_random(state) % (memory->size - low) };
}

/* Compares all pairs of bytes. */
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

/* Counts the steps that a batch is charged for: a range of few allocations costs little, although its memory
 * has many. */
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

/* Two memories have allocations 1 and 2 of 8 bytes each. One memory has them 8 bytes further on and, in rows
 * that say so, in the other order or without allocation 1. */
struct places_row {
	char name[48];
	uintptr_t from[2]; /* zeros: 1, 2 */
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
