/* SPDX-License-Identifier: Apache-2.0 */
/* The allocations that a memory by descriptor consists of, at contiguous addresses in their order.
 *
 * Several memories may map an allocation, each at addresses of its own: it is counted, and let go with the
 * last of them. Counts change on any thread.
 */
#ifndef KERNELS_CUDA_MEMORY_MEMORY_CHUNKS_H
#define KERNELS_CUDA_MEMORY_MEMORY_CHUNKS_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdint.h>

#include "kernels/transform/aliases.h"
#include "proto/status.h"

/* An allocation, created or imported. */
struct cuda_chunk {
	CUmemGenericAllocationHandle handle;
	uint64_t size;
	atomic_uint refs;
};

/* All that a memory has of them. */
struct cuda_chunks {
	struct memory_chunks base; /* made when the list is complete */
	uint32_t n;
	uint32_t room;
	struct cuda_chunk **list;
	uint64_t size; /* of all */
};

/* NO_MEMORY when there is no room for n more. */
int cuda_chunks_reserve(struct cuda_chunks *chunks, uint32_t n, struct error *err);

/* Takes the handle over, also on failure. Room must have been reserved. */
int cuda_chunks_add(struct cuda_chunks *chunks, CUmemGenericAllocationHandle handle, uint64_t size,
                    struct error *err);

/* Bytes [offset, offset + size) of what others map, which is complete, by reference. OUT_OF_RANGE, with
 * nothing added, when these are not whole allocations. Both are marked as sharing. */
int cuda_chunks_share(struct cuda_chunks *chunks, struct cuda_chunks *others, uint64_t offset, uint64_t size,
                      struct error *err);

/* When no more are added: INVALID_ARGUMENT when one is there twice. */
int cuda_chunks_complete(struct cuda_chunks *chunks, struct error *err);

/* Lets the last allocation of the list go, with the driver's error. */
int cuda_chunks_drop_last(struct cuda_chunks *chunks, struct error *err);

/* Lets all of them go, whatever the driver says. */
void cuda_chunks_deinit(struct cuda_chunks *chunks);

/* The same without a word to the driver, which is lost. */
void cuda_chunks_leave(struct cuda_chunks *chunks);

#endif
