/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of the conformance kernels, which move one tile once, or bytes once between blocks. */
#ifndef TESTS_GPU_CONFORMANCE_CONFORMANCE_ARGS_H
#define TESTS_GPU_CONFORMANCE_CONFORMANCE_ARGS_H

#include <cuda.h>
#include <stdint.h>

#include "kernels/cuda/strategy/tensor_map.h"

#define CONFORMANCE_THREADS 128
#define CONFORMANCE_GUARD   1024 /* bytes of shared memory after the tile, which must not change */
#define CONFORMANCE_POISON  0xa5
#define CONFORMANCE_BARRIER 16 /* bytes for the barrier, after the guard */

/* The values that conformance_load writes to status. */
enum conformance_status {
	CONFORMANCE_NONE,
	CONFORMANCE_ARRIVED,
	CONFORMANCE_LATE, /* the barrier did not receive the expected bytes in time */
};

struct conformance_args {
	CUtensorMap map;
	uint64_t bytes;  /* load: where shared memory is copied to; store: where the tile comes from */
	uint64_t status; /* address of uint32_t values; load: one for each block */
	uint32_t rank;
	uint32_t expect; /* bytes of the tile */
	/* Bytes of shared memory that are copied: the tile's span and, for a load, the guard. */
	uint32_t copied;
	int32_t at[TENSOR_MAP_MAX_RANK];
};

#define CONFORMANCE_MOST_BLOCKS 8

/* The initial value of a word of a block's shared memory. */
#define CONFORMANCE_PATTERN(block, number) (((block) << 24 ^ (uint32_t)(number)) * 0x9e3779b1u)

enum conformance_cluster_way {
	CONFORMANCE_SHARE_TILE,  /* one block loads the tile for the blocks that the mask names */
	CONFORMANCE_SHARE_BYTES, /* one block loads bytes for the blocks that the mask names */
	CONFORMANCE_COPY_BYTES,  /* one block copies bytes to the single block that the mask names */
	CONFORMANCE_CLUSTER_WAYS
};

struct conformance_cluster_args {
	/* Its bytes hold the shared memory of all blocks, one after the other. */
	struct conformance_args tile;
	uint64_t global; /* address of the bytes to load */
	uint32_t way;
	uint32_t issuer;
	uint32_t mask;
	uint32_t from; /* for a copy: offset in shared memory of the source */
	uint32_t to;   /* for bytes: offset in shared memory of the destination */
};

#endif
