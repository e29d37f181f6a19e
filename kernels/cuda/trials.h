/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out which of several plans is the fastest while they do the work that there is: it says which one the
 * next run should take, and is told how long the run took. struct trials knows neither plans nor clocks;
 * struct plan_trials has the plans of a layout.
 *
 * Plans are numbers, of which 0 is the one that is predicted to be the fastest. They are tried in order, each
 * until TRIAL_RUNS of its runs have been measured; a plan whose first run is much slower than the best is
 * dropped at once. Then the least median wins. Runs may be under way side by side, but only one at a time is
 * a trial; the others take the best plan so far. On a device that is busy with other work a run is not
 * measured, and so tells nothing: after such a run there is no trial until a run has been measured again.
 */
#ifndef KERNELS_CUDA_TRIALS_H
#define KERNELS_CUDA_TRIALS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/strategy/alternatives.h"

#define TRIAL_RUNS 3

enum trial_state {
	TRIAL_WAITS,   /* not measured TRIAL_RUNS times yet */
	TRIAL_ENDED,   /* it has been measured so often */
	TRIAL_DROPPED, /* its first run was slow, or it failed */
};

/* A trial is of one plan. */
struct trial {
	uint64_t ns[TRIAL_RUNS]; /* of measured run i at i % TRIAL_RUNS */
	uint32_t n;              /* measured runs */
	bool is_dropped;
};

struct trials {
	uint32_t n;    /* plans */
	uint32_t at;   /* the one that is being tried; n: all have been */
	uint32_t best; /* so far */
	bool is_under_way;
	bool is_quiet; /* the last run that ended was measured */
	struct trial of[PLAN_ALTERNATIVES];
};

/* Starts trials of n >= 1 plans; with one plan there is nothing to try. */
void trials_init(struct trials *trials, uint32_t n);

/* Returns which plan the next run takes. Each run must end. */
uint32_t trials_next(struct trials *trials);

/* Tells that a run of this plan has ended. ns is its time, or 0 if it was not measured. */
void trials_end(struct trials *trials, uint32_t plan, uint64_t ns);

/* Tells that a run has failed: its plan is not tried again. Plan 0 stays what it is. */
void trials_fail(struct trials *trials, uint32_t plan);

/* Ends the search: the best so far wins. */
void trials_settle(struct trials *trials);

static inline bool trials_are_settled(const struct trials *trials)
{
	return trials->at == trials->n;
}

enum trial_state trials_state(const struct trials *trials, uint32_t plan);

/* Returns the median of the last TRIAL_RUNS measured runs, or 0 if there are none. */
uint64_t trials_median_ns(const struct trials *trials, uint32_t plan);

/* ---- The trials of a layout: under the queue's lock ---------------------------------------------------- */

struct cuda_plans;
struct engine_plan;
struct plan_trials;

/* Layouts whose fastest plan is looked for at a time. */
#define TRIALS_MOST 64

/* The plan for a run by itself, which must end (trials_ran): the best so far, or one to be tried if the run's
 * time can be the plan's. */
const struct plan *trials_take(struct engine_plan *plan, bool may_be_trial);

/* A run by the plan that trials_take gave has ended. ns: 0: it was not measured. */
void trials_ran(struct engine_plan *plan, const struct plan *taken, int status, uint64_t ns);

/* Tells whether alternatives should be made for the plan. */
bool trials_are_wanted(const struct engine_plan *plan);

/* Makes them, without the lock, which may take a fraction of a millisecond; and starts the trials with what
 * was made, which it takes over. NULL: out of memory. */
struct plan_trials *trials_make(struct engine_plan *plan);
void trials_start(struct engine_plan *plan, struct plan_trials *made);

/* Frees what the trials of the plan have left. */
void trials_drop(struct engine_plan *plan);

#endif
