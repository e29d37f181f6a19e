/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's thread starts jobs in the fair queue's order, launches them and polls them until they end.
 *
 * Jobs under way are bounded in all, by stream and by owner; the rest wait in the queue, where they can still
 * be cancelled. With nothing to do the thread sleeps until it is woken; with something under way it polls,
 * less and less often.
 *
 * A single short job is not worth waking it: while it sleeps, the owner's thread drives the engine in its
 * place, for a bounded time. One thread drives at a time, and the fields of "the thread" belong to that one.
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

/* The heartbeat tells whether the engine's thread and the device answer.
 *
 * A probe is taken up in the thread's next pass, which records an event on a stream of its own: it is behind
 * no client's work, and no kernel has to find room for it. The probe is answered when the device has come to
 * the event, or has completed a round of any job meanwhile.
 */
struct heartbeat {
	/* Numbers of probes; the queue's lock guards them. */
	uint32_t asked;
	uint32_t taken; /* by the thread */
	uint32_t answered;

	/* These belong to the thread, from the first probe on. */
	CUstream stream;
	CUevent event;
	bool is_under_way;
	uint64_t taken_ns;
};

/* Does what engine_probe does, for the owner's thread. */
int heartbeat_probe(struct heartbeat *heartbeat, struct queue *queue, struct error *err);

struct scheduler {
	const struct device *device;
	struct cuda_limits limits;
	struct queue queue;
	struct equipment equipment;
	struct heartbeat heartbeat;
	pthread_t thread;
	bool started;

	/* The fields from here on belong to the thread. */
	struct stream_slots slots;
	struct flight *flights;
	struct flight_list under_way; /* in the order started */
	struct flight_list free;
	uint64_t moved_ns;  /* when a job was last started, or a round completed */
	uint64_t landed_ns; /* when a round was last seen to have completed */
	uint64_t pass;      /* number of the present pass over all flights */
	struct timelines timelines;
	struct contention contention; /* of slots */
	struct quick quick;
	struct admission admission;
};

/* Starts the thread. scheduler_deinit must follow on failure, too. */
int scheduler_init(struct scheduler *scheduler, const struct device *device, struct cuda_plans *plans,
                   const struct engine_options *options, struct error *err);

/* The owner's thread calls this once it has submitted, and before it sleeps (engine_drive). Returns whether
 * there are finished jobs. */
bool scheduler_drive(struct scheduler *scheduler, uint64_t ns);

/* Ends the thread; every stream must have been freed. Returns whether the device is still there. A zeroed
 * scheduler is allowed. */
enum cuda_health scheduler_stop(struct scheduler *scheduler);

/* Frees what the scheduler has, after scheduler_stop. The driver is not asked on a device that is lost. */
void scheduler_deinit(struct scheduler *scheduler, enum cuda_health health);

#endif
