/* SPDX-License-Identifier: Apache-2.0 */
/* Other plans for a transform: predicted to be little slower than the one that plan_init chose, and different
 * enough that a device may find them faster. Pure; the planner is run again for them, so that a plan that is
 * used once costs nothing more.
 */
#ifndef KERNELS_CUDA_STRATEGY_ALTERNATIVES_H
#define KERNELS_CUDA_STRATEGY_ALTERNATIVES_H

#include "plan.h"

#define PLAN_ALTERNATIVES 10

struct alternatives {
	int n;                               /* at least 1 */
	struct plan plan[PLAN_ALTERNATIVES]; /* the chosen one, then the others, cheapest predicted first */
};

/* chosen: by plan_init, for the same transform and facts. It has no alternatives if it fills,
 * is the driver's copy, or is for many moves or blocks of one launch. */
void alternatives_init(struct alternatives *ret, const struct plan *chosen, const struct transform *transform,
                       const struct plan_facts *facts);

/* Whether a run of the chosen plan takes long enough to be compared with others. */
bool alternatives_are_worth_trying(const struct plan *chosen, uint64_t bytes, const struct copy_speed *copy);

/* For the planner: returns the greatest predicted time at which a plan is worth adding. */
double alternatives_most(const struct alternatives *list);

/* For the planner: takes a copy of a plan whose cost is predicted, unless it costs much more than the chosen
 * one or resembles one that costs less. */
void alternatives_add(struct alternatives *list, const struct plan *plan);

#endif
