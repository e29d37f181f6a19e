/* SPDX-License-Identifier: Apache-2.0 */
/* What cost decides: of moves for which routes are far apart, whatever the weights. Extents are such that
 * tiles fit them. A block of a list is planned otherwise, since a list cannot take tiles of many axes.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "tma_rows.h"

static struct tma_row choices[] = {
	{ .name = "one run is the driver's",
	  .dtype = DTYPE_UINT8,
	  .rank = 2,
	  .src = { 4096, 4096 },
	  .straight = true,
	  .route = TMA_ROUTE_MEMCPY },
	{ .name = "runs of a few bytes on both sides, of many axes",
	  .dtype = DTYPE_FLOAT16,
	  .rank = 6,
	  .src = { 16, 12, 10, 6, 10, 14 },
	  .perm = { 5, 1, 3, 0, 4, 2 },
	  .route = TMA_ROUTE_PERMUTE },
	{ .name = "a transpose whose rows are not of whole chunks",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .src = { 1001, 1003 },
	  .perm = { 1, 0 },
	  .route = TMA_ROUTE_PERMUTE },
	{ .name = "a permutation with the nearest edge around it",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 4,
	  .src = { 64, 10, 30, 48 },
	  .perm = { 0, 3, 1, 2 },
	  .before = { 0, 0, 1, 1 },
	  .after = { 0, 0, 1, 1 },
	  .mode = PAD_MODE_EDGE,
	  .route = TMA_ROUTE_PERMUTE },
	{ .name = "three channels of odd planes",
	  .dtype = DTYPE_UINT8,
	  .rank = 3,
	  .src = { 3, 501, 333 },
	  .perm = { 1, 2, 0 },
	  .route = TMA_ROUTE_PERMUTE },
	{ .name = "every other byte",
	  .dtype = DTYPE_UINT8,
	  .rank = 2,
	  .src = { 64, 500 },
	  .strides = { 1001, 2 },
	  .straight = true,
	  .route = TMA_ROUTE_GATHER },
};

ParameterizedTestParameters(tma_cost, choices)
{
	return cr_make_param_array(struct tma_row, choices, sizeof choices / sizeof *choices);
}

ParameterizedTest(struct tma_row *row, tma_cost, choices)
{
	struct transform t;
	struct plan plan;

	tma_row_plan(row, false, &t, &plan);
	cr_assert_eq(plan.tma.route, row->route, "%s: route %d, %f", row->name, plan.tma.route,
	             plan.predicted);
	tma_row_plan(row, true, &t, &plan);
	cr_assert_neq(plan.tma.route, TMA_ROUTE_PERMUTE, "%s: a list cannot take it", row->name);
	cr_assert(row->route != TMA_ROUTE_PERMUTE || plan.predicted > 2, "%s: close: %f", row->name,
	          plan.predicted);
}

/* What is planned for a block of a list is what others are compared with. */
Test(tma_cost, alone_is_no_slower)
{
	for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
		struct plan listed, alone;
		struct transform t;

		tma_row_plan(&choices[i], true, &t, &listed);
		tma_row_plan(&choices[i], false, &t, &alone);
		cr_expect_leq(alone.predicted, listed.predicted, "%s: %f instead of %f", choices[i].name,
		              alone.predicted, listed.predicted);
		cr_expect(alone.tma.route == listed.tma.route || alone.predicted < listed.predicted,
		          "%s: route %d instead of %d", choices[i].name, alone.tma.route, listed.tma.route);
	}
}
