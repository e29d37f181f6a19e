/* SPDX-License-Identifier: Apache-2.0 */
/* Which of several plans is the fastest, found out while they do the work that there is: which one the next
 * run should take, and what the time of a run says. Pure: knows neither plans nor clocks.
 *
 * Plans are numbers, 0 being the one that is predicted to be the fastest. They are tried in their order, each
 * until TRIAL_RUNS of its runs have been measured; one whose first run is much slower than the best is
 * dropped at once. Then the least median wins. Runs may be under way side by side, but only one at a time is
 * a trial; the others take the best so far. On a device that is busy with other work a run is not measured,
 * and so tells nothing: after such a run none is a trial until one has been measured again.
 */
#ifndef KERNELS_PLAN_TRIALS_H
#define KERNELS_PLAN_TRIALS_H

#include <stdbool.h>
#include <stdint.h>

#include "alternatives.h"

#define TRIAL_RUNS 3

enum trial_state {
	TRIAL_WAITS,   /* not measured TRIAL_RUNS times yet */
	TRIAL_ENDED,   /* it has been */
	TRIAL_DROPPED, /* its first run was slow, or it failed */
};

/* Of one plan. */
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

/* n >= 1: with one plan there is nothing to try. */
void trials_init(struct trials *trials, uint32_t n);

/* Which plan the next run takes. Each run must end. */
uint32_t trials_next(struct trials *trials);

/* A run of this plan has ended; ns: 0 if it was not measured. */
void trials_end(struct trials *trials, uint32_t plan, uint64_t ns);

/* The same for a run that failed: the plan is not tried again. Plan 0 stays what it is. */
void trials_fail(struct trials *trials, uint32_t plan);

/* Ends the search: the best so far wins. */
void trials_settle(struct trials *trials);

static inline bool trials_are_settled(const struct trials *trials)
{
	return trials->at == trials->n;
}

enum trial_state trials_state(const struct trials *trials, uint32_t plan);

/* Of the last TRIAL_RUNS measured runs; 0: there are none. */
uint64_t trials_median_ns(const struct trials *trials, uint32_t plan);

#endif
