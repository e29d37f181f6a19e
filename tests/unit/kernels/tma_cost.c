/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what cost decides, for moves whose strategies' costs are so far apart that the weights do not matter.
 * Extents are such that tiles fit them. A block of a list is planned differently, since a list cannot use
 * tiles of many axes. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <string.h>

#include "kernels/cuda/strategy/strategy.h"
#include "tma_rows.h"

static struct tma_row choices[] = {
	{ .name = "one run is the driver's",
	  .dtype = DTYPE_UINT8,
	  .rank = 2,
	  .src = { 4096, 4096 },
	  .straight = true,
	  .strategy = STRATEGY_memcpy },
	{ .name = "runs of a few bytes on both sides, of many axes",
	  .dtype = DTYPE_FLOAT16,
	  .rank = 6,
	  .src = { 16, 12, 10, 6, 10, 14 },
	  .perm = { 5, 1, 3, 0, 4, 2 },
	  .strategy = STRATEGY_permute },
	{ .name = "a transpose whose rows are not of whole chunks",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .src = { 1001, 1003 },
	  .perm = { 1, 0 },
	  .strategy = STRATEGY_permute },
	{ .name = "a permutation with the nearest edge around it",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 4,
	  .src = { 64, 10, 30, 48 },
	  .perm = { 0, 3, 1, 2 },
	  .before = { 0, 0, 1, 1 },
	  .after = { 0, 0, 1, 1 },
	  .mode = PAD_MODE_EDGE,
	  .strategy = STRATEGY_permute },
	{ .name = "three channels of odd planes",
	  .dtype = DTYPE_UINT8,
	  .rank = 3,
	  .src = { 3, 501, 333 },
	  .perm = { 1, 2, 0 },
	  .strategy = STRATEGY_permute },
	{ .name = "every other byte",
	  .dtype = DTYPE_UINT8,
	  .rank = 2,
	  .src = { 64, 500 },
	  .strides = { 1001, 2 },
	  .straight = true,
	  .strategy = STRATEGY_gather },
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
	cr_assert_eq(plan.tma.strategy, row->strategy, "%s: strategy %d, %f", row->name, plan.tma.strategy,
	             plan.predicted);
	cr_assert(plan.tma.strategy != STRATEGY_permute ||
	              (plan.tile_rank > 0 && !strcmp(plan.swizzle, "none")),
	          "%s: a tile of %d axes, swizzled %s", row->name, plan.tile_rank, plan.swizzle);
	tma_row_plan(row, true, &t, &plan);
	cr_assert_neq(plan.tma.strategy, STRATEGY_permute, "%s: a list cannot take it", row->name);
	cr_assert(row->strategy != STRATEGY_permute || plan.predicted > 2, "%s: close: %f", row->name,
	          plan.predicted);
}

/* A single move is compared with the plan for a block of a list. */
Test(tma_cost, alone_is_no_slower)
{
	for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
		struct plan listed, alone;
		struct transform t;

		tma_row_plan(&choices[i], true, &t, &listed);
		tma_row_plan(&choices[i], false, &t, &alone);
		cr_expect_leq(alone.predicted, listed.predicted, "%s: %f instead of %f", choices[i].name,
		              alone.predicted, listed.predicted);
		cr_expect(alone.tma.strategy == listed.tma.strategy || alone.predicted < listed.predicted,
		          "%s: strategy %d instead of %d", choices[i].name, alone.tma.strategy,
		          listed.tma.strategy);
	}
}

/* ---- Each strategy ----------------------------------------------------------------------------------- */

static const struct loop_nest plain = {
	.rank = 2,
	.element = 4,
	.dim = { { 1024, 4096, 4, 0, 1024 }, { 1024, 4, 4096, 0, 1024 } },
};

/* Returns a plan by this strategy for a megapixel, in tiles that fit it. */
static struct plan routed(enum strategy_id strategy)
{
	struct plan plan = { .tile_rank = 2,
		             .tile = { 64, 128 },
		             .tma = { .strategy = strategy,
		                      .element = 4,
		                      .rank = 2,
		                      .slots = 8,
		                      .chunk = 16384,
		                      .whole = true,
		                      .tiles = 1024 * 1024 / (64 * 128),
		                      .load = { TENSOR_MAP_UINT32, .rank = 2, .box = { 128, 64 } },
		                      .cost = 1.25,
		                      .dim = { { 1024, 4, 4096, 0, 1024 }, { 1024, 4096, 4, 0, 1024 } } } };

	if (strategy == STRATEGY_channels)
		plan.tma.slots = 1024 * 4 / 16 / 32;
	if (strategy == STRATEGY_elements)
		for (int d = 0; d < 2; d++)
			plan.tma.dim[d].src = plan.tma.dim[d].dst;
	return plan;
}

