/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs run on these streams of the device.
 *
 * Short jobs have streams of the highest priority, long ones of the lowest: a short job's blocks run as soon
 * as any block of a long one ends, in some ten microseconds, however long that job is
 * (tests/bench/EXPERIMENTS.md). An owner's long jobs on the device share a stream: each has the device to
 * itself, as far as this owner goes, and the next one is at hand when it ends. Urgent long jobs have streams
 * of a priority between the two. Other jobs of the lowest priority run beside each other: those that wait for
 * the bus, which has two directions, and short ones of an owner that has had more of the device than those
 * whose long jobs they would pass.
 */
#ifndef KERNELS_CUDA_SCHED_STREAM_SLOTS_H
#define KERNELS_CUDA_SCHED_STREAM_SLOTS_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/driver/driver.h"
#include "kernels/engine.h"

struct flight;

#define STREAM_SLOTS_SHORT  32
#define STREAM_SLOTS_URGENT 4
#define STREAM_SLOTS_LONG   8
#define STREAM_SLOTS        (STREAM_SLOTS_SHORT + STREAM_SLOTS_URGENT + STREAM_SLOTS_LONG)

enum job_weight {
	JOB_SHORT,
	JOB_URGENT, /* It is long, and passes others. */
	JOB_LONG,
	JOB_BESIDE, /* It passes nobody, and waits for no turn. */
};

/* A slot is a stream of the device. Busy ones may be shared. */
struct stream_slot {
	CUstream stream;
	enum stream_priority priority;
	uint32_t jobs;       /* under way on it */
	struct flight *last; /* by flight.c: whose end is the last thing on it, as far as is known;
	                               NULL: nothing, or another thing */
};

struct stream_slots {
	struct stream_slot slot[STREAM_SLOTS]; /* by priority, the highest first */
};

/* Returns the priority of the i-th slot. */
enum stream_priority stream_slot_priority(int i);

/* stream_slots_deinit must follow on failure, too. */
int stream_slots_init(struct stream_slots *slots, struct error *err);
void stream_slots_deinit(struct stream_slots *slots);

/* Returns a slot for a job that starts. last is the slot where the job before it of the same engine stream is
 * under way, or NULL. *ret_is_first says that nothing else is under way there. */
struct stream_slot *stream_slots_take(struct stream_slots *slots, struct engine_owner *owner,
                                      struct stream_slot *last, enum job_weight weight, bool *ret_is_first);

/* Gives the slot of a job that has ended back. Returns whether nothing is under way there any more. */
bool stream_slot_give(struct stream_slot *slot, struct engine_owner *owner, enum job_weight weight);

#endif
