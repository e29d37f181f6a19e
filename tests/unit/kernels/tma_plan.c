/* SPDX-License-Identifier: Apache-2.0 */
/* Tests plans for the Tensor Memory Accelerator: which strategy is chosen, and how the better ones are ruled
 * out.
 * Rows have the plan for a block of a list, which a single move is compared with. The plan of a single move
 * depends on cost, whose weights change with each measurement. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <string.h>

#include "tma_rows.h"

static struct tma_row rows[] = {
	{ .name = "a scalar is the driver's copy", .dtype = DTYPE_FLOAT32, .strategy = STRATEGY_memcpy },
	{ .name = "so is one run",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .src = { 64, 100 },
	  .straight = true,
	  .strategy = STRATEGY_memcpy },
	{ .name = "no element of the source",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .src = { 0, 8 },
	  .before = { 4, 0 },
	  .straight = true,
	  .value = 3,
	  .strategy = STRATEGY_none,
	  .border = true },
	{ .name = "long aligned runs need no map",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .src = { 64, 1024 },
	  .strides = { 1056, 1 },
	  .straight = true,
	  .strategy = STRATEGY_bulk,
	  .element = 16,
	  .tile = { 256 },
	  .repeats = 1 },
	{ .name = "rows with a gap go map to map",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .src = { 64, 64 },
	  .strides = { 68, 1 },
	  .straight = true,
	  .strategy = STRATEGY_copy,
	  .element = 16,
	  .tile = { 8, 32 },
	  .repeats = 1 },
	{ .name = "zero pads are the map's",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .src = { 64, 64 },
	  .before = { 1, 4 },
	  .after = { 1, 4 },
	  .straight = true,
	  .strategy = STRATEGY_copy,
	  .element = 16,
	  .tile = { 7, 36 },
	  .repeats = 1 },
	{ .name = "other values are a border",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .src = { 64, 64 },
	  .before = { 1, 4 },
	  .after = { 1, 4 },
	  .straight = true,
	  .value = 7,
	  .strategy = STRATEGY_copy,
	  .element = 16,
	  .tile = { 7, 36 },
	  .repeats = 1,
	  .border = true },
	{ .name = "so are other modes",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .src = { 64, 64 },
	  .before = { 9, 0 },
	  .after = { 9, 0 },
	  .straight = true,
	  .mode = PAD_MODE_REFLECT,
	  .strategy = STRATEGY_copy,
	  .element = 16,
	  .tile = { 8, 32 },
	  .repeats = 1,
	  .border = true },
	{ .name = "a border that is little goes into the tiles",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .src = { 64, 64 },
	  .before = { 1, 0 },
	  .after = { 1, 0 },
	  .straight = true,
	  .mode = PAD_MODE_REFLECT,
	  .strategy = STRATEGY_copy,
	  .element = 16,
	  .tile = { 8, 32 },
	  .repeats = 1,
	  .patched = true },
	{ .name = "the border of longer rows is written with them",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .src = { 64, 248 },
	  .before = { 1, 4 },
	  .after = { 1, 4 },
	  .straight = true,
	  .value = 7,
	  .strategy = STRATEGY_short,
	  .element = 16,
	  .repeats = 1 },
	{ .name = "and so it is in other modes",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .src = { 64, 1000 },
	  .before = { 1, 3 },
	  .after = { 2, 5 },
	  .straight = true,
	  .mode = PAD_MODE_EDGE,
	  .strategy = STRATEGY_rows,
	  .element = 4,
	  .repeats = 1 },
	{ .name = "a broadcast is read once",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .src = { 9, 64 },
	  .strides = { 0, 1 },
	  .straight = true,
	  .strategy = STRATEGY_copy,
	  .element = 16,
	  .tile = { 1, 32 },
	  .repeats = 9 },
	{ .name = "a long one again and again, from the cache",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .src = { 9, 4096 },
	  .strides = { 0, 1 },
	  .straight = true,
	  .strategy = STRATEGY_bulk,
	  .element = 16,
	  .tile = { 1024 },
	  .repeats = 1 },
	{ .name = "a pad that shifts rows off 16 bytes",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .src = { 64, 510 },
	  .before = { 0, 1 },
	  .after = { 0, 1 },
	  .straight = true,
	  .strategy = STRATEGY_rows,
	  .element = 4,
	  .repeats = 1,
	  .rule = "tile_copy: source rows start 12 bytes past a multiple of 16" },
	{ .name = "a crop that does",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .src = { 64, 520 },
	  .before = { 0, -1 },
	  .after = { 0, -7 },
	  .straight = true,
	  .strategy = STRATEGY_rows,
	  .element = 4,
	  .repeats = 1,
	  .rule = "tile_copy: source rows start 4 bytes past a multiple of 16" },
	{ .name = "a base off 16 bytes that a pad brings back on",
	  .dtype = DTYPE_UINT16,
	  .rank = 2,
	  .src = { 64, 1007 },
	  .strides = { 1008, 1 },
	  .before = { 0, 1 },
	  .straight = true,
	  .src_phase = 14,
	  .strategy = STRATEGY_rows,
	  .element = 2,
	  .repeats = 1,
	  .rule = "tile_copy: source rows start 12 bytes past a multiple of 16" },
	{ .name = "ragged rows",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .src = { 64, 1003 },
	  .strides = { 1004, 1 },
	  .straight = true,
	  .strategy = STRATEGY_rows,
	  .element = 4,
	  .repeats = 1,
	  .rule =
	      "tile_copy: destination rows end 12 bytes past a multiple of 16, and a store would go on to the next one" },
	{ .name = "short ragged rows are taken together",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .src = { 64, 61 },
	  .strides = { 64, 1 },
	  .straight = true,
	  .strategy = STRATEGY_short,
	  .element = 4,
	  .repeats = 1 },
	{ .name = "reversed rows",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .src = { 64, 1024 },
	  .strides = { 1024, -1 },
	  .straight = true,
	  .strategy = STRATEGY_rows,
	  .element = 4,
	  .repeats = 1,
	  .rule =
	      "tile_copy: source stride 1 is -4 bytes, not 4, but a map does not step along its innermost "
	      "dimension" },
	{ .name = "an odd base moves bytes",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .src = { 64, 500 },
	  .strides = { 504, 1 },
	  .straight = true,
	  .src_phase = 1,
	  .dst_phase = 3,
	  .strategy = STRATEGY_rows,
	  .element = 1,
	  .repeats = 1 },
	{ .name = "transpose of 4-byte elements",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .src = { 256, 512 },
	  .perm = { 1, 0 },
	  .strategy = STRATEGY_transpose,
	  .element = 4,
	  .tile = { 64, 128 },
	  .repeats = 1,
	  .rule = "tile_copy: source stride 1 is 2048 bytes, not 4" },
	{ .name = "transpose of bytes",
	  .dtype = DTYPE_UINT8,
	  .rank = 2,
	  .src = { 512, 512 },
	  .perm = { 1, 0 },
	  .strategy = STRATEGY_transpose,
	  .element = 1,
	  .tile = { 256, 128 },
	  .repeats = 1 },
	{ .name = "transpose of 16-byte elements",
	  .dtype = DTYPE_COMPLEX128,
	  .rank = 2,
	  .src = { 64, 64 },
	  .perm = { 1, 0 },
	  .strategy = STRATEGY_transpose,
	  .element = 16,
	  .tile = { 16, 128 },
	  .repeats = 1 },
	{ .name = "a narrow tile goes on along other dimensions",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 5,
	  .src = { 16, 32, 8, 32, 32 },
	  .perm = { 4, 3, 2, 1, 0 },
	  .strategy = STRATEGY_transpose,
	  .element = 4,
	  .tile = { 1, 4, 4, 16, 32 },
	  .repeats = 1 },
	{ .name = "rows that are merged with a permuted dimension",
	  .dtype = DTYPE_BFLOAT16,
	  .rank = 4,
	  .src = { 2, 128, 8, 128 },
	  .perm = { 0, 2, 1, 3 },
	  .strategy = STRATEGY_copy,
	  .element = 16,
	  .tile = { 1, 1, 8, 32 },
	  .repeats = 1 },
	{ .name = "ragged transpose",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .src = { 100, 101 },
	  .perm = { 1, 0 },
	  .strategy = STRATEGY_tiles,
	  .element = 4,
	  .tile = { 64, 56 },
	  .repeats = 1,
	  .rule = "tile_transpose: load map: stride[0]: 404 bytes is not a multiple of 16" },
	{ .name = "columns of few rows are gathered, but not those",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .src = { 16, 101 },
	  .perm = { 1, 0 },
	  .strategy = STRATEGY_gather,
	  .element = 4,
	  .repeats = 1 },
	{ .name = "that are not whole chunks",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .src = { 15, 101 },
	  .perm = { 1, 0 },
	  .strategy = STRATEGY_tiles,
	  .element = 4,
	  .tile = { 64, 56 },
	  .repeats = 1 },
	{ .name = "or are of more rows",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .src = { 20, 101 },
	  .perm = { 1, 0 },
	  .strategy = STRATEGY_tiles,
	  .element = 4,
	  .tile = { 64, 56 },
	  .repeats = 1 },
	{ .name = "three channels become pixels",
	  .dtype = DTYPE_UINT8,
	  .rank = 3,
	  .src = { 3, 32, 32 },
	  .perm = { 1, 2, 0 },
	  .strategy = STRATEGY_channels,
	  .element = 1,
	  .tile = { 512, 3 },
	  .repeats = 1,
	  .rule = "tile_transpose: pixels are 3 bytes, but a tile's rows are of 128" },
	{ .name = "pixels become planes",
	  .dtype = DTYPE_FLOAT16,
	  .rank = 4,
	  .src = { 5, 16, 16, 4 },
	  .perm = { 0, 3, 1, 2 },
	  .strategy = STRATEGY_channels,
	  .element = 2,
	  .tile = { 4, 256 },
	  .repeats = 1 },
	{ .name = "three channels of odd planes",
	  .dtype = DTYPE_UINT8,
	  .rank = 3,
	  .src = { 3, 31, 31 },
	  .perm = { 1, 2, 0 },
	  .strategy = STRATEGY_gather,
	  .element = 1,
	  .repeats = 1 },
	{ .name = "rank 6 whose last dimensions a map counts as one",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 6,
	  .src = { 8, 8, 8, 8, 8, 8 },
	  .perm = { 5, 4, 3, 2, 1, 0 },
	  .strategy = STRATEGY_transpose,
	  .element = 4,
	  .tile = { 1, 4, 8, 8, 32 },
	  .repeats = 1 },
	{ .name = "rank 6 whose last are padded",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 6,
	  .src = { 8, 8, 8, 8, 8, 8 },
	  .perm = { 5, 4, 3, 2, 1, 0 },
	  .before = { 0, 0, 0, 1, 0, 0 },
	  .strategy = STRATEGY_tiles,
	  .element = 4,
	  .tile = { 64, 56 },
	  .repeats = 1,
	  .rule = "tile_transpose: rank is 6 after canonicalisation, but a map has at most 5" },
};

ParameterizedTestParameters(tma_plan, routes)
{
	return cr_make_param_array(struct tma_row, rows, sizeof rows / sizeof *rows);
}

static bool has_rule(const struct plan *plan, const char *rule)
{
	char text[160];

	for (int i = 0; i < plan->rules.n; i++) {
		snprintf(text, sizeof text, "%s: %s", family_names[plan->rules.rule[i].family],
		         plan->rules.rule[i].text);
		if (!strcmp(text, rule))
			return true;
	}
	return false;
}

ParameterizedTest(struct tma_row *row, tma_plan, routes)
{
	struct transform t;
	struct plan plan;

	tma_row_plan(row, true, &t, &plan);
	cr_assert_eq(plan.tma.strategy, row->strategy, "%s: strategy %d", row->name, plan.tma.strategy);
	cr_assert_eq(plan.tma.element, row->element, "%s: element %u", row->name, plan.tma.element);
	cr_assert_eq(plan.tma.repeats, row->repeats, "%s: %lu repeats", row->name,
	             (unsigned long)plan.tma.repeats);
	cr_assert_eq(plan.tma.border_rank > 0, row->border, "%s: a border of rank %u", row->name,
	             plan.tma.border_rank);
	cr_assert_eq(plan.tma.patched, row->patched, "%s: patched %d", row->name, plan.tma.patched);
	for (int d = 0; d < 5; d++)
		cr_assert_eq(d < plan.tile_rank ? plan.tile[d] : 0, row->tile[d], "%s: tile[%d] is %ld of %d",
		             row->name, d, (long)plan.tile[d], plan.tile_rank);
	cr_assert(!row->rule[0] || has_rule(&plan, row->rule), "%s: not said: %s; the last is %s", row->name,
	          row->rule, plan.rules.n ? plan.rules.rule[plan.rules.n - 1].text : "none");
}

/* Returns the plan; planning makes no tensor map that would be illegal. */
static struct plan plan_of(const struct transform_spec *spec)
{
	const struct plan_facts facts = { .threads = 132, .align = 32 };
	struct transform t;
	struct plan plan;
	struct error err;

