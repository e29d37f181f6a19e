/* SPDX-License-Identifier: Apache-2.0 */
/* The heartbeat: whether the engine's thread and the device answer.
 *
 * A probe is taken up in the thread's next pass, which records an event on a stream of its own: it is behind
 * no client's work, and no kernel has to find room for it. The probe is answered when the device has come to
 * the event, or has completed a round of any job meanwhile.
 */
#ifndef KERNELS_CUDA_HEARTBEAT_H
#define KERNELS_CUDA_HEARTBEAT_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "memory.h"
#include "queue.h"

struct heartbeat {
	/* Under the queue's lock: numbers of probes. */
	uint32_t asked;
	uint32_t taken; /* by the thread */
	uint32_t answered;

	/* The thread's own; from the first probe on. */
	CUstream stream;
	CUevent event;
	bool is_under_way;
	uint64_t taken_ns;
};

/* A zeroed one is allowed. On a device that is lost the driver is not asked. */
void heartbeat_deinit(struct heartbeat *heartbeat, enum cuda_health health);

/* The owner's thread's: as engine_probe. */
int heartbeat_probe(struct heartbeat *heartbeat, struct queue *queue, struct error *err);

/* Under the queue's lock: whether the thread has to make a pass for it. */
static inline bool heartbeat_is_asked(const struct heartbeat *heartbeat)
{
	return heartbeat->answered != heartbeat->asked;
}

/* Under the queue's lock, which it lets go: takes a probe up, or checks for its answer. landed_ns: when a
 * round was last seen to have completed. */
void heartbeat_poll(struct heartbeat *heartbeat, struct queue *queue, uint64_t landed_ns);

#endif
