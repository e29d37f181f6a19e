/* SPDX-License-Identifier: Apache-2.0 */
/* From the numbers of trials to plans, and who holds them. */
#include "plan_search.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "proto/status.h"

static bool copy_plans(struct plan_search *search, const struct alternatives *list)
{
	for (int i = 1; i < list->n; i++) {
		search->of[i].plan = malloc(sizeof *list->plan);
		if (!search->of[i].plan)
			return false;
		*search->of[i].plan = list->plan[i];
	}
	trials_init(&search->trials, (uint32_t)list->n);
	return true;
}

struct plan_search *plan_search_new(struct plan *chosen, const struct transform *transform,
                                    const struct plan_facts *facts)
{
	struct plan_search *search = calloc(1, sizeof *search);
	struct alternatives *list = malloc(sizeof *list); /* too large for the stack */
	bool has_plans = false;

	if (search && list) {
		alternatives_init(list, chosen, transform, facts);
		search->of[0].plan = chosen;
		has_plans = copy_plans(search, list);
	}
	free(list);
	if (has_plans)
		return search;
	plan_search_free(search);
	return NULL;
}

void plan_search_free(struct plan_search *search)
{
	if (!search)
		return;
	for (int i = 1; i < PLAN_ALTERNATIVES; i++)
		free(search->of[i].plan);
	free(search);
}

const struct plan *plan_search_take(struct plan_search *search, bool may_be_trial)
{
	const uint32_t i = may_be_trial ? trials_next(&search->trials) : search->trials.best;

	search->of[i].jobs++;
	return search->of[i].plan;
}

/* The plans that lost, as far as no job holds them. */
static void free_losers(struct plan_search *search)
{
	for (uint32_t i = 1; i < search->trials.n; i++)
		if (i != search->trials.best && search->of[i].jobs == 0) {
			free(search->of[i].plan);
			search->of[i].plan = NULL;
		}
}

static uint32_t place_of(const struct plan_search *search, const struct plan *plan)
{
	uint32_t i = 0;

	while (i < search->trials.n && search->of[i].plan != plan)
		i++;
	assert(i < search->trials.n);
	return i;
}

/* A canceled run tells nothing of the plan. One that cannot be measured tells nothing at all, but a job with
 * the trial may never have been submitted. */
void plan_search_give_back(struct plan_search *search, const struct plan *plan, const struct plan_run *run)
{
	const uint32_t i = place_of(search, plan);

	if (search->of[i].jobs > 0) /* those of plans that are never freed need not be counted */
		search->of[i].jobs--;
	if (run && run->status == STATUS_DEVICE)
		trials_fail(&search->trials, i);
	else if ((run && run->may_be_trial) || i == search->trials.at)
		trials_end(&search->trials, i, run && run->is_measured ? run->ns : 0);
	if (trials_are_settled(&search->trials))
		free_losers(search);
}

void plan_search_settle(struct plan_search *search)
{
	trials_settle(&search->trials);
	free_losers(search);
}
