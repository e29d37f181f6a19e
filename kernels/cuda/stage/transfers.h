/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers between ordinary host memory and a device, through pinned slots: while the copy engine copies one
 * chunk, the calling thread packs the next.
 *
 * Each call borrows a set of slots. Sets are made when they are first needed, up to MOST_SETS of them, and
 * kept for later calls. A call that finds all of them lent waits until one comes back; a call that has a set
 * waits only for its own stream. A slot may be given back while the device still reads it, so whoever uses it
 * next waits for its event first. Any thread may call transfers_bring_in and transfers_bring_out.
 */
#ifndef KERNELS_CUDA_STAGE_TRANSFERS_H
#define KERNELS_CUDA_STAGE_TRANSFERS_H

#include <pthread.h>
#include <stdint.h>
#include <sys/queue.h>

#include "kernels/cuda/driver/driver.h"
#include "kernels/engine.h"

struct slot_set;

struct transfers {
	pthread_mutex_t lock; /* guards the fields below */
	pthread_cond_t given_back;
	TAILQ_HEAD(, slot_set) free;
	uint32_t made; /* sets that exist or are being made */
};

void transfers_init(struct transfers *transfers);

/* Frees the slots. None may be lent. */
void transfers_deinit(struct transfers *transfers);

/* These implement engine_bring_in and engine_bring_out (kernels/engine.h). */
int transfers_bring_in(struct transfers *transfers, struct engine_transfer *transfer, CUstream stream,
                       struct error *err);
int transfers_bring_out(struct transfers *transfers, struct engine_transfer *transfer, CUstream stream,
                        struct error *err);

#endif
