/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for the lists of launches into the program's own streams: pinned pages for the host's side, and
 * memory of the device that is allocated and freed in the stream's order.
 *
 * Pages are lent to a launch. They come back once the device has passed the launch or, if the launch was
 * captured, once the graph and all that was instantiated from it are destroyed, since each replay reads them
 * anew. Any thread may take and give; a thread waits only if so many launches with lists are under way that
 * they have all the pages that there may be.
 */
#ifndef KERNELS_CUDA_STAGE_UPLOADS_H
#define KERNELS_CUDA_STAGE_UPLOADS_H

#include <pthread.h>
#include <stdint.h>
#include <sys/queue.h>

#include "kernels/cuda/driver/driver.h"

/* The lists of a message are smaller, tables of layers included. */
#define UPLOAD_BUFFER_BYTES (256u << 10)

struct upload {
	char *host;         /* UPLOAD_BUFFER_BYTES, pinned */
	CUdeviceptr device; /* as many, while it is lent */
	CUevent passed;     /* recorded when it was given back */
	CUgraph graph;      /* whose capture it is lent to, while it is lent; NULL: to none */
	struct uploads *of;
	TAILQ_ENTRY(upload) entry;
};

TAILQ_HEAD(upload_list, upload);

struct uploads {
	CUmemoryPool pool;
	pthread_mutex_t lock; /* of what follows */
	struct upload_list free;
	struct upload_list under_way; /* given back, in that order; the device may not have passed them */
	uint32_t n;                   /* all that there are, but for those that graphs have */
};

/* The context of the device is current, and capturing threads may call this (capture.h). Returns 0, or the
 * driver's error. */
int uploads_init(struct uploads *uploads, CUdevice device, struct error *err);

/* Nothing may be lent. */
void uploads_deinit(struct uploads *uploads);

/* Lends pages and memory of the device to launches that follow on the stream. Returns 0, NO_MEMORY or the
 * driver's error. */
int upload_take(struct uploads *uploads, CUstream stream, struct upload **ret, struct error *err);

/* Gives them back after the last of these launches. Returns 0, or the driver's error, after which the pages
 * are lost if the device may still read them. */
int upload_give(struct upload *upload, CUstream stream, struct error *err);

#endif
