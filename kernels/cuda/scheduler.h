/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's thread: starts jobs in the fair queue's order, launches them and polls them until they end.
 *
 * Jobs under way are bounded in all, by stream and by owner; the rest wait in the queue, where they can still
 * be cancelled. With nothing to do the thread sleeps until it is woken; with something under way it polls,
 * less and less often.
 *
 * A single short job is not worth waking it: while it sleeps, the owner's thread drives the engine in its
 * place, for a bounded time. One thread drives at a time, and what is "the thread's own" belongs to that one.
 */
#ifndef KERNELS_CUDA_SCHEDULER_H
#define KERNELS_CUDA_SCHEDULER_H

#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "device.h"
#include "in_flight.h"
#include "limits.h"
#include "memory.h"
#include "heartbeat.h"
#include "kernels/contention.h"
#include "queue.h"
#include "scratch.h"
#include "sharing.h"
#include "stream_slots.h"
#include "timeline.h"

struct scheduler {
	const struct device *device;
	struct cuda_limits limits;
	struct queue queue;
	struct in_flight_pool pool;
	struct heartbeat heartbeat;
	pthread_t thread;
	bool started;

	/* The thread's own. */
	struct stream_slots slots;
	struct in_flight_job *all_in_flight;
	struct in_flight_list under_way; /* in the order started */
	struct in_flight_list free;
	uint32_t staged;    /* of those under way: of more than one launch */
	uint64_t moved_ns;  /* when a job was last started, or a round completed */
	uint64_t landed_ns; /* when a round was last seen to have completed */
	uint64_t pass;      /* number of the present pass over all in-flight jobs */
	struct timelines timelines;
	struct contention contention; /* of slots */
	struct sharing sharing;
	struct quick quick;
	struct scratch scratch;
	uint64_t scratch_failed_ns; /* when the device had none for it; 0: it has not been asked */
	bool scratch_missing;       /* a job waits for it to be opened */
	bool scratch_full;          /* a job waits for blocks of others: nobody passes it */
};

/* The thread starts. On failure, too, scheduler_deinit follows. */
int scheduler_init(struct scheduler *scheduler, const struct device *device, const struct plan_facts *facts,
                   const struct engine_options *options, struct error *err);

/* The owner's thread, once it has submitted and before it sleeps (engine_drive). */
bool scheduler_drive(struct scheduler *scheduler, uint64_t ns);

/* Every stream must have been freed. The thread ends, and what it leaves is settled: whether the device is
 * still there. A zeroed one is allowed. */
enum cuda_health scheduler_stop(struct scheduler *scheduler);

/* After scheduler_stop. On a device that is lost the driver is not asked. */
void scheduler_deinit(struct scheduler *scheduler, enum cuda_health health);

#endif
