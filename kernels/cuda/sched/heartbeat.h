/* SPDX-License-Identifier: Apache-2.0 */
/* The heartbeat tells whether the engine's thread and the device answer.
 *
 * A probe is taken up in the thread's next pass, which records an event on a stream of its own: it is behind
 * no client's work, and no kernel has to find room for it. The probe is answered when the device has come to
 * the event, or has completed a round of any job meanwhile.
 */
#ifndef KERNELS_CUDA_SCHED_HEARTBEAT_H
#define KERNELS_CUDA_SCHED_HEARTBEAT_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/memory/memory.h"
#include "queue.h"

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

/* A zeroed heartbeat is allowed. The driver is not asked on a device that is lost. */
void heartbeat_deinit(struct heartbeat *heartbeat, enum cuda_health health);

/* Does what engine_probe does, for the owner's thread. */
int heartbeat_probe(struct heartbeat *heartbeat, struct queue *queue, struct error *err);

/* Returns whether the thread has to make a pass for it. The queue's lock must be held. */
static inline bool heartbeat_is_asked(const struct heartbeat *heartbeat)
{
	return heartbeat->answered != heartbeat->asked;
}

/* Takes a probe up, or checks for its answer. The queue's lock must be held, and is released meanwhile.
 * landed_ns tells when a round was last seen to have completed. */
void heartbeat_poll(struct heartbeat *heartbeat, struct queue *queue, uint64_t landed_ns);

#endif
