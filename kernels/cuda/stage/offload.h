/* SPDX-License-Identifier: Apache-2.0 */
/* Moves lists of blocks between a device and pinned memory of the host, in the order of a program's stream.
 *
 * A kernel that reads or writes memory of the host waits for the bus, and beside other kernels it waits for
 * these, too. So launches move blocks between their places on the device and scratch memory, in large
 * stretches, and the copy engine takes the stretches to the host or brings them from there (packing.h). All
 * of it is enqueued at once, on two streams that fork from the program's and join it again. Nobody waits.
 *
 *     program's stream   work | fork                                                  join | work
 *     launches                       gather 0, 1, 2, 3     gather 4 (into slot 0) ..
 *     copies                           copy 0 ........ copy 1 ........ copy 2 ..
 */
#ifndef KERNELS_CUDA_STAGE_OFFLOAD_H
#define KERNELS_CUDA_STAGE_OFFLOAD_H

#include <pthread.h>
#include <stdint.h>
#include <sys/queue.h>

#include "kernels/cuda/launch/launch.h"
#include "kernels/engine.h"
#include "packing.h"
#include "uploads.h"

/* Lists of fewer bytes on the host stay with a kernel, which has moved them before a copy would begin. */
#define OFFLOAD_LEAST_BYTES (4u << 20)

struct stream_pair;

struct offloads {
	struct uploads *uploads; /* Lists are sent from its pages, and scratch memory is of its pool. */
	struct packing_limits limits;
	pthread_mutex_t lock;                       /* It guards what follows. */
	TAILQ_HEAD(stream_pairs, stream_pair) free; /* The one that was given back first is first. */
	uint32_t made;
};

void offloads_init(struct offloads *offloads, struct uploads *uploads);

/* Frees the streams, none of which may be in use. Zeroed offloads are allowed. */
void offloads_deinit(struct offloads *offloads);

/* Enqueues a job over a list of blocks if it is to travel so: one side is pinned memory of the host in long
 * runs, and the stream is not being captured. A list in memory of the device may index the device's side
 * only; if that is the source, the call also needs a stream that has nothing left to do, and waits for a copy
 * of the list. Entries that name no block are added to counts, the device address of a struct engine_counts,
 * if the device alone reads them. The context is current. *ret_is_done says whether all of it is in the
 * stream; otherwise nothing is. Returns 0, NO_MEMORY or the driver's error. */
int offload_launch(struct offloads *offloads, struct launcher *launcher, struct engine_job *job,
                   bool dst_is_host, bool src_is_host, CUstream stream, uint64_t counts, bool *ret_is_done,
                   struct error *err);

#endif