Test(tma_cost, is_finite)
{
	for (int strategy = STRATEGY_none; strategy < STRATEGY_COUNT; strategy++) {
		const struct plan plan = routed((enum strategy_id)strategy);
		const double cost = tma_cost(&plan, &plain, 2, PAD_MODE_CONSTANT);

		cr_expect(isfinite(cost) && cost > 0.5 && cost < 10, "strategy %d: %f", strategy, cost);
	}
}

/* With a constant border, `short` takes some microseconds to start that `elements` does not take. */
Test(tma_cost, of_a_border_depends_on_how_much_there_is)
{
	struct plan few = routed(STRATEGY_short), many, elements = routed(STRATEGY_elements);

	few.tma.whole = elements.tma.whole = false;
	few.tma.dim[0].n = few.tma.dim[0].source = 98;
	many = few;
	few.tma.tiles = 200;
	many.tma.tiles = 800000;
	cr_expect_gt(tma_cost(&few, &plain, 2, PAD_MODE_CONSTANT),
	             tma_cost(&elements, &plain, 2, PAD_MODE_CONSTANT));
	cr_expect_lt(tma_cost(&many, &plain, 2, PAD_MODE_CONSTANT),
	             tma_cost(&elements, &plain, 2, PAD_MODE_CONSTANT));
	few.tma.whole = true;
	cr_expect_lt(tma_cost(&few, &plain, 2, PAD_MODE_CONSTANT), 2);
}

Test(tma_cost, of_tiles_is_what_was_predicted_for_them)
{
	const struct plan plan = routed(STRATEGY_permute);

	cr_expect_eq(tma_cost(&plan, &plain, 2, PAD_MODE_CONSTANT), 1.25);
}

/* Boxes, tiles and warps that are partly filled take as long as full ones. */
Test(tma_cost, rises_with_waste)
{
	static const enum strategy_id routes[] = { STRATEGY_copy, STRATEGY_transpose, STRATEGY_rows,
		                                   STRATEGY_short, STRATEGY_channels };

	for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
		struct plan plan = routed(routes[i]);
		const double full = tma_cost(&plan, &plain, 2, PAD_MODE_CONSTANT);

		plan.tma.dim[0].n = 130;
		cr_expect_gt(tma_cost(&plan, &plain, 2, PAD_MODE_CONSTANT), full, "strategy %d", routes[i]);
	}
}

/* Neighbouring elements of a warp should be neighbours in the source, too; the best such plan costs as much
 * as a copy. */
Test(tma_cost, of_elements_rises_with_what_a_warp_reads_in_part)
{
	struct plan plan = routed(STRATEGY_elements);
	double before = 1;

	plan.tma.whole = true;
	for (int64_t run = 1024; run >= 1; run /= 4) {
		double cost;

		plan.tma.rank = 3;
		plan.tma.dim[0] = (struct strided_dim){ run, 4, 4, 0, run };
		plan.tma.dim[1] = (struct strided_dim){ 1024 / run, run * 4, 1 << 20, 0, 1024 / run };
		plan.tma.dim[2] = (struct strided_dim){ 1024, 4096, 4096, 0, 1024 };
		cost = tma_cost(&plan, &plain, 3, PAD_MODE_CONSTANT);
		cr_expect(cost >= before, "runs of %ld: %f after %f", (long)run, cost, before);
		cr_expect(run < 256 || cost < 1.1, "runs of %ld: %f", (long)run, cost);
		cr_expect(run > 4 || cost > 1.5, "runs of %ld: %f", (long)run, cost);
		before = cost;
	}
}

/* The more dimensions there are, the longer it takes to find an element's place in a border. */
Test(tma_cost, of_elements_rises_with_the_dimensions_of_a_border)
{
	struct plan plan = routed(STRATEGY_elements);
	double before;

	plan.tma.element = 4;
	plan.tma.whole = true;
	for (uint32_t d = 0; d < 3; d++)
		plan.tma.dim[d] = (struct strided_dim){ 1024, 4 << (10 * d), 4 << (10 * d), 0, 1024 };
	plan.tma.rank = 2;
	before = tma_cost(&plan, &plain, 2, PAD_MODE_CONSTANT);
	plan.tma.whole = false;
	for (plan.tma.rank = 2; plan.tma.rank <= 3; plan.tma.rank++) {
		const double cost = tma_cost(&plan, &plain, 2, PAD_MODE_CONSTANT);

		cr_expect_gt(cost, before + 0.3, "%u dimensions: %f after %f", plan.tma.rank, cost, before);
		before = cost;
	}
}

/* A map's elements may be narrower than the plan's, and the rows of a transpose are those of its outer
 * dimensions. */
