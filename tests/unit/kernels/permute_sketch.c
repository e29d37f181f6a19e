/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a sketch of a tile predicts about the cost of the tile that is worked out from it and, for
 * nearly all boxes, whether there is such a tile. The planner works out only the sketches that look best. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>

#include "kernels/cuda/strategy/permute_plan.h"

#define LEAST_RUN 8 /* bytes; the same as in the planner */
#define CLOSE     0.02
#define PARTS     6

struct nest_row {
	char what[32];
	enum pad_mode mode;
	struct loop_nest nest;
};

/* A dimension's indices and its strides in the destination and in the source. Dimensions are listed from the
 * outermost. */
#define DIM(n_, dst_, src_)                                     \
	{                                                       \
		.n = n_, .dst = dst_, .src = src_, .source = n_ \
	}
#define PADDED(n_, dst_, src_, before_, source_)                                        \
	{                                                                               \
		.n = n_, .dst = dst_, .src = src_, .before = before_, .source = source_ \
	}

ParameterizedTestParameters(permute_sketch, nests)
{
	static struct nest_row rows[] = {
		{ "a matrix of words",
		  PAD_MODE_CONSTANT,
		  { .rank = 2, .element = 4, .dim = { DIM(4096, 8192, 4), DIM(2048, 4, 16384) } } },
		{ "a ragged matrix of bytes",
		  PAD_MODE_CONSTANT,
		  { .rank = 2, .element = 1, .dim = { DIM(4097, 2047, 1), DIM(2047, 1, 4097) } } },
		{ "three axes of halves",
		  PAD_MODE_CONSTANT,
		  { .rank = 3,
		    .element = 2,
		    .dim = { DIM(96, 24576, 2), DIM(128, 192, 18432), DIM(96, 2, 192) } } },
		{ "bytes that share an axis",
		  PAD_MODE_CONSTANT,
		  { .rank = 3,
		    .element = 1,
		    .dim = { DIM(500, 4500, 9), DIM(500, 9, 4500), DIM(9, 1, 1) } } },
		{ "short axes",
		  PAD_MODE_CONSTANT,
		  { .rank = 4,
		    .element = 8,
		    .dim = { DIM(31, 28800, 8), DIM(30, 960, 248), DIM(10, 96, 7440), DIM(12, 8, 74400) } } },
		{ "reversed rows",
		  PAD_MODE_CONSTANT,
		  { .rank = 2, .element = 2, .dim = { DIM(3000, 2000, 2000), DIM(1000, 2, -2) } } },
		{ "an edge",
		  PAD_MODE_EDGE,
		  { .rank = 2,
		    .element = 4,
		    .dim = { PADDED(1030, 4000, 4, 3, 1024), DIM(1000, 4, 4096) } } },
	};

	return cr_make_param_array(struct nest_row, rows, sizeof rows / sizeof *rows);
}

struct count {
	int n;
	int close;
	int other; /* boxes for which either the sketch or the tile exists, but not both */
};

static void compare(const struct permute_sides *sides, const struct permute_box *box, struct count *count)
{
	struct permute_sketch sketch[PERMUTE_HOWS];

	permute_sketch(sides, box, PERMUTE_NEVER, sketch);
	for (int how = 0; how < PERMUTE_HOWS; how++) {
		static struct permute_tile tile;
		double cost = PERMUTE_NEVER;

		if (permute_tile_init(&tile, sides, box, (enum permute_how)how) &&
		    tile.load_run >= LEAST_RUN && tile.row_run >= LEAST_RUN) {
			permute_lay_out(&tile);
			cost = permute_cost(&tile);
		}
		if (cost >= PERMUTE_NEVER && sketch[how].cost >= PERMUTE_NEVER)
			continue;
		count->n++;
		count->other += cost >= PERMUTE_NEVER || sketch[how].cost >= PERMUTE_NEVER;
		count->close += fabs(sketch[how].cost / cost - 1) < CLOSE;
	}
}

static uint32_t part_of(int64_t n, uint32_t i)
{
	const int64_t parts[PARTS] = { 1, 16, 61, 128, n / 2, n };

	return (uint32_t)(parts[i] < n ? parts[i] : n);
}

ParameterizedTest(struct nest_row *row, permute_sketch, nests)
{
	const struct plan_facts facts = { .threads = 132, .align = 16 };
	struct permute_sides sides;
	struct count count = { 0 };
	uint32_t boxes = 1;

	permute_sides_init(&sides, &row->nest, &facts, row->mode);
	for (int d = 0; d < row->nest.rank; d++)
		boxes *= PARTS;
	for (uint32_t i = 0; i < boxes; i++) {
		struct permute_box box;
		uint32_t rest = i;

		for (int d = 0; d < row->nest.rank; d++, rest /= PARTS)
			box.n[d] = part_of(row->nest.dim[d].n, rest % PARTS);
		compare(&sides, &box, &count);
	}
	cr_expect_geq(count.n, 8, "%s: %d", row->what, count.n);
	cr_expect_leq(count.other * 50, count.n, "%s: %d of %d", row->what, count.other, count.n);
	cr_expect_geq(count.close * 20, count.n * 19, "%s: %d of %d", row->what, count.close, count.n);
}
