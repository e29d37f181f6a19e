/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's thread starts jobs in the order of the fair queue, launches them, and polls them until they
 * end.
 *
 * The jobs under way are bounded in total, by stream and by owner. The others wait in the queue, where they
 * can still be cancelled. The thread sleeps while there is nothing to do; while something is under way it
 * polls, less and less often.
 *
 * It is not worth waking the thread for a single short job. While the engine's thread sleeps, the owner's
 * thread drives the engine in its place, for a bounded time. Only one of the two drives at a time, and that
 * one has the fields below that belong to "the thread".
 */
#ifndef KERNELS_CUDA_SCHED_SCHEDULER_H
#define KERNELS_CUDA_SCHED_SCHEDULER_H

#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "flight.h"
#include "kernels/cuda/driver/driver.h"
#include "kernels/cuda/memory/memory.h"
#include "kernels/cuda/stage/jobs.h"
#include "kernels/queue/fair_queue.h"
#include "queue.h"

/* The heartbeat tells whether the engine's thread and the device still answer.
 *
 * The thread takes up a probe in its next pass and records an event on a stream used for nothing else. The
 * event therefore waits for no client's work, and needs no free multiprocessor. The probe is answered once
 * the device has reached the event, or has completed a round of any job since the probe was taken up.
 */
struct heartbeat {
	/* Numbers of the last probe asked, taken up and answered. The queue's lock guards them. */
	uint32_t asked;
	uint32_t taken;
	uint32_t answered;

	/* The thread owns these from the first probe on. */
	CUstream stream;
	CUevent event;
	bool is_under_way;
	uint64_t taken_ns;
};

/* Implements engine_probe. Called by the owner's thread. */
int heartbeat_probe(struct heartbeat *heartbeat, struct queue *queue, struct error *err);

struct scheduler {
	const struct device *device;
	struct cuda_limits limits;
	struct queue queue;
	struct equipment equipment;
	struct heartbeat heartbeat;
	pthread_t thread;
	bool started;

	/* The thread owns the fields from here on. */
	struct stream_slots slots;
	struct flight *flights;
	struct flight_list under_way; /* flights in the order in which they were started */
	struct flight_list free;
	uint64_t moved_ns;  /* monotonic time at which a job was last started or made progress. */
	uint64_t landed_ns; /* monotonic time at which a job under way was last seen to make progress. */
	uint64_t pass;      /* number of the current pass over all flights */
	struct timelines timelines;
	/* Detects jobs that had the device to themselves; it counts stream slots. */
	struct contention contention;
	struct quick quick;
	struct admission admission;
};

/* Creates everything that jobs need and starts the thread. scheduler_deinit must follow even if this fails.
 * Returns 0 or an error. */
int scheduler_init(struct scheduler *scheduler, const struct device *device, struct cuda_plans *plans,
                   const struct engine_options *options, struct error *err);

/* Implements engine_drive: the owner's thread calls this after it has submitted jobs and before it sleeps.
 * Returns whether there are finished jobs. */
bool scheduler_drive(struct scheduler *scheduler, uint64_t ns);

/* Ends the thread. Every stream must have been freed. Returns whether the device is still usable. A zeroed
 * scheduler is allowed. */
enum cuda_health scheduler_stop(struct scheduler *scheduler);

/* Frees what the scheduler owns, after scheduler_stop. On a lost device no driver call is made. */
void scheduler_deinit(struct scheduler *scheduler, enum cuda_health health);

#endif