	cr_assert_eq(transform_init(&t, spec, &err), 0, "%s", err.message);
	plan_init(&plan, &t, &facts);
	return plan;
}

/* Makes a contiguous layout of bytes. */
static void make_layout(struct tensor_layout *ret, int rank, const int64_t *shape)
{
	int64_t stride = 1;

	*ret = (struct tensor_layout){ .dtype = DTYPE_UINT8, .rank = rank };
	for (int d = rank - 1; d >= 0; d--) {
		ret->shape[d] = shape[d];
		ret->stride[d] = stride;
		stride *= shape[d];
	}
}

/* Rows must not end within a padded dimension, and with all of this long outermost one they would be too
 * long. */
Test(tma_plan, the_border_of_a_long_dimension_is_filled_by_itself)
{
	struct transform_spec spec = { .n_perm = -1,
		                       .n_before = 3,
		                       .before = { 6, 0, 2 },
		                       .n_after = 3,
		                       .after = { 0, 0, 2 },
		                       .mode = PAD_MODE_EDGE };
	struct plan plan;

	make_layout(&spec.dst, 3, (const int64_t[]){ 16777222, 5, 14 });
	make_layout(&spec.src, 3, (const int64_t[]){ 16777216, 5, 10 });
	plan = plan_of(&spec);
	cr_expect_eq(plan.tma.strategy, STRATEGY_permute);
	cr_expect_eq(plan.tma.border_tiles, 1, "of 6 x 70 bytes: %lu", (unsigned long)plan.tma.border_tiles);
	cr_expect_eq(plan.tma.permute.padded, 1);
	cr_expect_lt(plan.predicted, 2.5, "%f", plan.predicted);
}

