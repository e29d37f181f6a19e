/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA engine's plans are those that the owner has prepared, and those that the engine itself needs for
 * rounds, for lists of blocks and for moves that share a launch. All are in the engine's cache, so each is
 * made once.
 *
 * Making a plan may take a fraction of a millisecond. It happens when the plan is first needed: for a job on
 * the engine's thread, without the queue's lock (admission.c), and for an explanation on the thread that
 * asks.
 */
#ifndef KERNELS_CUDA_CUDA_PLAN_H
#define KERNELS_CUDA_CUDA_PLAN_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/strategy/plan.h"
#include "kernels/engine.h"
#include "kernels/plan_cache.h"

struct plan_trials;

struct cuda_plans {
	struct plan_cache cache;
	struct plan_facts facts; /* of the device */
	atomic_bool tunes;       /* Alternatives to plans that are used repeatedly are tried. */
	atomic_uint n_trials;    /* under way */
	pthread_mutex_t making;
};

/* The engine's part of a plan. */
struct cuda_plan {
	atomic_bool is_made;
	struct plan plan;

	/* trials.c; under the queue's lock. */
	bool is_settled;            /* There is nothing to try any more. */
	uint64_t first_ns;          /* The first measured run took so long; 0: there was none. */
	struct plan_trials *trials; /* NULL: none are under way. */
	struct plan *fastest;       /* NULL: it is the plan itself, as far as is known. */
};

/* Returns 0 or NO_MEMORY. */
int cuda_plans_init(struct cuda_plans *plans, const struct plan_facts *facts, uint64_t capacity,
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

#endif
