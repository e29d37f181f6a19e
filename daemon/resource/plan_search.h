/* SPDX-License-Identifier: Apache-2.0 */
/* The alternatives of a cached plan while jobs try them (kernels/plan/trials.h), and what came of it.
 *
 * A job holds the plan that it was given until it ends. When the search is settled, the plans that lost are
 * freed as soon as no job holds them: of a settled search one alternative is left at most. The chosen plan,
 * the first, belongs to the cache's entry, which outlives the search.
 */
#ifndef DAEMON_RESOURCE_PLAN_SEARCH_H
#define DAEMON_RESOURCE_PLAN_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/plan/trials.h"

/* How a job has used a plan. */
struct plan_run {
	int status;        /* as the engine's */
	uint64_t ns;       /* of the engine's time */
	bool may_be_trial; /* as told to plan_entry_use */
	bool is_measured;  /* ns is the plan's own time */
};

struct plan_search {
	struct trials trials;
	struct {
		struct plan *plan; /* NULL: freed */
		uint32_t jobs;     /* that hold it */
	} of[PLAN_ALTERNATIVES];
};

/* chosen: by plan_init for the same transform and facts. NULL: out of memory. */
struct plan_search *plan_search_new(struct plan *chosen, const struct transform *transform,
                                    const struct plan_facts *facts);
/* NULL is allowed. */
void plan_search_free(struct plan_search *search);

/* A plan for a job to hold: the best so far, or the one to be tried if the job's time can be the plan's. */
const struct plan *plan_search_take(struct plan_search *search, bool may_be_trial);

/* The job has ended; run: NULL if it ran other plans too, or none. */
void plan_search_give_back(struct plan_search *search, const struct plan *plan, const struct plan_run *run);

/* Gives up what has not been tried. */
void plan_search_settle(struct plan_search *search);

static inline const struct plan *plan_search_best(const struct plan_search *search)
{
	return search->of[search->trials.best].plan;
}

#endif