/* Sectors in which rows of the border and of the window meet would be written twice. */
Test(tma_plan, a_large_border_is_not_filled_by_itself)
{
	struct transform_spec spec = {
		.n_perm = 4, .perm = { 3, 2, 1, 0 }, .n_before = 4, .before = { 0, 1, 0, 0 }, .n_after = 4
	};
	struct plan plan;

	make_layout(&spec.dst, 4, (const int64_t[]){ 4, 5, 128, 2 });
	make_layout(&spec.src, 4, (const int64_t[]){ 2, 128, 4, 4 });
	plan = plan_of(&spec);
	cr_expect_eq(plan.tma.strategy, STRATEGY_permute);
	cr_expect_eq(plan.tma.border_rank, 0);
}

/* The cheapest tile is predicted to have loads of a single pixel, which are useless, so the next one is
 * taken. */
Test(tma_plan, tiles_of_runs_that_are_too_short_hide_no_others)
{
	struct transform_spec spec = { .n_perm = -1,
		                       .n_before = 4,
		                       .before = { 0, 16, 1, 0 },
		                       .n_after = 4,
		                       .after = { 0, 13, 0, 0 },
		                       .mode = PAD_MODE_WRAP };

	make_layout(&spec.dst, 4, (const int64_t[]){ 31, 349, 3, 2 });
	make_layout(&spec.src, 4, (const int64_t[]){ 31, 320, 2, 2 });
	cr_expect_eq(plan_of(&spec).tma.strategy, STRATEGY_permute);
}

