/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how the CPU engine explains a move: its family, and why no better family is used. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cpu/plan/cpu_plan.h"

struct explain_row {
	char name[40];
	enum dtype dtype;
	int rank;
	/* The strides are those of src; all 0: C order. */
	int64_t src[4], perm[4], strides[4], before[4], after[4];
	uint32_t align;
	enum family family;
	char method[16]; /* empty: the method is chosen when the transform is moved */
	/* The extent of a square tile's sides. Tiles of the method are checked elsewhere. */
	int64_t tile, grid;
	uint64_t subregions;
	char rules[4][100]; /* "family: text" */
};

static struct explain_row rows[] = {
	{ .name = "scalar",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 0,
	  .align = 64,
	  .family = FAMILY_MEMCPY,
	  .grid = 1,
	  .subregions = 1 },
	{ .name = "copy",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .src = { 1024, 1024 },
	  .perm = { 0, 1 },
	  .align = 64,
	  .family = FAMILY_MEMCPY,
	  .grid = 4,
	  .subregions = 1 },
	{ .name = "rows",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .src = { 8, 7 },
	  .perm = { 0, 1 },
	  .strides = { 9, 1 },
	  .align = 64,
	  .family = FAMILY_TILE_COPY,
	  .grid = 1,
	  .subregions = 1,
	  .rules = { "memcpy: source stride 0 is 36 bytes, not 28" } },
	{ .name = "pad keeps the interior's rows",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .src = { 8, 7 },
	  .perm = { 0, 1 },
	  .before = { 1, 1 },
	  .after = { 1, 0 },
	  .align = 64,
	  .family = FAMILY_TILE_COPY,
	  .grid = 1,
	  .subregions = 4,
	  .rules = { "memcpy: destination stride 0 is 32 bytes, not 28" } },
	{ .name = "transpose",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .src = { 8191, 8193 },
	  .perm = { 1, 0 },
	  .align = 64,
	  .family = FAMILY_TILE_TRANSPOSE,
	  .method = "microkernel",
	  .tile = 16,
	  .grid = 256,
	  .subregions = 1,
	  .rules = { "memcpy: source stride 1 is 32772 bytes, not 4",
	             "tile_copy: source stride 1 is 32772 bytes, not 4" } },
	{ .name = "transpose of many bytes",
	  .dtype = DTYPE_UINT8,
	  .rank = 2,
	  .src = { 8192, 8192 },
	  .perm = { 1, 0 },
	  .align = 64,
	  .family = FAMILY_TILE_TRANSPOSE,
	  .method = "tiles",
	  .grid = 64,
	  .subregions = 1,
	  .rules = { "memcpy: source stride 1 is 8192 bytes, not 1",
	             "tile_copy: source stride 1 is 8192 bytes, not 1" } },
	{ .name = "long rows in another order",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 3,
	  .src = { 64, 128, 1024 },
	  .perm = { 1, 0, 2 },
	  .align = 64,
	  .family = FAMILY_TILE_COPY,
	  .method = "microkernel",
	  .grid = 32,
	  .subregions = 1,
	  .rules = { "memcpy: source stride 1 is 524288 bytes, not 4096" } },
	{ .name = "transpose of bytes",
	  .dtype = DTYPE_UINT8,
	  .rank = 2,
	  .src = { 100, 100 },
	  .perm = { 1, 0 },
	  .align = 64,
	  .family = FAMILY_TILE_TRANSPOSE,
	  .tile = 64,
	  .grid = 1,
	  .subregions = 1,
	  .rules = { "memcpy: source stride 1 is 100 bytes, not 1",
	             "tile_copy: source stride 1 is 100 bytes, not 1" } },
	{ .name = "transpose of pairs widens",
	  .dtype = DTYPE_UINT8,
	  .rank = 3,
	  .src = { 100, 100, 2 },
	  .perm = { 1, 0, 2 },
	  .align = 64,
	  .family = FAMILY_TILE_TRANSPOSE,
	  .tile = 32,
	  .grid = 1,
	  .subregions = 1,
	  .rules = { "memcpy: source stride 1 is 200 bytes, not 2",
	             "tile_copy: source stride 1 is 200 bytes, not 2" } },
	{ .name = "transpose of complex128",
	  .dtype = DTYPE_COMPLEX128,
	  .rank = 2,
	  .src = { 10, 10 },
	  .perm = { 1, 0 },
	  .align = 1,
	  .family = FAMILY_TILE_TRANSPOSE,
	  .tile = 4,
	  .grid = 1,
	  .subregions = 1,
	  .rules = { "memcpy: source stride 1 is 160 bytes, not 16",
	             "tile_copy: source stride 1 is 160 bytes, not 16" } },
	{ .name = "reversed",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 1,
	  .src = { 10 },
	  .perm = { 0 },
	  .strides = { -1 },
	  .align = 64,
	  .family = FAMILY_STRIDED,
	  .grid = 1,
	  .subregions = 1,
	  .rules = { "memcpy: source stride 0 is -4 bytes, not 4",
	             "tile_copy: source stride 0 is -4 bytes, not 4",
	             "tile_transpose: source stride 0, the smallest, is -4 bytes, and none is 4" } },
	{ .name = "reversed rows, transposed",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .src = { 10, 12 },
	  .perm = { 1, 0 },
	  .strides = { 12, -1 },
	  .align = 64,
	  .family = FAMILY_TILE_TRANSPOSE,
	  .tile = 16,
	  .grid = 1,
	  .subregions = 1,
	  .rules = { "memcpy: source stride 1 is 48 bytes, not 4",
	             "tile_copy: source stride 1 is 48 bytes, not 4" } },
	{ .name = "every other, transposed",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .src = { 10, 10 },
	  .perm = { 1, 0 },
	  .strides = { 20, 2 },
	  .align = 64,
	  .family = FAMILY_STRIDED,
	  .grid = 1,
	  .subregions = 1,
	  .rules = { "memcpy: source stride 1 is 80 bytes, not 4",
	             "tile_copy: source stride 1 is 80 bytes, not 4",
	             "tile_transpose: source stride 0, the smallest, is 8 bytes, and none is 4" } },
	{ .name = "nothing to read",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .src = { 10, 0 },
	  .perm = { 0, 1 },
	  .before = { 1, 3 },
	  .align = 64,
	  .family = FAMILY_FILL,
	  .grid = 1,
	  .subregions = 1 },
	{ .name = "nothing at all",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .src = { 10, 0 },
	  .perm = { 0, 1 },
	  .align = 64,
	  .family = FAMILY_FILL,
	  .grid = 1,
	  .subregions = 0 },
};

