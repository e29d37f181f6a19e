/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what explain reports of tiles of many axes: the box that the kernel moves. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/cuda/strategy/plan.h"
#include "proto/arithmetic.h"

struct tile_row {
	char name[32];
	enum dtype dtype;
	int rank;
	int64_t src[6];
	int64_t perm[6];
};

ParameterizedTestParameters(plan_tile, many_axes)
{
	static struct tile_row rows[] = {
		{ "ragged transpose", DTYPE_FLOAT16, 2, { 8191, 8193 }, { 1, 0 } },
		{ "batched", DTYPE_UINT8, 3, { 300, 201, 1003 }, { 0, 2, 1 } },
		{ "reversal", DTYPE_FLOAT64, 6, { 15, 15, 14, 15, 13, 15 }, { 5, 4, 3, 2, 1, 0 } },
		{ "small planes", DTYPE_BFLOAT16, 3, { 64, 1024, 49 }, { 0, 2, 1 } },
	};
	return cr_make_param_array(struct tile_row, rows, sizeof rows / sizeof *rows);
}

static void plan_row(const struct tile_row *row, struct plan *ret)
{
	struct transform_spec spec = { .n_perm = row->rank, .n_before = -1, .n_after = -1 };
	struct plan_facts facts;
	struct transform t;
	struct error err;
	int64_t dst[6];

	for (int d = 0; d < row->rank; d++) {
		spec.perm[d] = row->perm[d];
		dst[d] = row->src[row->perm[d]];
	}
	cr_assert_eq(tensor_layout_init(&spec.src, row->dtype, row->rank, row->src, NULL, "src", &err), 0);
	cr_assert_eq(tensor_layout_init(&spec.dst, row->dtype, row->rank, dst, NULL, "dst", &err), 0);
	cr_assert_eq(transform_init(&t, &spec, &err), 0, "%s: %s", row->name, err.message);
	facts = plan_facts_of_h200();
	plan_init(ret, &t, &facts);
	cr_assert_eq(ret->tma.strategy, STRATEGY_permute, "%s: strategy %d", row->name, ret->tma.strategy);
}

/* Returns the dimension of the interior that has these strides. */
static const struct loop_nest_dim *find(const struct plan *plan, int64_t dst, int64_t src)
{
	for (int d = 0; d < plan->interior.rank; d++)
		if (plan->interior.dim[d].dst == dst && plan->interior.dim[d].src == src)
			return &plan->interior.dim[d];
	return NULL;
}

ParameterizedTest(struct tile_row *row, plan_tile, many_axes)
{
	struct plan plan;
	struct plan_tile tile;
	uint64_t tiles = 1;
	bool has_dst_run = false, has_src_run = false;

	plan_row(row, &plan);
	plan_tile_of(&plan, &tile);
	cr_expect_str_eq(plan.swizzle, "none");
	cr_expect_eq(tile.row_bytes, 0);
	cr_assert_eq(plan.tile_rank, (int)plan.tma.rank);
	for (int d = 0; d < plan.tile_rank; d++)
		tiles *=
		    divide_up_u64((uint64_t)plan.tma.dim[plan.tile_rank - 1 - d].n, (uint64_t)plan.tile[d]);
	cr_expect_eq(tiles, plan.tma.tiles, "%s: boxes cover it %lu times, not %lu", row->name,
	             (unsigned long)tiles, (unsigned long)plan.tma.tiles);

	cr_assert_gt(tile.rank, 1, "%s", row->name);
	for (int d = 0; d < tile.rank; d++) {
		const struct loop_nest_dim *dim = find(&plan, tile.dst[d], tile.src[d]);

		cr_assert_not_null(dim, "%s: dimension %d", row->name, d);
		cr_expect(tile.n[d] > 1 && tile.n[d] <= dim->n, "%s: %ld of %ld", row->name, (long)tile.n[d],
		          (long)dim->n);
		has_dst_run |= tile.dst[d] == tile.element;
		has_src_run |= tile.src[d] == tile.element;
		if (d > 0)
			cr_expect_lt(tile.dst[d], tile.dst[d - 1], "%s: outermost first", row->name);
	}
	cr_expect(has_dst_run && has_src_run, "%s: it has runs of both sides", row->name);
}
