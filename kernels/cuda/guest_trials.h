/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the fastest plans (cuda_plan.h) for moves that a program launches into its own streams, by events
 * around a launch. The time is read when the same layout is launched again, so that nobody waits for it.
 *
 * What a stream capture records is not timed. It takes the fastest plan that is known.
 */
#ifndef KERNELS_CUDA_GUEST_TRIALS_H
#define KERNELS_CUDA_GUEST_TRIALS_H

#include <cuda.h>
#include <pthread.h>

#include "cuda_plan.h"

/* So many launches of a context, each of another layout, are timed at once. */
#define GUEST_TIMED 16

/* A launch whose time is yet to be read. */
struct timed_launch {
	CUevent start;
	CUevent end;
	bool is_launched;         /* Both events are in the stream. */
	struct engine_plan *plan; /* NULL: this one is free. */
	const struct plan *taken; /* what trials_take gave */
};

struct guest_trials {
	int device;           /* its ordinal */
	pthread_mutex_t lock; /* It guards the trials of all plans of the context, too. */
	struct timed_launch timed[GUEST_TIMED];
};

void guest_trials_init(struct guest_trials *trials, int device);

/* The context is current. Zeroed trials are allowed. */
void guest_trials_deinit(struct guest_trials *trials);

/* A launch of a move by itself, from its choice of a plan until it is in the stream. */
struct guest_choice {
	struct engine_plan *plan;
	const struct plan *taken;   /* The launch is by this plan, which stays until guest_trials_launched. */
	bool is_settled;            /* There is nothing to find out. */
	struct timed_launch *timed; /* NULL: it is not timed. */
};

/* Chooses the plan for a launch of a move between two addresses. It is timed only where nothing but the plan
 * decides how long it takes: both are memory of the device, and is_limited, to some multiprocessors, is
 * false. */
void guest_trials_choose(struct guest_trials *trials, struct engine_plan *plan, uint64_t dst, uint64_t src,
                         bool is_limited, CUstream stream, struct guest_choice *ret);

/* Must follow each choice; status is the launch's, 0 if it succeeded. */
void guest_trials_launched(struct guest_trials *trials, const struct guest_choice *choice, CUstream stream,
                           int status);

#endif
