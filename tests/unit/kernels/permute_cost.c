/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what holds of a predicted cost whatever its weights are: it is finite, a change that makes a tile
 * worse does not make it cheaper, and it is about 1 for tiles that are as large and aligned as they can
 * be. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>

#include "kernels/cuda/strategy/permute_plan.h"

struct kind_row {
	enum permute_how how;
	uint32_t element;
};

static struct criterion_test_params every_kind(void)
{
	static struct kind_row kinds[] = {
		{ PERMUTE_ELEMENTS, 1 }, { PERMUTE_ELEMENTS, 2 },  { PERMUTE_ELEMENTS, 4 },
		{ PERMUTE_ELEMENTS, 8 }, { PERMUTE_ELEMENTS, 16 }, { PERMUTE_WORDS, 1 },
		{ PERMUTE_WORDS, 2 },    { PERMUTE_PIECES, 1 },    { PERMUTE_PIECES, 16 },
	};

	return cr_make_param_array(struct kind_row, kinds, sizeof kinds / sizeof *kinds);
}

ParameterizedTestParameters(permute_cost, kinds)
{
	return every_kind();
}

ParameterizedTestParameters(permute_cost, rises_on_either_side_of_enough_bytes_in_flight)
{
	return every_kind();
}

/* Returns a tile of 24 KiB that reads and writes runs of 512 bytes. */
static struct permute_tile good_tile(const struct kind_row *kind)
{
	return (struct permute_tile){
		.args = { .how = kind->how,
		          .loads = 48,
		          .rows = 48,
		          .row_bytes = 512,
		          .phases = 1,
		          .pieces = 4,
		          .shared = 28000 },
		.nest = { .element = kind->element },
		.tiles = 10000,
		.processors = 132,
		.useful = 24576,
		.load_run = 512,
		.row_run = 512,
		.wasted = 1,
		.gaps = 1,
	};
}

static double cost_of(const struct permute_tile *tile)
{
	const double cost = permute_cost(tile);

	cr_assert(isfinite(cost) && cost > 0, "%f", cost);
	return cost;
}

#define WORSE(strictly, change)                                                                           \
	do {                                                                                              \
		struct permute_tile tile = good;                                                          \
		tile.change;                                                                              \
		const double cost = cost_of(&tile);                                                       \
		cr_expect(strictly ? cost > least : cost >= least, "kind %d of %u: %s: %f, not above %f", \
		          kind->how, kind->element, #change, cost, least);                                \
	} while (0)

ParameterizedTest(struct kind_row *kind, permute_cost, kinds)
{
	const struct permute_tile good = good_tile(kind);
	const double least = cost_of(&good);

	cr_expect(least > 0.8 && least < 1.3, "kind %d of %u: %f", kind->how, kind->element, least);
	WORSE(true, load_run = 32);
	WORSE(true, row_run = 32);
	WORSE(true, wasted = 1.5);
	WORSE(true, gaps = 1.5);
	WORSE(false, unaligned_loads = true);
	WORSE(false, args.ragged = true);
	WORSE(false, args.exact = true);
	WORSE(false, wavefronts = 4);
	WORSE(false, args.loads = 768);
	WORSE(true, tiles = 500);
	WORSE(false, args.rows = 768);
	WORSE(false, args.phases = 4);
	WORSE(false, args.pieces = 2000);
	WORSE(true, args.shared = 120000);
	WORSE(true, useful = 2048);
	WORSE(true, split_lines = true);
	WORSE(kind->how != PERMUTE_PIECES, args.log_side = 4);
}

/* Tiles of squares have weights of their own. */
ParameterizedTestParameters(permute_cost, squares)
{
	static struct kind_row kinds[] = { { PERMUTE_SQUARES, 1 },
		                           { PERMUTE_SQUARES, 2 },
		                           { PERMUTE_SQUARES, 4 },
		                           { PERMUTE_SQUARES, 8 },
		                           { PERMUTE_SQUARES, 16 } };

	return cr_make_param_array(struct kind_row, kinds, sizeof kinds / sizeof *kinds);
}

ParameterizedTest(struct kind_row *kind, permute_cost, squares)
{
	struct permute_tile good = good_tile(kind);

	good.args.threads = 256;
	const double least = cost_of(&good);

	cr_expect(least > 0.95 && least < 1.1, "squares of %u: %f", kind->element, least);
	WORSE(true, load_run = 32);
	WORSE(true, row_run = 32);
	WORSE(true, wasted = 1.5);
	WORSE(true, load_lines = 0.5);
	WORSE(true, row_lines = 0.5);
	WORSE(true, args.exact = true);
	WORSE(true, tiles = 500);
	good.args.threads = 64;
	cr_expect_gt(cost_of(&good), least, "squares of %u: more blocks at once, which are fewer waves",
	             kind->element);
}

/* With too few bytes in flight the memory waits; with too many, lines leave L2 before they are complete. */
ParameterizedTest(struct kind_row *kind, permute_cost, rises_on_either_side_of_enough_bytes_in_flight)
{
	struct permute_tile tile = good_tile(kind);
	double enough;

	tile.tiles = 1 << 30;
	tile.useful = 40000;
	tile.args.shared = 70000;
	enough = cost_of(&tile);
	tile.args.padded = 1;
	cr_expect_gt(cost_of(&tile), enough, "a border");
	tile.args.padded = 0;
	tile.args.shared = 28000;
	cr_expect_gt(cost_of(&tile), enough, "4 blocks or 6");
	tile.args.shared = 200000;
	cr_expect_gt(cost_of(&tile), enough, "1 block");
}

/* The cost rises ever faster as runs get shorter. */
Test(permute_cost, falls_with_runs)
{
	const struct kind_row kind = { PERMUTE_ELEMENTS, 4 };
	struct permute_tile tile = good_tile(&kind);
	double before = PERMUTE_NEVER, step = INFINITY;

	for (double run = 8; run <= 4096; run *= 2) {
		double cost;

		tile.load_run = tile.row_run = run;
		cost = cost_of(&tile);
		cr_assert_lt(cost, before, "runs of %f: %f", run, cost);
		cr_assert_lt(before - cost, step, "runs of %f", run);
		step = before - cost;
		before = cost;
	}
}

/* A multiprocessor has 228 KiB of shared memory, of which the driver reserves 1 KiB for each thread block. */
Test(permute_cost, never_without_shared_memory)
{
	const struct kind_row kind = { PERMUTE_ELEMENTS, 4 };
	struct permute_tile tile = good_tile(&kind);

	tile.args.shared = 226 * 1024;
	cr_expect_lt(permute_cost(&tile), PERMUTE_NEVER);
	tile.args.shared = 226 * 1024 + 1;
	cr_expect_eq(permute_cost(&tile), PERMUTE_NEVER);
}
