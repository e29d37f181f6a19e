/* SPDX-License-Identifier: Apache-2.0 */
/* Tests overlap against brute force: layouts are small, and every byte is marked. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <string.h>

#include "proto/overlap.h"
#include "tests/support/oracle.h"

#define SPAN 8192 /* bytes on either side of element 0, more than any random layout reaches */

/* Adds 1 to every byte of the tensor. Returns whether one had been marked before. */
static bool mark(uint8_t *bytes, const struct tensor_layout *layout, int64_t origin)
{
	int64_t size = dtype_size(layout->dtype), o[TENSOR_MAX_RANK] = { 0 };
	bool met = false;
	int d;

	if (!tensor_count(layout))
		return false;
	do {
		int64_t at = SPAN + origin;

		for (d = 0; d < layout->rank; d++)
			at += o[d] * layout->stride[d] * size;
		for (int64_t i = at; i < at + size; i++)
			met |= bytes[i]++ != 0;
		for (d = layout->rank - 1; d >= 0 && ++o[d] == layout->shape[d]; d--)
			o[d] = 0;
	} while (d >= 0);
	return met;
}

static void random_layout(uint64_t *state, struct tensor_layout *ret)
{
	static const enum dtype dtypes[] = { DTYPE_UINT8, DTYPE_UINT8, DTYPE_INT16, DTYPE_FLOAT32,
		                             DTYPE_COMPLEX128 };
	int64_t most = oracle_between(state, 1, 3) == 1 ? 30 : 9;

	ret->dtype = dtypes[oracle_between(state, 0, 4)];
	ret->rank = (int)oracle_between(state, 0, 4);
	for (int d = 0; d < ret->rank; d++) {
		ret->shape[d] = oracle_between(state, oracle_between(state, 0, 30) ? 1 : 0, 5);
		ret->stride[d] = oracle_between(state, -most, most);
	}
}

static void layout_text(const struct tensor_layout *layout, char *text)
{
	int len = sprintf(text, "%s ", dtype_names[layout->dtype]);

	tensor_shape_text(layout->rank, layout->shape, text + len, 100);
	strcat(text, " strides ");
	tensor_shape_text(layout->rank, layout->stride, text + strlen(text), 100);
}

Test(overlap, self_is_brute_force)
{
	static uint8_t bytes[2 * SPAN];
	int seen[2] = { 0 };
	uint64_t state = 1;
	char text[300];

	for (int i = 0; i < 30000; i++) {
		struct tensor_layout layout = { 0 };
		enum overlap want, got;

		random_layout(&state, &layout);
		memset(bytes, 0, sizeof bytes);
		want = mark(bytes, &layout, 0) ? OVERLAP_SOME : OVERLAP_NONE;
		got = overlap_self(&layout);
		layout_text(&layout, text);
		cr_assert_eq(got, want, "%s: %d, not %d", text, got, want);
		seen[want]++;
	}
	cr_assert(seen[0] > 5000 && seen[1] > 5000, "%d without, %d with overlap", seen[0], seen[1]);
}

Test(overlap, between_is_brute_force)
{
	static uint8_t bytes[2 * SPAN], other[2 * SPAN];
	int seen[2] = { 0 };
	uint64_t state = 2;
	char text_a[300], text_b[300];

	for (int i = 0; i < 30000; i++) {
		struct tensor_layout a = { 0 }, b = { 0 };
		int64_t distance = oracle_between(&state, -200, 200);
		enum overlap want, got;

		random_layout(&state, &a);
		random_layout(&state, &b);
		if (oracle_between(&state, 0, 1))
			b.dtype = a.dtype;
		memset(bytes, 0, sizeof bytes);
		memset(other, 0, sizeof other);
		mark(bytes, &a, 0);
		mark(other, &b, distance);
		want = OVERLAP_NONE;
		for (size_t j = 0; j < sizeof bytes; j++)
			if (bytes[j] && other[j])
				want = OVERLAP_SOME;
		got = overlap_between(&a, &b, distance);
		layout_text(&a, text_a);
		layout_text(&b, text_b);
		cr_assert_eq(got, want, "%s, %s at %d: %d, not %d", text_a, text_b, (int)distance, got, want);
		seen[want]++;
	}
	cr_assert(seen[0] > 5000 && seen[1] > 5000, "%d without, %d with overlap", seen[0], seen[1]);
}

struct large_row {
	char name[40];
	struct tensor_layout a, b;
	int64_t distance;
	enum overlap want;
};

