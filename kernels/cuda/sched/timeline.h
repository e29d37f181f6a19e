/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs wait for words of timelines, which the engine's thread polls.
 *
 * A wait is never put on a stream (cuStreamWaitValue64): it cannot be taken back, and while one is parked, so
 * is everybody: cuMemFree and cuMemHostUnregister block until it has come, and with them every other call
 * that puts work on the device; a few of them fill the device's work queues, and streams that have nothing to
 * do with them stand still (seen on an H200, driver 13.0: 8 parked hold nobody back, 16 hold back every other
 * stream). So the engine's thread reads the words, again and again, less and less often: those in host memory
 * as they are, those on the device by small copies, many at once. A signal is an operation of the job's own
 * stream (flight.c, cuStreamWriteValue64): a stream of a client's that waits for it goes on without any host.
 */
#ifndef KERNELS_CUDA_SCHED_TIMELINE_H
#define KERNELS_CUDA_SCHED_TIMELINE_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/memory/memory.h"
#include "queue.h"

#define TIMELINE_WORDS 64 /* in one poll */

struct poll {
	struct engine_stream *stream; /* whose first job waits for the point */
	bool is_read_by_device;
	int result; /* 1: the point has come; 0: it has not; negative: the job's status */
};

/* All of it belongs to the engine's thread. */
struct timelines {
	bool is_guarded;
	uint64_t most_ns; /* the longest time between two polls */

	/* These are made with the first poll of a word on the device. */
	CUstream stream;
	CUevent read;
	uint64_t *words; /* pinned */

	struct poll polls[TIMELINE_WORDS];
	uint32_t n;          /* words of the poll under way; 0: none is */
	bool is_on_device;   /* The poll under way reads words on the device. */
	uint64_t started_ns; /* when the last poll began, by the monotonic clock */
	uint64_t earliest_ns;
	uint64_t due_ns; /* when the next poll is due; UINT64_MAX: when something changes */
};

int timelines_init(struct timelines *timelines, uint64_t most_ns, struct error *err);

/* Zeroed timelines are allowed. The driver is not asked on a device that is lost. */
void timelines_deinit(struct timelines *timelines, enum cuda_health health);

/* Polls the points that are due, or checks whether the poll under way is over. The queue's lock must be held,
 * and is released meanwhile. Returns whether the owner has to be woken. */
bool timelines_poll(struct timelines *timelines, struct queue *queue);

/* Returns the time from one poll of a word to the next, after it has been waited for so long: a wait is late
 * by less than a hundredth of its length, or some microseconds. */
uint64_t timelines_pause_ns(uint64_t waited_ns, uint64_t most_ns);

/* Returns when the next pass has something to do, as far as is known now; 0 means at once. */
uint64_t timelines_due_ns(const struct timelines *timelines);

/* Ends the poll under way, if any, because the device is lost. The lock must be held. */
bool timelines_lose(struct timelines *timelines);

#endif
