/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: which family, and what is said of the better ones. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>

#include "kernels/plan/plan.h"

struct plan_row {
	char name[40];
	enum dtype dtype;
	int rank;
	int64_t src[4], perm[4], strides[4], before[4], after[4]; /* strides of src; all 0: C order */
	uint32_t align;
	enum family family;
	enum plan_method method;
	int64_t tile, grid; /* tile: both extents of a square one; tiles of the method are checked apart */
	uint64_t subregions;
	char rules[4][100]; /* "family: text" */
};

static struct plan_row rows[] = {
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
	  .method = PLAN_METHOD_MICROKERNEL,
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
	  .method = PLAN_METHOD_TILES,
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
	  .method = PLAN_METHOD_MICROKERNEL,
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

ParameterizedTestParameters(plan, plans)
{
	return cr_make_param_array(struct plan_row, rows, sizeof rows / sizeof *rows);
}

static void check_tile(const struct plan_row *row, const struct plan *plan)
{
	bool has_tiles = row->method == PLAN_METHOD_TILES;

	cr_assert_eq(plan->tile_rank,
	             has_tiles   ? plan->interior.rank
	             : row->tile ? 2
	                         : 0,
	             "%s: tile rank %d", row->name, plan->tile_rank);
	for (int d = 0; d < plan->tile_rank; d++)
		if (has_tiles)
			cr_assert(plan->tile[d] >= 1 && plan->tile[d] <= plan->interior.dim[d].n,
			          "%s: a tile's dimension %d is %ld", row->name, d, (long)plan->tile[d]);
		else
			cr_assert_eq(plan->tile[d], row->tile, "%s: tile %ld", row->name,
			             (long)plan->tile[d]);
}

ParameterizedTest(struct plan_row *row, plan, plans)
{
	struct transform_spec spec = { .n_perm = row->rank, .n_before = row->rank, .n_after = row->rank };
	struct plan_facts facts = { .engine = "cpu", .threads = 2, .align = row->align };
	int64_t dst[4];
	struct transform t;
	struct plan plan;
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
	plan_init(&plan, &t, &facts);

	cr_assert_eq(plan.family, row->family, "%s: %s", row->name, family_names[plan.family]);
	cr_assert_eq(plan.method, row->method, "%s: method %s", row->name, plan_method_names[plan.method]);
	cr_assert_eq(plan.predicted > 0, row->method != PLAN_METHOD_OPEN, "%s: %f predicted", row->name,
	             plan.predicted);
	check_tile(row, &plan);
	cr_assert_eq(plan.grid, row->grid, "%s: grid %ld", row->name, (long)plan.grid);
	cr_assert_eq(plan.n_subregions, row->subregions, "%s: %ld subregions", row->name,
	             (long)plan.n_subregions);
	for (; n_rules < 4 && row->rules[n_rules][0]; n_rules++) {
		char text[160];

		cr_assert_gt(plan.n_rules, n_rules, "%s: no rule %s", row->name, row->rules[n_rules]);
		snprintf(text, sizeof text, "%s: %s", family_names[plan.rules[n_rules].family],
		         plan.rules[n_rules].text);
		cr_assert_str_eq(text, row->rules[n_rules], "%s: %s", row->name, text);
	}
	cr_assert_eq(plan.n_rules, n_rules, "%s: rules past %d", row->name, n_rules);
}
