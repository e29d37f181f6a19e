/* SPDX-License-Identifier: Apache-2.0 */
/* Launches into the program's own streams put their lists into pinned pages of the host and into memory of
 * the device that is allocated and freed in the stream's order.
 *
 * Pages are lent to a launch. They come back once the device has passed the launch or, if the launch was
 * captured, once the graph and all that was instantiated from it are destroyed, since each replay reads them
 * anew. Any thread may take and give, and none waits for the device.
 */
#ifndef KERNELS_CUDA_STAGE_UPLOADS_H
#define KERNELS_CUDA_STAGE_UPLOADS_H

#include <pthread.h>
#include <stdint.h>
#include <sys/queue.h>

#include "kernels/cuda/driver/driver.h"

/* An upload is larger than the lists of any message, tables of layers included. */
#define UPLOAD_BUFFER_BYTES (256u << 10)

struct upload {
	char *host;         /* pinned, UPLOAD_BUFFER_BYTES long */
	CUdeviceptr device; /* as many bytes on the device, while the pages are lent */
	CUevent passed;     /* recorded on the stream when the pages are given back */
	CUgraph graph;      /* the graph that is being captured, while the pages are lent; NULL: none is */
	struct uploads *of;
	TAILQ_ENTRY(upload) entry;
};

TAILQ_HEAD(upload_list, upload);

struct uploads {
	CUmemoryPool pool;
	pthread_mutex_t lock; /* It guards what follows. */
	struct upload_list free;
	struct upload_list under_way; /* given back, oldest first; the device may still read them */
};

/* The context of the device must be current. The call is allowed during a capture only between capture_allow
 * and capture_restore. Returns 0, or the driver's error. */
int uploads_init(struct uploads *uploads, CUdevice device, struct error *err);

/* Frees all pages. None may be lent or held by a graph. */
void uploads_deinit(struct uploads *uploads);

/* Lends pages and memory of the device to launches that follow on the stream. Returns 0, NO_MEMORY or the
 * driver's error. */
int upload_take(struct uploads *uploads, CUstream stream, struct upload **ret, struct error *err);

/* Gives them back after the last of these launches. Returns 0, or the driver's error, after which the pages
 * are lost if the device may still read them. */
int upload_give(struct upload *upload, CUstream stream, struct error *err);

#endif