static struct large_row large_rows[] = {
	{ .name = "halves of interleaved rows",
	  .a = { DTYPE_FLOAT32, 2, { 100000, 512 }, { 1024, 1 } },
	  .b = { DTYPE_FLOAT32, 2, { 100000, 512 }, { 1024, 1 } },
	  .distance = 2048,
	  .want = OVERLAP_NONE },
	{ .name = "halves that meet by a byte",
	  .a = { DTYPE_FLOAT32, 2, { 100000, 512 }, { 1024, 1 } },
	  .b = { DTYPE_FLOAT32, 2, { 100000, 512 }, { 1024, 1 } },
	  .distance = 2047,
	  .want = OVERLAP_SOME },
	{ .name = "real and imaginary parts",
	  .a = { DTYPE_FLOAT64, 3, { 1000, 1000, 1000 }, { 2000000, 2000, 2 } },
	  .b = { DTYPE_FLOAT64, 3, { 1000, 1000, 1000 }, { 2, 2000, 2000000 } },
	  .distance = 8,
	  .want = OVERLAP_NONE },
	{ .name = "in place",
	  .a = { DTYPE_FLOAT32, 2, { 4096, 4096 }, { 4096, 1 } },
	  .b = { DTYPE_FLOAT32, 2, { 4096, 4096 }, { 1, 4096 } },
	  .distance = 0,
	  .want = OVERLAP_SOME },
	{ .name = "odd and even, reversed",
	  .a = { DTYPE_UINT8, 1, { 1 << 30 }, { 2 } },
	  .b = { DTYPE_UINT8, 1, { 1 << 30 }, { -2 } },
	  .distance = INT64_C(0x7fffffff),
	  .want = OVERLAP_NONE },
	{ .name = "as far as it goes",
	  .a = { DTYPE_UINT8, 1, { INT64_MAX }, { 1 } },
	  .b = { DTYPE_UINT8, 1, { INT64_MAX }, { -1 } },
	  .distance = INT64_MAX,
	  .want = OVERLAP_SOME },
	{ .name = "different element sizes",
	  .a = { DTYPE_UINT8, 1, { 1000000 }, { 16 } },
	  .b = { DTYPE_FLOAT64, 1, { 1000000 }, { 2 } },
	  .distance = 8,
	  .want = OVERLAP_NONE },
};

ParameterizedTestParameters(overlap, large)
{
	return cr_make_param_array(struct large_row, large_rows, sizeof large_rows / sizeof *large_rows);
}

ParameterizedTest(struct large_row *row, overlap, large)
{
	cr_assert_eq(overlap_between(&row->a, &row->b, row->distance), row->want, "%s", row->name);
	cr_assert_eq(overlap_between(&row->b, &row->a, -row->distance), row->want, "%s, turned around",
	             row->name);
	cr_assert_eq(overlap_self(&row->a), OVERLAP_NONE, "%s: a", row->name);
	cr_assert_eq(overlap_self(&row->b), OVERLAP_NONE, "%s: b", row->name);
}

/* The layout encodes a hard subset-sum problem, so the search has to give up soon. */
Test(overlap, search_is_bounded, .timeout = 2)
{
	struct tensor_layout layout = { .dtype = DTYPE_UINT8, .rank = 32 };
	uint64_t state = 7;

	for (int d = 0; d < 32; d++) {
		layout.shape[d] = 2;
		layout.stride[d] = (INT64_C(1) << 56) + oracle_between(&state, 0, INT64_C(1) << 54);
	}
	cr_assert_eq(overlap_self(&layout), OVERLAP_UNKNOWN);
}

/* Columns of one matrix, side by side, are told apart without a search, whichever way their rows run. */
Test(overlap, parts_of_one_tensor_take_no_steps)
{
	const struct tensor_layout layouts[] = {
		{ DTYPE_FLOAT32, 2, { 1000, 10 }, { 80, 1 } },
		{ DTYPE_FLOAT32, 2, { 1000, 10 }, { 80, -1 } },
		{ DTYPE_FLOAT32, 3, { 2, 1000, 5 }, { 5, -80, 1 } },
		{ DTYPE_FLOAT32, 3, { 1, 1000, 10 }, { 123456, 80, 1 } },
	};
	const int64_t first[] = { 0, 9, 999 * 80, 0 }; /* element [0, ..., 0] of each layout in its columns */
	const uint64_t before = overlap_steps();

	for (int a = 0; a < 4; a++)
		for (int b = 0; b < 4; b++)
			for (int64_t column = 10; column <= 70; column += 20)
				cr_assert_eq(overlap_between(&layouts[a], &layouts[b],
				                             4 * (column + first[b] - first[a])),
				             OVERLAP_NONE, "%d, %d: column %d", a, b, (int)column);
	cr_assert_eq(overlap_steps(), before);
	for (int a = 0; a < 4; a++)
		for (int b = 0; b < 4; b++)
			cr_assert_eq(
			    overlap_between(&layouts[a], &layouts[b], 4 * (10 + first[b] - first[a]) - 1),
			    OVERLAP_SOME, "%d, %d", a, b);
	cr_assert_gt(overlap_steps(), before);
}
