/* The heartbeat: whether the engine's thread and the device answer.
 *
 * A question is taken up in the thread's next turn, which puts an event on a stream of its own: behind no
 * client's work, and no kernel has to find room for it. The question is answered when the device has come to
 * the event, or has ended a round of anybody's meanwhile.
 */
#ifndef KERNELS_CUDA_HEARTBEAT_H
#define KERNELS_CUDA_HEARTBEAT_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "memory.h"
#include "queue.h"

struct heartbeat {
	/* Under the queue's lock: numbers of questions. */
	uint32_t asked;
	uint32_t taken; /* by the thread */
	uint32_t answered;

	/* The thread's own; from the first question on. */
	CUstream stream;
	CUevent event;
	bool is_under_way;
	uint64_t taken_ns;
};

/* A zeroed one is allowed. On a device that is lost the driver is not asked. */
void heartbeat_deinit(struct heartbeat *heartbeat, enum cuda_health health);

/* The owner's thread's: as engine_probe. */
int heartbeat_probe(struct heartbeat *heartbeat, struct queue *queue, struct error *err);

/* Under the queue's lock: whether the thread has to turn for it. */
static inline bool heartbeat_is_asked(const struct heartbeat *heartbeat)
{
	return heartbeat->answered != heartbeat->asked;
}

/* Under the queue's lock, which it lets go: takes a question up, or looks for its answer. landed_ns: when a
 * round was last seen to have landed. */
void heartbeat_turn(struct heartbeat *heartbeat, struct queue *queue, uint64_t landed_ns);

#endif
