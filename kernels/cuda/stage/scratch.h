/* SPDX-License-Identifier: Apache-2.0 */
/* Scratch memory on the device: one bounded stretch through which host memory is staged.
 *
 * Allocated when it is first needed, and given back once nobody has used it for a while. Its ranges are
 * handed out first fit; the links are in their users, so that handing out allocates nothing. Used by one
 * thread.
 */
#ifndef KERNELS_CUDA_STAGE_SCRATCH_H
#define KERNELS_CUDA_STAGE_SCRATCH_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "proto/status.h"

struct scratch_range {
	uint64_t start; /* address */
	uint64_t size;  /* 0: not in use */
	TAILQ_ENTRY(scratch_range) entry;
};

struct scratch {
	uint64_t address; /* 0: there is none */
	uint64_t size;
	TAILQ_HEAD(scratch_ranges, scratch_range) ranges; /* by address */
};

void scratch_init(struct scratch *scratch);

/* Up to most bytes: half of that, and so on, when the device has not so much. NO_MEMORY when it has next to
 * nothing; DEVICE_LOST. */
int scratch_open(struct scratch *scratch, uint64_t most, struct error *err);

/* No range may be in use. Without memory it does nothing. */
int scratch_close(struct scratch *scratch, struct error *err);

/* Whether there is room now for a range of so many bytes, not 0. */
bool scratch_has(const struct scratch *scratch, uint64_t size);

/* Returns the bytes of the largest range that there is room for. */
uint64_t scratch_largest(const struct scratch *scratch);

/* There has to be room; the start is a multiple of SCRATCH_ALIGN. */
#define SCRATCH_ALIGN 256
void scratch_take(struct scratch *scratch, uint64_t size, struct scratch_range *ret);

/* A range that is not in use is allowed. */
void scratch_give(struct scratch *scratch, struct scratch_range *range);

#endif
