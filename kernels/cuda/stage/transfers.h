/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers between ordinary memory of the host and a device, through pinned slots: while the copy engine
 * takes one chunk, the calling thread packs the next.
 *
 * A call borrows a set of slots. Sets are made when they are first needed, MOST_SETS of them at most, and
 * kept for later calls; whoever finds all of them lent waits until one comes back. Whoever has a set waits
 * only for its own stream. A slot may come back while the device still reads it: whoever uses it next waits
 * for that.
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
	pthread_mutex_t lock; /* It guards what follows. */
	pthread_cond_t given_back;
	TAILQ_HEAD(, slot_set) free;
	uint32_t made;
};

void transfers_init(struct transfers *transfers);

/* Frees the slots, none of which may be lent. */
void transfers_deinit(struct transfers *transfers);

/* These do what engine_bring_in and engine_bring_out say (kernels/engine.h). */
int transfers_bring_in(struct transfers *transfers, struct engine_transfer *transfer, CUstream stream,
                       struct error *err);
int transfers_bring_out(struct transfers *transfers, struct engine_transfer *transfer, CUstream stream,
                        struct error *err);

#endif
