/* The pulse: whether the engine's thread and the device answer.
 *
 * A question is taken up in the thread's next turn, which puts an event on a stream of its own: behind no
 * client's work, and no kernel has to find room for it. The question is answered when the device has come to
 * the event, or has ended a round of anybody's meanwhile.
 */
#ifndef KERNELS_CUDA_PULSE_H
#define KERNELS_CUDA_PULSE_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "memory.h"
#include "queue.h"

struct pulse {
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
void pulse_deinit(struct pulse *pulse, enum cuda_health health);

/* The owner's thread's: as engine_probe. */
int pulse_probe(struct pulse *pulse, struct queue *queue, struct error *err);

/* Under the queue's lock: whether the thread has to turn for it. */
static inline bool pulse_is_asked(const struct pulse *pulse)
{
	return pulse->answered != pulse->asked;
}

/* Under the queue's lock, which it lets go: takes a question up, or looks for its answer. landed_ns: when a
 * round was last seen to have landed. */
void pulse_turn(struct pulse *pulse, struct queue *queue, uint64_t landed_ns);

#endif
