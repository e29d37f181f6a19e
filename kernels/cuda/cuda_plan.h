/* SPDX-License-Identifier: Apache-2.0 */
/* The plans of the CUDA engine: those that the owner has prepared, and those that the engine itself needs for
 * rounds, for lists of blocks and for moves that share a launch. All of them are in the engine's plan cache,
 * so each is made once. Trials find out which of several plans for a layout is the fastest.
 *
 * Making a plan may take a fraction of a millisecond. It is done when the plan is first needed: for a job on
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
	struct plan_facts facts; /* facts about the device */
	atomic_bool tunes;       /* Alternatives to plans that are used repeatedly are tried. */
	atomic_uint n_trials;    /* number of plans with trials under way */
	pthread_mutex_t making;  /* held while a plan that has been made is stored */
};

/* The CUDA engine's own part of an engine_plan. */
struct cuda_plan {
	atomic_bool is_made;
	struct plan plan;

	/* The fields from here on belong to the trials. The queue's lock guards them or, for a program's own
	 * streams, that of guest_trials.h. Once is_settled is set, `fastest` no longer changes, and both are
	 * read without a lock. */
	atomic_bool is_settled;     /* There is nothing left to try. */
	uint64_t first_ns;          /* time of the last run that was measured before the trials; 0: none */
	struct plan_trials *trials; /* NULL: no trials are under way */
	struct plan *fastest;       /* NULL: the plan itself is the fastest, as far as is known */
};

/* Prepares to keep up to `capacity` plans for the device. Returns 0 or NO_MEMORY. */
int cuda_plans_init(struct cuda_plans *plans, const struct device *device, uint64_t capacity,
                    struct error *err);

/* Frees the cache; zeroed plans are allowed. */
void cuda_plans_deinit(struct cuda_plans *plans);

bool cuda_plan_is_made(const struct engine_plan *plan);

/* Returns the plan, which is made first if need be. May be called from any thread. */
const struct plan *cuda_plan(struct engine_plan *plan);

/* These find or make further plans. They return a plan that is made, with a reference for the caller, or NULL
 * if there is no memory. */

/* Returns a plan that moves one round's part of a transform between these addresses. The part must not
 * convert. */
struct engine_plan *cuda_plan_of_round(struct cuda_plans *plans, const struct transform *part, uint64_t dst,
                                       uint64_t src);

/* Returns a plan that moves another plan's transform as one of many moves of a launch, without a tensor map.
 * bits is the bitwise or of the moves' addresses. */
struct engine_plan *cuda_plan_of_member(struct engine_plan *plan, uint64_t bits);

/* Returns a plan that moves a list of blocks by another plan's transform, with a kernel for lists if there is
 * one. dst and src are the addresses of element [0, ..., 0] of block 0 of layer 0. */
struct engine_plan *cuda_plan_of_list(struct engine_plan *plan, const struct engine_blocks *blocks,
                                      uint64_t dst, uint64_t src);

/* ---- Trials -------------------------------------------------------------------------------------------- */

/* Trials find the fastest of several plans while real work is being done: they say which plan the next run
 * should use, and are told how long the run took. struct trials knows neither plans nor clocks; struct
 * plan_trials has the plans of a layout.
 *
 * Plans are numbered, and plan 0 is predicted to be the fastest. They are tried in order, each until
 * TRIAL_RUNS of its runs have been measured; a plan whose first run is much slower than the best is dropped
 * at once. The plan with the least median wins. Several runs may be under way at a time, but only one of them
 * is a trial; the others use the best plan so far. A run on a device that is busy with other work is not
 * measured. After such a run there is no trial until a run has been measured again.
 */

#define TRIAL_RUNS 3

/* The measurements of one plan. */
struct trial {
	uint64_t ns[TRIAL_RUNS]; /* time of measured run i, at index i % TRIAL_RUNS */
	uint32_t n;              /* number of measured runs */
	bool is_dropped;
};

struct trials {
	uint32_t n;        /* number of plans */
	uint32_t at;       /* the plan that is being tried; n: all have been tried */
	uint32_t best;     /* the fastest plan so far */
	bool is_under_way; /* A run is a trial of plan `at`. */
	bool is_quiet;     /* The run that ended last was measured. */
	struct trial of[PLAN_ALTERNATIVES];
};

/* Starts trials of n plans, n >= 1. With one plan there is nothing to try. */
void trials_init(struct trials *trials, uint32_t n);

/* Returns the plan that the next run is to use. trials_end or trials_fail must follow for each run. */
uint32_t trials_next(struct trials *trials);

/* Notes that a run by this plan has ended. ns is its time, or 0 if it was not measured. */
void trials_end(struct trials *trials, uint32_t plan, uint64_t ns);

/* Notes that a run by this plan has failed; the plan is not tried again. Plan 0 remains in use even so. */
void trials_fail(struct trials *trials, uint32_t plan);

static inline bool trials_are_settled(const struct trials *trials)
{
	return trials->at == trials->n;
}

/* Returns the median time of the last TRIAL_RUNS measured runs of the plan, or 0 if there are none. */
uint64_t trials_median_ns(const struct trials *trials, uint32_t plan);

/* ---- The trials of a layout: under the queue's lock, or a guest's (guest_trials.h) --------------------- */

/* Returns whether there is nothing to try: the fastest plan is known, or runs are too short to be compared.
 * Once it has returned true, it always does. Needs no lock. */
bool trials_are_over(struct engine_plan *plan);

/* Returns the fastest plan. trials_are_over must have returned true. Needs no lock. */
const struct plan *trials_winner(struct engine_plan *plan);

/* Returns the plan that a run of a single move is to use: the one to be tried next if may_be_trial, otherwise
 * the best so far. may_be_trial says that the run's time will depend on nothing but the plan. trials_ran or
 * trials_return must follow. */
const struct plan *trials_take(struct engine_plan *plan, bool may_be_trial);

/* Notes that a run by a plan of trials_take has ended. ns is its time, or 0 if it was not measured. */
void trials_ran(struct engine_plan *plan, const struct plan *taken, int status, uint64_t ns);

/* Notes that nobody will measure a run by a plan of trials_take, so that the run counts for nothing. */
void trials_return(struct engine_plan *plan, const struct plan *taken);

/* Returns whether measuring a run of the plan is of use: the plan has trials, or there is room for more
 * trials. */
bool trials_may_go_on(const struct engine_plan *plan);

/* Returns whether alternatives to the plan should be made now. */
bool trials_are_wanted(const struct engine_plan *plan);

/* trials_make makes alternatives to a plan. It needs no lock, may take a fraction of a millisecond, and
 * returns NULL if there is no memory. trials_start takes what trials_make has returned, and starts trials
 * with it unless there are trials already or there is nothing left to try. */
struct plan_trials *trials_make(struct engine_plan *plan);
void trials_start(struct engine_plan *plan, struct plan_trials *made);

#endif