/* No tile has both ends of the long dimension, which wraps around. The strategy `elements` would gather, and
 * its border would be filled by itself, too. */
Test(tma_plan, a_large_border_that_no_tile_can_have_is_filled_by_itself)
{
	struct transform_spec spec = { .n_perm = 3,
		                       .perm = { 2, 1, 0 },
		                       .n_before = 3,
		                       .before = { 1, 8, 0 },
		                       .n_after = 3,
		                       .after = { 1, 14, 0 },
		                       .mode = PAD_MODE_WRAP };
	struct plan plan;

	make_layout(&spec.dst, 3, (const int64_t[]){ 6, 5142, 2 });
	make_layout(&spec.src, 3, (const int64_t[]){ 2, 5120, 4 });
	plan = plan_of(&spec);
	cr_expect_eq(plan.tma.strategy, STRATEGY_permute);
	cr_expect_gt(plan.tma.border_rank, 0);
}

/* Threads are chosen although tensor maps and bulk copies would be legal. */
Test(tma_plan, whole_rows_are_moved_by_threads)
{
	struct transform_spec spec = { .n_perm = -1, .n_before = -1, .n_after = -1 };

	make_layout(&spec.dst, 2, (const int64_t[]){ 8192, 16384 });
	make_layout(&spec.src, 2, (const int64_t[]){ 8192, 16384 });
	spec.src.stride[0] = 16896;
	cr_expect_eq(plan_of(&spec).tma.strategy, STRATEGY_rows);
}

