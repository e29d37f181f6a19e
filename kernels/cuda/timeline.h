/* SPDX-License-Identifier: Apache-2.0 */
/* Timelines on the device: polls the words that jobs wait for, and has the device write signals.
 *
 * A wait is never put on a stream (cuStreamWaitValue64): it cannot be taken back, and while one is parked, so
 * is everybody: cuMemFree and cuMemHostUnregister block until it has come, and with them every other call
 * that puts work on the device; a few of them fill the device's work queues, and streams that have nothing to
 * do with them stand still (seen on an H200, driver 13.0: 8 parked hold nobody back, 16 hold back every other
 * stream). So the engine's thread reads the words, again and again, less and less often: those in host memory
 * as they are, those on the device by small copies, many at once. A signal is an operation of the job's own
 * stream (cuStreamWriteValue64): a stream of a client's that waits for it goes on without any host.
 */
#ifndef KERNELS_CUDA_TIMELINE_H
#define KERNELS_CUDA_TIMELINE_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "memory.h"
#include "queue.h"

#define TIMELINE_WORDS 64 /* of one poll */

struct poll {
	struct engine_stream *stream; /* its first job's point */
	bool is_read_by_device;
	int result; /* 1: it has come; 0; or negative: the job's status */
};

/* All of it the engine's thread's own. */
struct timelines {
	bool is_guarded;
	uint64_t most_ns; /* between two polls */

	/* From the first poll of a word on the device on. */
	CUstream stream;
	CUevent read;
	uint64_t *words; /* pinned */

	struct poll polls[TIMELINE_WORDS];
	uint32_t n;          /* of the poll under way; 0: none is */
	bool is_on_device;   /* the poll under way */
	uint64_t started_ns; /* the last poll, by the monotonic clock */
	uint64_t earliest_ns;
	uint64_t due_ns; /* the next one; UINT64_MAX: when something changes */
};

int timelines_init(struct timelines *timelines, uint64_t most_ns, struct error *err);

/* A zeroed one is allowed. On a device that is lost the driver is not asked. */
void timelines_deinit(struct timelines *timelines, enum cuda_health health);

/* Under the queue's lock, which it lets go: polls the points that are due, or checks whether the poll under
 * way is over. Gives back whether the owner has to be woken. */
bool timelines_poll(struct timelines *timelines, struct queue *queue);

/* From one poll of a word to the next, when it has been waited for so long: a wait is late by less than a
 * hundredth of its length, or some microseconds. */
uint64_t timelines_pause_ns(uint64_t waited_ns, uint64_t most_ns);

/* When the next pass has something to do, as far as is known now; 0: at once. */
uint64_t timelines_due_ns(const struct timelines *timelines);

/* Under the lock: the device is lost, and the poll under way, if any, is over. */
bool timelines_lose(struct timelines *timelines);

/* Puts the signal on the stream, behind all that is on it. */
int timelines_put(const struct engine_point *signal, CUstream stream, struct error *err);

/* The signal has come: how many to wake, and wakes n of those that sleep on its futex, where it has one (host
 * memory). As timeline_wakes and timeline_wake. */
uint32_t timelines_wakes(const struct engine_point *signal);
uint32_t timelines_wake(const struct engine_point *signal, uint32_t n);

#endif
