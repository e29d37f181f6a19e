/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that tiles of many axes write every byte of the destination once, each from the right byte of the
 * source, with random boxes and with those that the planner chooses. */
#include <criterion/criterion.h>

#include "kernels/cuda/strategy/plan.h"
#include "tests/gpu/random_tile.h"
#include "tests/support/permute_walk.h"
#include "tests/support/tap.h"

#define CASES 60000

/* Properties that random tiles have, each of which has to occur often enough to be tested. */
enum {
	HAS_ELEMENTS,
	HAS_WORDS,
	HAS_WORDS_OF_TWO,
	HAS_ONE_WORD,
	HAS_TWO_WORDS,
	HAS_UNALIGNED_WORDS,
	HAS_ALIGNED_WORDS,
	HAS_ALIGNED_PAIRS,
	HAS_PIECES,
	HAS_PADDED_PIECES,
	HAS_SQUARES,
	HAS_MARGIN,
	HAS_EXACT,
	HAS_CUT,
	HAS_STACK,
	HAS_STACK_SPLIT,
	HAS_BACK,
	HAS_BACK_ROWS,
	HAS_BACK_PARTS,
	HAS_BACK_INDICES,
	HAS_SLOT_LEAD,
	HAS_RAGGED,
	HAS_SPLIT_ROW,
	HAS_LIMITED_LOAD,
	HAS_LIMITED_ROW,
	HAS_PADDED,
	HAS_PADDED_SPLIT,
	HAS_PADDED_MARGIN,
	HAS_GAP,
	HAS_SLOT_PADS,
	HAS_WHOLE_LINES,
	FEATURES
};

static const char *const feature_names[FEATURES] = {
	[HAS_ELEMENTS] = "elements",
	[HAS_WORDS] = "words of four elements",
	[HAS_WORDS_OF_TWO] = "words of two",
	[HAS_ONE_WORD] = "words one at a time",
	[HAS_TWO_WORDS] = "words two at a time",
	[HAS_UNALIGNED_WORDS] = "words at any byte",
	[HAS_ALIGNED_WORDS] = "aligned words",
	[HAS_ALIGNED_PAIRS] = "aligned pairs of words",
	[HAS_PIECES] = "pieces",
	[HAS_PADDED_PIECES] = "pieces of padded tensors",
	[HAS_SQUARES] = "squares",
	[HAS_MARGIN] = "a margin",
	[HAS_EXACT] = "exact ends",
	[HAS_CUT] = "cut rows",
	[HAS_STACK] = "a stack",
	[HAS_STACK_SPLIT] = "a part of a stack",
	[HAS_BACK] = "a dimension read backwards",
	[HAS_BACK_ROWS] = "rows that step backwards in the slots",
	[HAS_BACK_PARTS] = "parts of the split that do",
	[HAS_BACK_INDICES] = "indices of it that do",
	[HAS_SLOT_LEAD] = "parts of which the last is short",
	[HAS_RAGGED] = "ragged rows",
	[HAS_SPLIT_ROW] = "rows from index to index of the destination's split",
	[HAS_LIMITED_LOAD] = "loads of it",
	[HAS_LIMITED_ROW] = "rows of the source's split",
	[HAS_PADDED] = "pads",
	[HAS_PADDED_SPLIT] = "a padded split",
	[HAS_PADDED_MARGIN] = "a margin of a padded split",
	[HAS_GAP] = "a gap",
	[HAS_SLOT_PADS] = "pads between slots",
	[HAS_WHOLE_LINES] = "whole lines",
};