/* A tile of many axes would load the gaps, too. */
Test(tma_plan, short_rows_with_gaps_are_copied_by_maps)
{
	struct transform_spec spec = { .n_perm = -1, .n_before = -1, .n_after = -1 };

	make_layout(&spec.dst, 2, (const int64_t[]){ 4194304, 64 });
	make_layout(&spec.src, 2, (const int64_t[]){ 4194304, 64 });
	spec.src.stride[0] = 128;
	cr_expect_eq(plan_of(&spec).tma.strategy, STRATEGY_copy);
}

/* A dimension that is read backwards cannot be cut, so rows end before it. */
Test(tma_plan, rows_end_before_a_long_dimension_that_runs_backwards)
{
	struct transform_spec spec = { .n_perm = 2, .perm = { 1, 0 }, .n_before = -1, .n_after = -1 };
	struct plan plan;

	make_layout(&spec.dst, 2, (const int64_t[]){ 16777216, 32 });
	make_layout(&spec.src, 2, (const int64_t[]){ 32, 16777216 });
	spec.src.stride[1] = -1;
	plan = plan_of(&spec);
	cr_expect_eq(plan.tma.strategy, STRATEGY_permute);
	cr_expect_lt(plan.predicted, 2, "%f", plan.predicted);
}

Test(tma_plan, maps_keep_every_rule)
{
	struct tensor_map_rules rules;

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct transform t;
		struct plan plan;

		tma_row_plan(&rows[i], true, &t, &plan);
		if (plan.tma.strategy == STRATEGY_copy || plan.tma.strategy == STRATEGY_transpose)
			cr_expect_eq(tensor_map_check(&plan.tma.load, 0, &rules), 0, "%s: %s", rows[i].name,
			             rules.text[0]);
		if (plan.tma.strategy == STRATEGY_copy)
			cr_expect_eq(tensor_map_check(&plan.tma.store, 0, &rules), 0, "%s: %s", rows[i].name,
			             rules.text[0]);
	}
}

/* Multiplication gives the same quotient as division, on both sides of the size up to which it is used. */
Test(tma_plan, divisors_divide)
{
	const uint64_t n[] = { 1,   2,     3,     7,          98,         255,        256,
		               257, 65535, 65537, 0x40000001, 0x7fffffff, 0x80000000, 1ull << 40 };

	for (size_t i = 0; i < sizeof n / sizeof *n; i++) {
		const struct divisor by = divisor_of(n[i]);
		const uint64_t ends[] = { 0,          n[i],       2 * n[i],  0x7fffffff / n[i] * n[i],
			                  0x7fffffff, 0x80000000, 1ull << 50 };

		for (size_t e = 0; e < sizeof ends / sizeof *ends; e++)
			for (uint64_t a = ends[e] ? ends[e] - 1 : 0; a <= ends[e] + 1; a++)
				cr_assert_eq(divide_by(a, &by), a / n[i], "%lu / %lu is %lu",
				             (unsigned long)a, (unsigned long)n[i],
				             (unsigned long)divide_by(a, &by));
	}
}

/* Every element outside the window is in exactly one box of the border, and none inside is. */
Test(tma_plan, boxes_are_the_border)
{
	const struct strided_dim dim[3] = { { .n = 7, .before = 2, .source = 4 },
		                            { .n = 5, .before = 0, .source = 3 },
		                            { .n = 6, .before = 1, .source = 5 } };

	for (int64_t i = 0; i < 7 * 5 * 6; i++) {
		const int64_t at[3] = { i % 7, i / 7 % 5, i / 35 };
		int boxes = 0, inside = 1;

		for (uint32_t b = 0; b < 6; b++) {
			int in = 1;

			for (uint32_t d = 0; d < 3; d++) {
				struct border_range range = border_box(dim, 3, b, d);

				in &= at[d] >= range.start && at[d] < range.start + range.n;
			}
			boxes += in;
		}
		for (int d = 0; d < 3; d++)
			inside &= at[d] >= dim[d].before && at[d] < dim[d].before + dim[d].source;
		cr_assert_eq(boxes, !inside, "element %ld, %ld, %ld is in %d boxes", (long)at[2], (long)at[1],
		             (long)at[0], boxes);
	}
}