Test(tma_cost, counts_bytes_of_boxes_and_rows)
{
	struct plan copy = routed(STRATEGY_copy), even = routed(STRATEGY_transpose), ragged;
	const double own = tma_cost(&copy, &plain, 2, PAD_MODE_CONSTANT);

	copy.tma.load.type = TENSOR_MAP_UINT16;
	copy.tma.load.box[0] *= 2;
	cr_expect_eq(tma_cost(&copy, &plain, 2, PAD_MODE_CONSTANT), own);
	even.tma.element = 2;
	even.tma.dim[0] = (struct strided_dim){ 1024, 2048, 2, 0, 1024 };
	even.tma.dim[1] = (struct strided_dim){ 1024, 2, 2048, 0, 1024 };
	ragged = even;
	ragged.tma.dim[0].dst = 2050;
	cr_expect_lt(tma_cost(&even, &plain, 2, PAD_MODE_CONSTANT), 1.15);
	cr_expect_gt(tma_cost(&ragged, &plain, 2, PAD_MODE_CONSTANT), 1.4);
}

/* Small boxes and small bulk copies keep few bytes in flight. */
Test(tma_cost, rises_with_small_tiles)
{
	struct plan copy = routed(STRATEGY_copy), bulk = routed(STRATEGY_bulk);
	const double large_copy = tma_cost(&copy, &plain, 2, PAD_MODE_CONSTANT),
		     large_bulk = tma_cost(&bulk, &plain, 2, PAD_MODE_CONSTANT);

	copy.tma.load.box[1] = 8;
	copy.tma.tiles *= 8;
	bulk.tma.chunk = 4096;
	cr_expect_gt(tma_cost(&copy, &plain, 2, PAD_MODE_CONSTANT), large_copy);
	cr_expect_gt(tma_cost(&bulk, &plain, 2, PAD_MODE_CONSTANT), large_bulk);
}

/* Another launch writes the border, slowly unless the border is constant and in long runs. */
Test(tma_cost, rises_with_the_border)
{
	struct plan plan = routed(STRATEGY_copy);
	double before = tma_cost(&plan, &plain, 2, PAD_MODE_EDGE);

	plan.tma.border_rank = 2;
	for (int64_t source = 1000; source > 500; source -= 100) {
		struct loop_nest nest = plain;
		double edge, value;

		nest.dim[0].source = source;
		edge = tma_cost(&plan, &nest, 2, PAD_MODE_EDGE);
		value = tma_cost(&plan, &nest, 2, PAD_MODE_CONSTANT);
		cr_expect_gt(edge, before, "%ld of 1024", (long)source);
		cr_expect_gt(edge, value, "%ld of 1024", (long)source);
		before = edge;
		nest.dim[1].source = source; /* the border is in each row now, too */
		cr_expect_gt(tma_cost(&plan, &nest, 2, PAD_MODE_CONSTANT), value, "%ld of 1024",
		             (long)source);
	}
}

/* A border may be filled in the outermost dimensions alone. */
Test(tma_cost, counts_only_the_border_that_is_filled)
{
	struct plan plan = routed(STRATEGY_permute);
	struct loop_nest nest = plain;
	double both;

	plan.tma.border_rank = 2;
	nest.dim[0].source = 1000;
	nest.dim[1].source = 500;
	both = tma_cost(&plan, &nest, 2, PAD_MODE_EDGE);
	cr_expect_lt(tma_cost(&plan, &nest, 1, PAD_MODE_EDGE), both / 2);
}

/* ---- Tiles within a pad ---------------------------------------------------------------------------- */

static bool try_permute(const struct loop_nest *nest, enum pad_mode mode, struct plan *ret)
{
	const struct plan_facts facts = { .threads = 132, .align = 16 };

	*ret = (struct plan){ .swizzle = "none" };
	return tma_try_permute(ret, nest, &facts, mode, 1e30);
}

/* If the border is constant, and it and the window are multiples of 32 indices, the groups of 32 become a
 * dimension of their own that is not padded, so that tiles may end within it. */
Test(tma_cost, tiles_end_within_a_loose_pad)
{
	struct loop_nest nest = { .rank = 2,
		                  .element = 4,
		                  .dim = { { 512, 4096, 4, 0, 512 }, { 1024, 4, 2048, 96, 896 } } };
	struct plan plan;

	cr_assert(try_permute(&nest, PAD_MODE_CONSTANT, &plan));
	cr_assert_eq(plan.tma.rank, 3, "%u", plan.tma.rank);
	cr_expect_eq(plan.tma.dim[0].n, 32);
	cr_expect_eq(plan.tma.dim[0].source, 32);
	cr_expect_eq(plan.tma.dim[0].src, 2048);
	cr_expect_eq(plan.tma.dim[1].n, 32);
	cr_expect_eq(plan.tma.dim[1].before, 3);
	cr_expect_eq(plan.tma.dim[1].source, 28);
	cr_expect_eq(plan.tma.dim[1].dst, 128);
	cr_expect_eq(plan.tma.dim[1].src, 65536);
	cr_assert(try_permute(&nest, PAD_MODE_EDGE, &plan));
	cr_expect_eq(plan.tma.rank, 2, "each index of another mode's border is one of its own");
	nest.dim[1].before = 97;
	cr_assert(try_permute(&nest, PAD_MODE_CONSTANT, &plan));
	cr_expect_eq(plan.tma.rank, 2, "nothing divides the border");
}
