/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the fastest plans (cuda_plan.h) for moves that a program launches into its own streams. Events are
 * recorded before and after a launch. The time between them is read when the same layout is launched again,
 * so that nobody waits for it.
 *
 * A launch that is being captured is not timed; it uses the fastest plan that is known.
 */
#ifndef KERNELS_CUDA_GUEST_TRIALS_H
#define KERNELS_CUDA_GUEST_TRIALS_H

#include <cuda.h>
#include <pthread.h>

#include "cuda_plan.h"

/* Maximum number of launches of a context that are timed at once, each of a different layout. */
#define GUEST_TIMED 16

/* A launch whose time has not been read yet. */
struct timed_launch {
	CUevent start;
	CUevent end;
	bool is_launched;         /* Both events have been recorded. */
	struct engine_plan *plan; /* plan of the launch; NULL: this entry is free */
	const struct plan *taken; /* plan that trials_take returned for the launch */
};

struct guest_trials {
	int device;           /* ordinal of the device */
	pthread_mutex_t lock; /* also guards the trials of all plans of the context */
	struct timed_launch timed[GUEST_TIMED];
};

void guest_trials_init(struct guest_trials *trials, int device);

/* The context must be current. Zeroed trials are allowed. */
void guest_trials_deinit(struct guest_trials *trials);

/* A launch of a single move, from the choice of its plan until it is in the stream. */
struct guest_choice {
	struct engine_plan *plan;
	/* The plan to launch by. It stays valid until guest_trials_launched. */
	const struct plan *taken;
	bool is_settled;            /* Trials of the layout are over. */
	struct timed_launch *timed; /* NULL: the launch is not timed */
};

/* Chooses the plan for a launch of a move between two addresses. The launch is timed only if nothing but the
 * plan decides how long it takes: both addresses must be memory of the device, and is_limited, which says
 * that the launch is limited to some of the multiprocessors, must be false. */
void guest_trials_choose(struct guest_trials *trials, struct engine_plan *plan, uint64_t dst, uint64_t src,
                         bool is_limited, CUstream stream, struct guest_choice *ret);

/* Must follow each guest_trials_choose. status is that of the launch, 0 if it succeeded. */
void guest_trials_launched(struct guest_trials *trials, const struct guest_choice *choice, CUstream stream,
                           int status);

#endif
