/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA engine's plans are those that the owner has prepared, and those that the engine itself needs for
 * rounds, for lists of blocks and for moves that share a launch. All are in the engine's cache, so each is
 * made once. Trials find out which of several plans for a layout is the fastest.
 *
 * Making a plan may take a fraction of a millisecond. It happens when the plan is first needed: for a job on
 * the engine's thread, without the queue's lock (queue.c), and for an explanation on the thread that asks.
 */
#ifndef KERNELS_CUDA_CUDA_PLAN_H
#define KERNELS_CUDA_CUDA_PLAN_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/strategy/plan.h"
#include "kernels/engine.h"
#include "kernels/plan_cache.h"

struct device;
struct plan_trials;

struct cuda_plans {
	struct plan_cache cache;
	struct plan_facts facts; /* facts of the device */
	atomic_bool tunes;       /* Alternatives to plans that are used repeatedly are tried. */
	atomic_uint n_trials;    /* trials under way */
	pthread_mutex_t making;
};

/* The engine's part of a plan. */
struct cuda_plan {
	atomic_bool is_made;
	struct plan plan;

	/* These are of the trials, under the queue's lock or a guest's, but for is_settled: once it is set,
	 * `fastest` stays what it is, and both are read without a lock. */
	atomic_bool is_settled;     /* There is nothing to try any more. */
	uint64_t first_ns;          /* The first measured run took so long; 0: there was none. */
	struct plan_trials *trials; /* NULL: none are under way. */
	struct plan *fastest;       /* NULL: it is the plan itself, as far as is known. */
};

/* Prepares for plans of the device, of which so many are kept. Returns 0 or NO_MEMORY. */
int cuda_plans_init(struct cuda_plans *plans, const struct device *device, uint64_t capacity,
                    struct error *err);

/* Zeroed plans are allowed. */
void cuda_plans_deinit(struct cuda_plans *plans);

bool cuda_plan_is_made(const struct engine_plan *plan);

/* Returns the plan, and makes it first if it is not made. May be called from any thread. */
const struct plan *cuda_plan(struct engine_plan *plan);

/* These find or make further plans, and return a made plan with a reference for the caller, or NULL if out of
 * memory. */

/* The plan moves the part of a transform that is one round, and converts nothing. */
struct engine_plan *cuda_plan_of_round(struct cuda_plans *plans, const struct transform *part, uint64_t dst,
                                       uint64_t src);

/* The plan moves another plan's transform as one of many moves of a launch, without a map. bits is the
 * bitwise or of the moves' addresses. */
struct engine_plan *cuda_plan_of_member(struct engine_plan *plan, uint64_t bits);

/* The plan moves a list of blocks by another plan's transform, with a kernel for lists if there is one. dst
 * and src are the addresses of elements [0, ..., 0] of block 0 of layer 0. */
struct engine_plan *cuda_plan_of_list(struct engine_plan *plan, const struct engine_blocks *blocks,
                                      uint64_t dst, uint64_t src);

/* ---- Trials -------------------------------------------------------------------------------------------- */

/* Trials find the fastest of several plans while they do the work that there is: they say which one the next
 * run should take, and are told how long the run took. struct trials knows neither plans nor clocks;
 * struct plan_trials has the plans of a layout.
 *
 * Plans are numbers, of which 0 is the one that is predicted to be the fastest. They are tried in order, each
 * until TRIAL_RUNS of its runs have been measured; a plan whose first run is much slower than the best is
 * dropped at once. Then the least median wins. Runs may be under way side by side, but only one at a time is
 * a trial; the others take the best plan so far. On a device that is busy with other work a run is not
 * measured, and so tells nothing: after such a run there is no trial until a run has been measured again.
 */

#define TRIAL_RUNS 3

/* A trial is of one plan. */
struct trial {
	uint64_t ns[TRIAL_RUNS]; /* time of measured run i, at i % TRIAL_RUNS */
	uint32_t n;              /* measured runs */
	bool is_dropped;
};

struct trials {
	uint32_t n;    /* plans */
	uint32_t at;   /* plan that is being tried; n: all have been */
	uint32_t best; /* fastest plan so far */
	bool is_under_way;
	bool is_quiet; /* The last run that ended was measured. */
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

static inline bool trials_are_settled(const struct trials *trials)
{
	return trials->at == trials->n;
}

/* Returns the median of the last TRIAL_RUNS measured runs, or 0 if there are none. */
uint64_t trials_median_ns(const struct trials *trials, uint32_t plan);

/* ---- The trials of a layout: under the queue's lock, or a guest's (guest_trials.h) --------------------- */

/* Returns true, from then on for ever, if there is nothing to try: the fastest plan is known, or runs are too
 * short to be compared. It needs no lock. */
bool trials_are_over(struct engine_plan *plan);

/* Returns the fastest plan, once trials are over. It needs no lock. */
const struct plan *trials_winner(struct engine_plan *plan);

/* Returns the plan for a run by itself, which must end (trials_ran): the best so far, or one to be tried if
 * the run's time can be the plan's. */
const struct plan *trials_take(struct engine_plan *plan, bool may_be_trial);

/* Tells that a run by the plan that trials_take gave has ended. ns is 0 if it was not measured. */
void trials_ran(struct engine_plan *plan, const struct plan *taken, int status, uint64_t ns);

/* Tells that a run by that plan has begun which nobody will measure, and which therefore tells nothing. */
void trials_return(struct engine_plan *plan, const struct plan *taken);

/* Returns whether a run of the plan can tell anything: it has trials, or there is room for them. */
bool trials_may_go_on(const struct engine_plan *plan);

/* Tells whether alternatives should be made for the plan. */
bool trials_are_wanted(const struct engine_plan *plan);

/* trials_make makes them, without the lock, which may take a fraction of a millisecond, and returns NULL if
 * out of memory. trials_start starts the trials with what was made, which it takes over. */
struct plan_trials *trials_make(struct engine_plan *plan);
void trials_start(struct engine_plan *plan, struct plan_trials *made);

#endif
