/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which dimensions make up the runs of either side, and the alignment of their addresses. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/cuda/strategy/permute_plan.h"

#define END (-1)

struct sides_row {
	char name[48];
	struct loop_nest nest;
	int dst[4]; /* dimensions of the longest possible chain, innermost first; END follows the last */
	int src[4];
};

#define DIM(n, dst, src)          \
	{                         \
		n, dst, src, 0, n \
	}
#define NEST(element_, rank_, ...) .nest = { .rank = rank_, .element = element_, .dim = { __VA_ARGS__ } }

static struct sides_row rows[] = {
	{ .name = "a transpose",
	  NEST(4, 2, DIM(8, 40, 4), DIM(10, 4, 32)),
	  .dst = { 1, 0, END },
	  .src = { 0, 1, END } },
	{ .name = "three axes in another order",
	  NEST(2, 3, DIM(5, 240, 16), DIM(15, 16, 80), DIM(8, 2, 2)),
	  .dst = { 2, 1, 0, END },
	  .src = { 2, 0, 1, END } },
	{ .name = "a small gap is loaded",
	  NEST(1, 2, DIM(4, 100, 164), DIM(100, 1, 1)),
	  .dst = { 1, 0, END },
	  .src = { 1, 0, END } },
	{ .name = "a larger one is not",
	  NEST(1, 2, DIM(4, 100, 165), DIM(100, 1, 1)),
	  .dst = { 1, 0, END },
	  .src = { 1, END } },
	{ .name = "a small gap after a longer run",
	  NEST(1, 2, DIM(4, 500, 564), DIM(500, 1, 1)),
	  .dst = { 1, 0, END },
	  .src = { 1, 0, END } },
	{ .name = "an eighth of a long run is",
	  NEST(1, 2, DIM(4, 1024, 1152), DIM(1024, 1, 1)),
	  .dst = { 1, 0, END },
	  .src = { 1, 0, END } },
	{ .name = "more is not",
	  NEST(1, 2, DIM(4, 1024, 1153), DIM(1024, 1, 1)),
	  .dst = { 1, 0, END },
	  .src = { 1, END } },
	{ .name = "no gap is written",
	  NEST(1, 2, DIM(4, 101, 100), DIM(100, 1, 1)),
	  .dst = { 1, END },
	  .src = { 1, 0, END } },
	{ .name = "no gap between elements",
	  NEST(1, 2, DIM(4, 100, 200), DIM(100, 1, 2)),
	  .dst = { 1, 0, END },
	  .src = { END } },
	{ .name = "the nearest follows",
	  NEST(1, 3, DIM(2, 200, 150), DIM(2, 100, 110), DIM(100, 1, 1)),
	  .dst = { 2, 1, 0, END },
	  .src = { 2, 1, END } },
	{ .name = "backwards as forwards",
	  NEST(4, 2, DIM(8, 40, -40), DIM(10, 4, -4)),
	  .dst = { 1, 0, END },
	  .src = { 1, 0, END } },
	{ .name = "repeated",
	  NEST(4, 3, DIM(8, 120, 40), DIM(3, 40, 0), DIM(10, 4, 4)),
	  .dst = { 2, 1, 0, END },
	  .src = { 2, 0, END } },
	{ .name = "the source has fewer of a padded dimension",
	  NEST(1, 2, DIM(10, 12, 8), { 12, 1, 1, 2, 8 }),
	  .dst = { 1, 0, END },
	  .src = { 1, 0, END } },
	{ .name = "or one, which makes no run",
	  NEST(1, 2, { 3, 8, 8, 1, 1 }, DIM(8, 1, 1)),
	  .dst = { 1, 0, END },
	  .src = { 1, END } },
	{ .name = "an extent of one is in no run",
	  NEST(1, 2, DIM(1, 8, 8), DIM(8, 1, 1)),
	  .dst = { 1, END },
	  .src = { 1, END } },
};

