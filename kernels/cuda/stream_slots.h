/* SPDX-License-Identifier: Apache-2.0 */
/* The device's streams that jobs run on, and which of them a job takes.
 *
 * Short jobs have streams of the highest priority, long ones of the lowest: a short job's blocks run as soon
 * as any block of a long one ends, in some ten microseconds, however long that job is
 * (tests/bench/EXPERIMENTS.md). An owner's long jobs on the device share a stream: each has the device to
 * itself, as far as this owner goes, and the next one is at hand when it ends. Urgent long jobs have streams
 * of a priority between the two. Other jobs of the lowest priority run beside each other: those that wait for
 * the bus, which has two directions, and short ones of an owner that has had more of the device than those
 * whose long jobs they would pass.
 */
#ifndef KERNELS_CUDA_STREAM_SLOTS_H
#define KERNELS_CUDA_STREAM_SLOTS_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "driver.h"
#include "kernels/engine.h"

struct in_flight_job;

#define STREAM_SLOTS_SHORT  32
#define STREAM_SLOTS_URGENT 4
#define STREAM_SLOTS_LONG   8
#define STREAM_SLOTS        (STREAM_SLOTS_SHORT + STREAM_SLOTS_URGENT + STREAM_SLOTS_LONG)

enum job_weight {
	JOB_SHORT,
	JOB_URGENT, /* a long one that passes others */
	JOB_LONG,
	JOB_BESIDE, /* passes nobody, and waits for no turn */
};

/* A stream of the device. Busy ones may be shared. */
struct stream_slot {
	CUstream stream;
	enum stream_priority priority;
	uint32_t jobs;              /* under way on it */
	struct in_flight_job *last; /* by in_flight.c: whose end is the last thing on it, as far as is known;
	                               NULL: nothing, or another thing */
};

struct stream_slots {
	struct stream_slot slot[STREAM_SLOTS]; /* by priority, the highest first */
};

/* The priority of the i-th. */
enum stream_priority stream_slot_priority(int i);

/* On failure, too, stream_slots_deinit follows. */
int stream_slots_init(struct stream_slots *slots, struct error *err);
void stream_slots_deinit(struct stream_slots *slots);

/* A job starts. last: where the one before it of the same engine stream is under way, or NULL. Gives back its
 * slot; *ret_is_first: nothing else is under way there. */
struct stream_slot *stream_slots_take(struct stream_slots *slots, struct engine_owner *owner,
                                      struct stream_slot *last, enum job_weight weight, bool *ret_is_first);

/* It has ended. Gives back whether nothing is under way there any more. */
bool stream_slot_give(struct stream_slot *slot, struct engine_owner *owner, enum job_weight weight);

#endif
