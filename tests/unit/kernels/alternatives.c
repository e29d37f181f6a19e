/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the alternatives to a plan: the chosen plan comes first and then the others from the cheapest, none
 * of them is much dearer, and no two are alike. Tiles of many axes among them move the right bytes here;
 * tests/gpu/transforms.c tests that of all alternatives. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/strategy/plan.h"
#include "kernels/cuda/strategy/permute_plan.h"
#include "tests/support/permute_walk.h"
#include "tests/support/tap.h"
#include "tma_rows.h"

#define CASES 20000

/* ---- Which there are ----------------------------------------------------------------------------------- */

struct many_case {
	struct tma_row row;
	bool has_others;
	enum strategy_id other; /* strategy that at least one alternative has */
};

static struct many_case many_cases[] = {
	{ .row = { .name = "six short axes",
	           .dtype = DTYPE_FLOAT16,
	           .rank = 6,
	           .src = { 16, 12, 10, 6, 10, 14 },
	           .perm = { 5, 1, 3, 0, 4, 2 } },
	  .has_others = true,
	  .other = STRATEGY_permute },
	{ .row = { .name = "a transpose of whole chunks",
	           .dtype = DTYPE_FLOAT32,
	           .rank = 2,
	           .src = { 4096, 4096 },
	           .perm = { 1, 0 } },
	  .has_others = true,
	  .other = STRATEGY_permute },
	{ .row = { .name = "long runs in bulk",
	           .dtype = DTYPE_FLOAT32,
	           .rank = 2,
	           .src = { 8192, 1552 },
	           .strides = { 1600, 1 },
	           .straight = true },
	  .has_others = true,
	  .other = STRATEGY_copy },
	{ .row = { .name = "one run",
	           .dtype = DTYPE_UINT8,
	           .rank = 2,
	           .src = { 4096, 4096 },
	           .straight = true } },
	{ .row = { .name = "a fill",
	           .dtype = DTYPE_FLOAT32,
	           .rank = 2,
	           .src = { 0, 64 },
	           .before = { 64, 0 },
	           .straight = true,
	           .value = 3 } },
};

ParameterizedTestParameters(alternatives, which)
{
	return cr_make_param_array(struct many_case, many_cases, sizeof many_cases / sizeof *many_cases);
}

static bool has_route(const struct alternatives *list, enum strategy_id strategy)
{
	for (int i = 1; i < list->n; i++)
		if (list->plan[i].tma.strategy == strategy)
			return true;
	return false;
}

static struct plan_facts facts_of(uint64_t dst_phase, uint64_t src_phase)
{
	const uint64_t bits = dst_phase | src_phase | 16;

	return (struct plan_facts){ .threads = 132,
		                    .align = (uint32_t)(bits & -bits),
		                    .dst_phase = dst_phase % PLAN_PHASE,
		                    .src_phase = src_phase % PLAN_PHASE };
}

ParameterizedTest(struct many_case *c, alternatives, which)
{
	struct plan_facts facts = facts_of(0, 0);
	struct alternatives *list = malloc(sizeof *list);
	struct transform t;
	struct plan plan;

	tma_row_plan(&c->row, false, &t, &plan);
	alternatives_init(list, &plan, &t, &facts);
	cr_assert_eq(list->n > 1, c->has_others, "%s: %d", c->row.name, list->n);
	cr_assert(!c->has_others || has_route(list, c->other), "%s", c->row.name);
	facts.listed = true;
	alternatives_init(list, &plan, &t, &facts);
	cr_expect_eq(list->n, 1, "%s: of a list", c->row.name);
	facts.listed = false;
	facts.spread = true;
	alternatives_init(list, &plan, &t, &facts);
	cr_expect_eq(list->n, 1, "%s: of many", c->row.name);
	free(list);
}