ParameterizedTestParameters(permute_sides, chains)
{
	return cr_make_param_array(struct sides_row, rows, sizeof rows / sizeof *rows);
}

static void check_chain(const struct sides_row *row, const char *side, const struct permute_chain *chain,
                        const int *expected)
{
	cr_assert_eq(chain->split, -1, "%s: %s: split %d", row->name, side, chain->split);
	for (int i = 0; i < chain->n; i++)
		cr_assert_eq(chain->dim[i], expected[i], "%s: %s: number %d is dimension %d", row->name, side,
		             i, chain->dim[i]);
	cr_assert_eq(expected[chain->n], END, "%s: %s: ends after %d", row->name, side, chain->n);
}

ParameterizedTest(struct sides_row *row, permute_sides, chains)
{
	const struct plan_facts facts = { .align = 16 };
	struct permute_sides sides;

	permute_sides_init(&sides, &row->nest, &facts, PAD_MODE_CONSTANT);
	check_chain(row, "destination", &sides.dst, row->dst);
	check_chain(row, "source", &sides.src, row->src);
}

/* A chain ends before a dimension of which the box has one index, and after the first of which it has a
 * part. */
Test(permute_sides, what_a_box_has_of_a_chain)
{
	const struct loop_nest nest = { .rank = 3,
		                        .element = 4,
		                        .dim = { DIM(6, 320, 320), DIM(8, 40, 40), DIM(10, 4, 4) } };
	const struct permute_chain all = { .n = 3, .dim = { 2, 1, 0 }, .split = -1 };
	const struct {
		struct permute_box box;
		int n, split;
	} cases[] = {
		{ { { 1, 1, 1 } }, 0, -1 },  { { { 6, 8, 1 } }, 0, -1 },  { { { 1, 1, 10 } }, 1, -1 },
		{ { { 6, 1, 10 } }, 1, -1 }, { { { 1, 1, 9 } }, 1, 2 },   { { { 6, 8, 9 } }, 1, 2 },
		{ { { 1, 7, 10 } }, 2, 1 },  { { { 6, 7, 10 } }, 2, 1 },  { { { 1, 8, 10 } }, 2, -1 },
		{ { { 2, 8, 10 } }, 3, 0 },  { { { 6, 8, 10 } }, 3, -1 },
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const struct permute_chain chain = permute_chain_within(&all, &nest, &cases[i].box);

		cr_expect_eq(chain.n, cases[i].n, "box %zu: %d", i, chain.n);
		cr_expect_eq(chain.split, cases[i].split, "box %zu: split %d", i, chain.split);
		for (int d = 0; d < 3; d++)
			cr_expect_eq(permute_chain_has(&chain, d), d >= 3 - cases[i].n,
			             "box %zu: dimension %d", i, d);
	}
}

Test(permute_sides, alignment_is_that_of_what_moves_the_start)
{
	const struct loop_nest nest = { .rank = 3,
		                        .element = 4,
		                        .dim = { DIM(6, 960, -336), DIM(8, 48, 4), DIM(10, 4, 40) } };
	const struct permute_chain none = { .n = 0 }, inner = { .n = 1, .dim = { 2 } },
				   both = { .n = 2, .dim = { 2, 1 } };

	cr_expect_eq(permute_align(&nest, &none, permute_dst_stride, 0, 0, 32), 4);
	cr_expect_eq(permute_align(&nest, &inner, permute_dst_stride, 0, 0, 32), 16);
	cr_expect_eq(permute_align(&nest, &both, permute_dst_stride, 0, 0, 32), 32);
	cr_expect_eq(permute_align(&nest, &both, permute_dst_stride, 8, 0, 32), 8, "the step of a split");
	cr_expect_eq(permute_align(&nest, &both, permute_dst_stride, 0, 20, 32), 4, "the base");
	cr_expect_eq(permute_align(&nest, &both, permute_src_stride, 0, 0, 32), 16, "a negative stride");
}