ParameterizedTestParameters(cpu_explain, rows)
{
	return cr_make_param_array(struct explain_row, rows, sizeof rows / sizeof *rows);
}

/* Returns the extent of the interior's dimension with these strides. */
static int64_t extent_of(const struct engine_explanation *of, int64_t dst, int64_t src)
{
	for (int d = 0; d < of->rank; d++)
		if (of->dst[d] == dst && of->src[d] == src)
			return of->shape[d];
	return 0;
}

static void check_tile(const struct explain_row *row, const struct engine_explanation *of)
{
	const bool has_tiles = !strcmp(row->method, "tiles");

	if (!has_tiles)
		cr_assert_eq(of->tile.rank, row->tile ? 2 : 0, "%s: tile rank %d", row->name, of->tile.rank);
	else
		cr_assert_gt(of->tile.rank, 0, "%s: no tile", row->name);
	for (int d = 0; d < of->tile.rank; d++) {
		const int64_t n = of->tile.n[d], whole = extent_of(of, of->tile.dst[d], of->tile.src[d]);

		cr_assert_gt(whole, 0, "%s: the tile's dimension %d is none of the interior's", row->name, d);
		if (has_tiles)
			cr_assert(n > 1 && n <= whole, "%s: %ld of %ld elements", row->name, (long)n,
			          (long)whole);
		else
			cr_assert_eq(n, row->tile, "%s: tile %ld", row->name, (long)n);
	}
}

ParameterizedTest(struct explain_row *row, cpu_explain, rows)
{
	struct transform_spec spec = { .n_perm = row->rank, .n_before = row->rank, .n_after = row->rank };
	int64_t dst[4];
	struct transform t;
	struct engine_explanation of;
	struct error err;
	int n_rules = 0;
	bool strided = false;

	for (int d = 0; d < row->rank; d++) {
		spec.perm[d] = row->perm[d];
		spec.before[d] = row->before[d];
		spec.after[d] = row->after[d];
		dst[d] = row->src[row->perm[d]] + row->before[d] + row->after[d];
		strided |= row->strides[d] != 0;
	}
	cr_assert_eq(tensor_layout_init(&spec.src, row->dtype, row->rank, row->src,
	                                strided ? row->strides : NULL, "src", &err),
	             0);
	cr_assert_eq(tensor_layout_init(&spec.dst, row->dtype, row->rank, dst, NULL, "dst", &err), 0);
	cr_assert_eq(transform_init(&t, &spec, &err), 0, "%s: %s", row->name, err.message);
	cpu_explain(&of, &t, row->align);

	cr_assert_eq(of.family, row->family, "%s: %s", row->name, family_names[of.family]);
	cr_assert_str_eq(of.method, row->method, "%s: method %s", row->name, of.method);
	cr_assert_eq(of.predicted > 0, *row->method != 0, "%s: %f predicted", row->name, of.predicted);
	check_tile(row, &of);
	cr_assert_eq(of.grid, row->grid, "%s: grid %ld", row->name, (long)of.grid);
	cr_assert_eq(of.n_subregions, row->subregions, "%s: %ld subregions", row->name,
	             (long)of.n_subregions);
	for (; n_rules < 4 && row->rules[n_rules][0]; n_rules++) {
		char text[160];

		cr_assert_gt(of.rules.n, n_rules, "%s: no rule %s", row->name, row->rules[n_rules]);
		snprintf(text, sizeof text, "%s: %s", family_names[of.rules.rule[n_rules].family],
		         of.rules.rule[n_rules].text);
		cr_assert_str_eq(text, row->rules[n_rules], "%s: %s", row->name, text);
	}
	cr_assert_eq(of.rules.n, n_rules, "%s: rules past %d", row->name, n_rules);
}
