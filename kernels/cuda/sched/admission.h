/* SPDX-License-Identifier: Apache-2.0 */
/* Admission decides which job may start now: within what the engine, its owner and its stream may have under
 * way, and with room in scratch memory. A job of more than one launch has its stream to itself. While a job
 * waits for scratch memory, no other job that needs scratch memory overtakes it.
 *
 * It knows what the jobs under way have taken, and what is missing for those that cannot start: plans, which
 * are made between passes, and scratch memory. All of it is the engine's thread's own.
 */
#ifndef KERNELS_CUDA_SCHED_ADMISSION_H
#define KERNELS_CUDA_SCHED_ADMISSION_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/stage/scratch.h"
#include "limits.h"
#include "queue.h"
#include "sharing.h"

/* Jobs wait for at most ADMISSION_PLANS plans at a time. After ADMISSION_PLAN_NS no further plan is begun
 * before the next pass. A plan is charged to the owner of the job that needs it as ADMISSION_PLAN_PRICE. */
#define ADMISSION_PLANS      8
#define ADMISSION_PLAN_NS    100000
#define ADMISSION_PLAN_PRICE 50000

/* Jobs wait for this plan. */
struct wanted_plan {
	struct engine_plan *plan;   /* with a reference */
	struct engine_owner *owner; /* is charged for it; NULL once that has been done */
};

struct admission {
	const struct cuda_limits *limits;
	uint32_t staged; /* jobs under way of more than one launch */
	struct scratch scratch;
	uint64_t scratch_failed_ns; /* The device had none at that time; 0: it has not been asked. */
	bool scratch_missing;       /* a job waits for it to be opened */
	bool scratch_full;          /* a job waits for blocks of others: nobody passes it */
	struct sharing sharing;
	struct wanted_plan wanted[ADMISSION_PLANS];
	uint32_t n_wanted;
};

void admission_init(struct admission *admission, const struct cuda_limits *limits, bool by_mps);

/* This is the condition of fair_queue_next_if, whose argument is a struct admission. It plans the stream's
 * first job if that is not planned yet, and sets scratch_missing and scratch_full. The lock must be held. */
bool admission_can_start(struct fair_stream *fair, void *admission);

/* Returns whether the owner's thread may start the stream's first job, which `next` would carry: it is
 * launched in a few microseconds without an allocation, and its end wakes no sleepers. */
bool admission_is_quick(const struct admission *admission, const struct fair_stream *fair,
                        const struct flight *next);

/* A job that could start starts, and takes the scratch memory that it needs; later it ends, and gives it
 * back. */
void admission_start(struct admission *admission, struct flight *flight);
void admission_end(struct admission *admission, struct flight *flight);

/* Weighs a job, so that others need not wait for a long one. */
enum job_weight job_weight(const struct engine_job *job, const struct cuda_limits *limits);

/* ---- What is missing; the lock must be held ------------------------------------------------------------ */

/* Opens scratch memory, and releases the lock meanwhile. A device that has none is asked again later; until
 * then jobs do without. */
void admission_open_scratch(struct admission *admission, struct queue *queue);

/* Charges owners for the plans that their jobs want. It must be called before the lock is released, because
 * an owner may be gone after that. */
void admission_charge_plans(struct admission *admission, struct queue *queue);

/* Makes some of the plans, and releases the lock meanwhile. The job that waits for one may be canceled then,
 * but the plan stays. */
void admission_make_plans(struct admission *admission, struct queue *queue);

/* Drops the first n plans, for which nobody waits any more. */
void admission_drop_plans(struct admission *admission, uint32_t n);

#endif
