/* SPDX-License-Identifier: Apache-2.0 */
/* Moves lists of blocks between a device and pinned host memory, in the order of one of the program's
 * streams.
 *
 * A kernel that reads or writes host memory waits for the bus and, if other kernels run, for these, too. So
 * launches move blocks between their places on the device and scratch memory, in large stretches, and the
 * copy engine copies the stretches to or from the host (packing.h). Everything is enqueued at once, on two
 * streams that fork from the program's stream and join it again. The call does not wait for work on the
 * device, except for the copy of a list that the host has to check first (offload_launch).
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

/* Lists with fewer bytes on the host are left to a kernel, which ends before a copy would have begun. */
#define OFFLOAD_LEAST_BYTES (4u << 20)

struct stream_pair;

struct offloads {
	struct uploads *uploads; /* lends pages for lists; its pool also provides scratch memory */
	struct packing_limits limits;
	uint64_t fetch_ns;    /* longest wait for the copy of a list that the host has to check */
	pthread_mutex_t lock; /* guards the fields below */
	/* Pairs of streams, the one given back longest ago first. */
	TAILQ_HEAD(stream_pairs, stream_pair) free;
	uint32_t made; /* pairs that exist or are being made */
};

void offloads_init(struct offloads *offloads, struct uploads *uploads);

/* Frees the streams, none of which may be in use. Zeroed offloads are allowed. */
void offloads_deinit(struct offloads *offloads);

/* Enqueues a job over a list of blocks if it qualifies: exactly one side is pinned host memory in long runs
 * (dst_is_host and src_is_host say which), the move does not convert, and the stream is not being captured.
 * If the list itself lies in memory of the device, it must index only the side on the device. If that side is
 * the source, the stream must also have nothing left to do, and the call waits for a copy of the list, for
 * half a millisecond at most.
 *
 * counts is the device address of a struct engine_counts. If only the device reads the list, launches count
 * there the entries that name no block. The device's context must be current. Sets *ret_is_done to whether
 * the job was enqueued; if false, nothing was. Returns 0, NO_MEMORY or the driver's error. */
int offload_launch(struct offloads *offloads, struct launcher *launcher, struct engine_job *job,
                   bool dst_is_host, bool src_is_host, CUstream stream, uint64_t counts, bool *ret_is_done,
                   struct error *err);

#endif
