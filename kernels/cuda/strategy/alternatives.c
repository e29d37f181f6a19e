/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the cheapest plans of which no two resemble each other. */
#include "alternatives.h"

#include <string.h>

#include "permute_plan.h"
#include "planner.h"

/* An alternative takes at most this multiple of the chosen plan's predicted time. The model is off by less
 * for nine rows in ten (EXPERIMENTS.md). */
#define MOST_TIME 1.25

/* Below this predicted time, not counting what a copy of any size takes (predict.c), what surrounds a
 * launch decides more than the plan. */
#define LEAST_NS 12000

bool alternatives_are_worth_trying(const struct plan *chosen, uint64_t bytes, const struct copy_speed *copy)
{
	return plan_predict_ns(chosen, bytes, copy) - plan_predict_ns(chosen, 0, copy) >= LEAST_NS;
}

void alternatives_init(struct alternatives *ret, const struct plan *chosen, const struct transform *transform,
                       const struct plan_facts *facts)
{
	ret->n = 1;
	ret->plan[0] = *chosen;
	tma_plan_alternatives(ret, transform, facts);
}

/* A transform has at most three plans by each strategy other than tiles of many axes: one with a border of
 * its own launch, one with the border in the tiles, and one without a border. */
static bool resembles(const struct tma_route_plan *a, const struct tma_route_plan *b)
{
	if (a->strategy != b->strategy || a->patched != b->patched ||
	    (a->border_rank > 0) != (b->border_rank > 0))
		return false;
	return a->strategy != STRATEGY_permute ||
	       (a->permute.how == b->permute.how && permute_sizes_are_near(&a->sizes, &b->sizes));
}

double alternatives_most(const struct alternatives *list)
{
	return MOST_TIME * list->plan[0].predicted;
}

static void drop(struct alternatives *list, int at)
{
	memmove(&list->plan[at], &list->plan[at + 1], (size_t)(--list->n - at) * sizeof *list->plan);
}

void alternatives_add(struct alternatives *list, const struct plan *plan)
{
	int at;

	if (plan->predicted > alternatives_most(list))
		return;
	for (int i = 0; i < list->n; i++)
		if (resembles(&list->plan[i].tma, &plan->tma) &&
		    (i == 0 || list->plan[i].predicted <= plan->predicted))
			return;
	for (int i = list->n - 1; i > 0; i--)
		if (resembles(&list->plan[i].tma, &plan->tma))
			drop(list, i);
	for (at = list->n; at > 1 && list->plan[at - 1].predicted > plan->predicted; at--)
		continue;
	if (at == PLAN_ALTERNATIVES)
		return;
	if (list->n == PLAN_ALTERNATIVES)
		list->n--;
	memmove(&list->plan[at + 1], &list->plan[at], (size_t)(list->n++ - at) * sizeof *list->plan);
	list->plan[at] = *plan;
}