/* An H200 copies this in 12 us, at 4.27 MB in a microsecond. */
Test(alternatives, long_runs_are_worth_it)
{
	const struct copy_speed copy = { .bytes_per_ns = 4270, .fixed_ns = 8000 }, unknown = { 0 };
	struct plan plan = { .predicted = 1 };

	cr_expect(!alternatives_are_worth_trying(&plan, 51200000, &copy));
	cr_expect(alternatives_are_worth_trying(&plan, 51300000, &copy));
	plan.predicted = 2;
	cr_expect(!alternatives_are_worth_trying(&plan, 25600000, &copy));
	cr_expect(alternatives_are_worth_trying(&plan, 25700000, &copy));
	cr_expect(!alternatives_are_worth_trying(&plan, 1 << 30, &unknown));
	plan.predicted = 0;
	cr_expect(!alternatives_are_worth_trying(&plan, 1 << 30, &copy), "the CPU's");
}

/* ---- Their order --------------------------------------------------------------------------------------- */

static struct plan with_cost(enum strategy_id strategy, double tile, double cost)
{
	return (struct plan){ .predicted = cost,
		              .tma = { .strategy = strategy, .sizes = { tile, 256, 256 } } };
}

/* Expects n plans with these costs. */
static void expect_costs(const struct alternatives *list, int n, const double *costs)
{
	cr_assert_eq(list->n, n, "%d", list->n);
	for (int i = 0; i < n; i++)
		cr_assert_float_eq(list->plan[i].predicted, costs[i], 1e-9, "%d: %g", i,
		                   list->plan[i].predicted);
}

Test(alternatives, are_sorted_and_different)
{
	static struct alternatives list;
	const struct {
		enum strategy_id strategy;
		double tile, cost;
		int n;
		double costs[PLAN_ALTERNATIVES];
	} steps[] = {
		{ STRATEGY_permute, 1000, 1.10, 1, { 1 } },              /* resembles the first plan */
		{ STRATEGY_permute, 1300, 0.90, 1, { 1 } },              /* so does this, though cheaper */
		{ STRATEGY_permute, 2000, 1.20, 2, { 1, 1.2 } },         /* has another size */
		{ STRATEGY_permute, 2500, 1.22, 2, { 1, 1.2 } },         /* resembles it, but is dearer */
		{ STRATEGY_permute, 2600, 1.15, 2, { 1, 1.15 } },        /* resembles it, and is cheaper */
		{ STRATEGY_copy, 0, 1.26, 2, { 1, 1.15 } },              /* costs too much */
		{ STRATEGY_copy, 0, 1.25, 3, { 1, 1.15, 1.25 } },        /* costs just little enough */
		{ STRATEGY_short, 0, 1.12, 4, { 1, 1.12, 1.15, 1.25 } }, /* goes before dearer plans */
		{ STRATEGY_permute, 500, 1.11, 5, { 1, 1.11, 1.12, 1.15, 1.25 } },
		{ STRATEGY_permute, 4500, 1.24, 6, { 1, 1.11, 1.12, 1.15, 1.24, 1.25 } },
		{ STRATEGY_permute, 250, 1.13, 7, { 1, 1.11, 1.12, 1.13, 1.15, 1.24, 1.25 } },
		{ STRATEGY_permute, 125, 1.14, 8, { 1, 1.11, 1.12, 1.13, 1.14, 1.15, 1.24, 1.25 } },
		{ STRATEGY_permute, 60, 1.16, 9, { 1, 1.11, 1.12, 1.13, 1.14, 1.15, 1.16, 1.24, 1.25 } },
		{ STRATEGY_permute,
		  30,
		  1.17,
		  10,
		  { 1, 1.11, 1.12, 1.13, 1.14, 1.15, 1.16, 1.17, 1.24, 1.25 } },
		/* There is no room for this plan. */
		{ STRATEGY_permute,
		  9000,
		  1.25,
		  10,
		  { 1, 1.11, 1.12, 1.13, 1.14, 1.15, 1.16, 1.17, 1.24, 1.25 } },
		/* This makes the last plan drop out. */
		{ STRATEGY_gather, 0, 1.23, 10, { 1, 1.11, 1.12, 1.13, 1.14, 1.15, 1.16, 1.17, 1.23, 1.24 } },
		/* This replaces two plans that it resembles. */
		{ STRATEGY_permute, 3400, 1.01, 9, { 1, 1.01, 1.11, 1.12, 1.13, 1.14, 1.16, 1.17, 1.23 } },
	};

	list.n = 1;
	list.plan[0] = with_cost(STRATEGY_permute, 1000, 1);
	for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
		const struct plan plan = with_cost(steps[i].strategy, steps[i].tile, steps[i].cost);

		alternatives_add(&list, &plan);
		expect_costs(&list, steps[i].n, steps[i].costs);
	}
}