static void count_features(const struct tma_route_plan *tma, long *n)
{
	const struct permute_args *args = &tma->permute;
	const bool padded = args->padded && args->load_by != PERMUTE_BY_NONE;
	const uint32_t words = args->how == PERMUTE_WORDS ? (tma->element << args->log_group) / 4 : 0;

	n[HAS_ELEMENTS] += args->how == PERMUTE_ELEMENTS;
	n[HAS_WORDS] += args->how == PERMUTE_WORDS && tma->element == 1;
	n[HAS_WORDS_OF_TWO] += args->how == PERMUTE_WORDS && tma->element == 2;
	n[HAS_ONE_WORD] += words == 1;
	n[HAS_TWO_WORDS] += words == 2;
	n[HAS_UNALIGNED_WORDS] += words == 2 && args->aligned < 4;
	n[HAS_ALIGNED_WORDS] += words == 2 && args->aligned == 4;
	n[HAS_ALIGNED_PAIRS] += words == 2 && args->aligned == 8;
	n[HAS_PIECES] += args->how == PERMUTE_PIECES;
	n[HAS_PADDED_PIECES] += args->how == PERMUTE_PIECES && args->padded;
	n[HAS_SQUARES] += args->how == PERMUTE_SQUARES;
	n[HAS_MARGIN] += args->margin > 0;
	n[HAS_EXACT] += args->exact;
	n[HAS_CUT] += args->cut > 0;
	n[HAS_STACK] += args->stack_load < args->n_load;
	n[HAS_STACK_SPLIT] += args->stack_split != PERMUTE_NONE;
	n[HAS_BACK] += args->back;
	n[HAS_BACK_ROWS] += args->row_base > args->slot_lead;
	n[HAS_BACK_PARTS] += args->back_part > 1;
	n[HAS_BACK_INDICES] += args->back_part == 1;
	n[HAS_SLOT_LEAD] += args->slot_lead > 0;
	n[HAS_RAGGED] += args->ragged;
	n[HAS_SPLIT_ROW] += args->split_row != PERMUTE_NONE;
	n[HAS_LIMITED_LOAD] += args->limited_load != PERMUTE_NONE;
	n[HAS_LIMITED_ROW] += args->limited_row != PERMUTE_NONE;
	n[HAS_PADDED] += args->padded;
	n[HAS_PADDED_SPLIT] += padded;
	n[HAS_PADDED_MARGIN] += padded && args->margin > 0;
	n[HAS_GAP] += args->load_gap > 0;
	n[HAS_SLOT_PADS] += args->pad_shift < 31;
	n[HAS_WHOLE_LINES] += args->phase_mask == 127;
}

static struct plan_facts facts_of(const struct oracle_case *c)
{
	const uint64_t bits = c->dst_offset | c->src_offset | 16;

	return (struct plan_facts){ .threads = 132,
		                    .align = (uint32_t)(bits & -bits),
		                    .dst_phase = c->dst_offset % PLAN_PHASE,
		                    .src_phase = c->src_offset % PLAN_PHASE };
}

static void draw(uint64_t seed, struct oracle_case *c, struct transform *t)
{
	struct error err;

	oracle_random_case(seed, c);
	cr_assert_eq(transform_init(t, &c->spec, &err), 0, "seed %lu: %s", (unsigned long)seed, err.message);
}

static void check(uint64_t seed, const struct oracle_case *c, const struct plan *plan)
{
	char text[2000], what[300];

	if (permute_walk(&plan->tma, c, what, sizeof what))
		return;
	oracle_case_text(c, text, sizeof text);
	cr_assert(false, "seed %lu: %s: %s", (unsigned long)seed, what, text);
}

Test(permute_walk, random_boxes, .timeout = 600)
{
	const long cases = tap_portion(CASES);
	long n[FEATURES] = { 0 };

	for (uint64_t seed = 1; seed <= (uint64_t)cases; seed++) {
		uint64_t state = seed;
		struct plan_facts facts;
		struct oracle_case c;
		struct transform t;
		struct plan plan;

		draw(seed, &c, &t);
		facts = facts_of(&c);
		if (!random_tile_plan(&state, &t, &facts, &plan))
			continue;
		count_features(&plan.tma, n);
		check(seed, &c, &plan);
	}
	for (int i = 0; i < FEATURES; i++)
		cr_expect(cases < CASES / 2 || n[i] > 0, "%s: none of %ld", feature_names[i], cases);
}

/* Every transform gets a plan of some strategy. */
Test(permute_walk, plans, .timeout = 600)
{
	const long cases = tap_portion(CASES);
	long taken = 0, bordered = 0;

	for (uint64_t seed = 1; seed <= (uint64_t)cases; seed++) {
		struct plan_facts facts;
		struct oracle_case c;
		struct transform t;
		struct plan plan;

		draw(seed, &c, &t);
		facts = facts_of(&c);
		plan_init(&plan, &t, &facts);
		cr_assert(t.count == 0 || plan.tma.strategy != STRATEGY_none || plan.tma.border_rank > 0,
		          "seed %lu: nothing is moved", (unsigned long)seed);
		if (plan.tma.strategy != STRATEGY_permute)
			continue;
		taken++;
		bordered += plan.tma.border_rank > 0;
		check(seed, &c, &plan);
	}
	cr_assert_geq(taken, cases / 10, "%ld of %ld", taken, cases);
	cr_expect(cases < CASES / 10 || bordered > 0, "none of %ld has a border", cases);
}
