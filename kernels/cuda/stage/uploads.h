/* SPDX-License-Identifier: Apache-2.0 */
/* Launches into the program's own streams put their lists into pinned pages of the host and into memory of
 * the device.
 *
 * Pages are lent to a launch, and come back once the device has passed it; its memory of the device is
 * allocated and freed in the stream's order. A launch that is captured gets memory of the device that belongs
 * to the graph instead: the lists are there before the capture goes on, so that the graph has no node that
 * allocates or copies, and the memory is freed once the graph and all that was instantiated from it are
 * destroyed. Any thread may take and give, and none waits for work of the program's on the device.
 */
#ifndef KERNELS_CUDA_STAGE_UPLOADS_H
#define KERNELS_CUDA_STAGE_UPLOADS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "kernels/cuda/driver/driver.h"

/* Pages have at least so many bytes, which is more than the lists of any message take, tables of layers
 * included, and otherwise a power of two. */
#define UPLOAD_BUFFER_BYTES (256u << 10)

struct graph_memory;

struct upload {
	char *host;                   /* pinned */
	size_t size;                  /* bytes of the pages */
	CUdeviceptr device;           /* memory of the device, while the pages are lent */
	CUevent passed;               /* recorded on the stream when the pages are given back */
	CUgraph graph;                /* the graph that is being captured; NULL: none is */
	struct graph_memory *holding; /* owns the memory of the device if there is a graph */
	struct uploads *of;
	TAILQ_ENTRY(upload) entry;
};

TAILQ_HEAD(upload_list, upload);

struct uploads {
	CUmemoryPool pool;
	CUstream stream;      /* Lists of captured launches are copied on it. */
	pthread_mutex_t lock; /* It guards what follows. */
	struct upload_list free;
	struct upload_list under_way; /* given back, oldest first; the device may still read them */
	uint64_t long_bytes;          /* of all pages that are larger than UPLOAD_BUFFER_BYTES */
	_Atomic(struct graph_memory *) left_over; /* memory of graphs that are gone; not under the lock */
};

/* The context of the device must be current. The call is allowed during a capture only between capture_allow
 * and capture_restore. Returns 0, or the driver's error; uploads_deinit must follow in any case. */
int uploads_init(struct uploads *uploads, CUdevice device, struct error *err);

/* Frees all pages and all memory. None may be lent or held by a graph. */
void uploads_deinit(struct uploads *uploads);

/* Lends pages of at least size bytes, and size bytes of the device, to launches that follow on the stream.
 * Returns 0, NO_MEMORY or the driver's error. */
int upload_take(struct uploads *uploads, CUstream stream, size_t size, struct upload **ret,
                struct error *err);

/* Copies bytes [from, to) of the pages to the device, for launches that follow on the stream. Returns 0, or
 * the driver's error. */
int upload_send(const struct upload *upload, size_t from, size_t to, CUstream stream, struct error *err);

/* Gives all back after the last of these launches. Returns 0, or the driver's error, after which the pages
 * are lost if the device may still read them. */
int upload_give(struct upload *upload, CUstream stream, struct error *err);

#endif