/* Two plans are different if one of their three sizes differs, how their rows are found, or where the border
 * is written. */
Test(alternatives, differ_in_one_thing)
{
	static struct alternatives list;
	struct plan plans[6];

	for (int i = 0; i < 6; i++)
		plans[i] = with_cost(STRATEGY_permute, 256, 1 + i * 0.01);
	plans[1].tma.sizes.tile *= 1.34;
	plans[2].tma.sizes.load /= 1.34;
	plans[3].tma.sizes.row *= 1.34;
	plans[4].tma.permute.how = PERMUTE_PIECES;
	plans[5].tma.border_rank = 1;
	list.n = 1;
	list.plan[0] = plans[0];
	for (int i = 1; i < 6; i++) {
		alternatives_add(&list, &plans[i]);
		cr_expect_eq(list.n, i + 1, "%d", i);
	}
}

/* ---- Random transforms --------------------------------------------------------------------------------- */

/* Returns whether both plans are tiles of many axes of the same kind. */
static bool are_alike(const struct plan *a, const struct plan *b)
{
	return a->tma.strategy == STRATEGY_permute && b->tma.strategy == STRATEGY_permute &&
	       (a->tma.border_rank > 0) == (b->tma.border_rank > 0) &&
	       a->tma.permute.how == b->tma.permute.how &&
	       permute_sizes_are_near(&a->tma.sizes, &b->tma.sizes);
}

static void check_list(uint64_t seed, const struct alternatives *list, const struct plan *chosen)
{
	cr_assert(!memcmp(&list->plan[0], chosen, sizeof *chosen), "seed %lu", (unsigned long)seed);
	for (int i = 1; i < list->n; i++) {
		cr_assert_leq(list->plan[i].predicted, 1.25 * chosen->predicted, "seed %lu",
		              (unsigned long)seed);
		cr_assert(i == 1 || list->plan[i].predicted >= list->plan[i - 1].predicted, "seed %lu",
		          (unsigned long)seed);
		for (int k = 0; k < i; k++)
			cr_assert(!are_alike(&list->plan[i], &list->plan[k]), "seed %lu: %d and %d",
			          (unsigned long)seed, i, k);
	}
}

Test(alternatives, random_transforms, .timeout = 600)
{
	const long cases = tap_portion(CASES);
	struct alternatives *list = malloc(sizeof *list);
	long walked = 0, others = 0;

	for (uint64_t seed = 1; seed <= (uint64_t)cases; seed++) {
		struct plan_facts facts;
		struct oracle_case c;
		struct transform t;
		struct plan plan;
		char text[2000], what[300];
		struct error err;

		oracle_random_case(seed, &c);
		cr_assert_eq(transform_init(&t, &c.spec, &err), 0, "seed %lu", (unsigned long)seed);
		facts = facts_of(c.dst_offset, c.src_offset);
		plan_init(&plan, &t, &facts);
		alternatives_init(list, &plan, &t, &facts);
		check_list(seed, list, &plan);
		for (int i = 1; i < list->n; i++) {
			const struct tma_route_plan *tma = &list->plan[i].tma;

			others++;
			if (tma->strategy != STRATEGY_permute)
				continue;
			walked++;
			oracle_case_text(&c, text, sizeof text);
			cr_assert(permute_walk(tma, &c, what, sizeof what),
			          "seed %lu, alternative %d: %s: %s", (unsigned long)seed, i, what, text);
		}
	}
	free(list);
	cr_assert_geq(walked, cases / 20, "%ld of %ld", walked, cases);
	cr_assert_gt(others, walked);
}
