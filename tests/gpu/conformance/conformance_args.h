/* SPDX-License-Identifier: Apache-2.0 */
/* What the conformance kernels are called with: one tile, moved once; or bytes, moved once between blocks. */
#ifndef TESTS_GPU_CONFORMANCE_CONFORMANCE_ARGS_H
#define TESTS_GPU_CONFORMANCE_CONFORMANCE_ARGS_H

#include <cuda.h>
#include <stdint.h>

#include "kernels/cuda/strategy/tensor_map.h"

#define CONFORMANCE_THREADS 128
#define CONFORMANCE_GUARD   1024 /* bytes of shared memory after the tile */
#define CONFORMANCE_POISON  0xa5
#define CONFORMANCE_BARRIER 16 /* bytes for it, after the guard */

/* What conformance_load leaves at status. */
enum conformance_status {
	CONFORMANCE_NONE,
	CONFORMANCE_ARRIVED,
	CONFORMANCE_LATE, /* the barrier did not get the bytes that it was to expect */
};

struct conformance_args {
	CUtensorMap map;
	uint64_t bytes;  /* load: where shared memory is copied to; store: what the tile is filled from */
	uint64_t status; /* uint32_t; load: one for each block */
	uint32_t rank;
	uint32_t expect; /* bytes of the tile */
	uint32_t copied; /* bytes of shared memory: the tile's span, and for a load the guard */
	int32_t at[TENSOR_MAP_MAX_RANK];
};

#define CONFORMANCE_MOST_BLOCKS 8

/* Word number of a block's shared memory, before. */
#define CONFORMANCE_PATTERN(block, number) (((block) << 24 ^ (uint32_t)(number)) * 0x9e3779b1u)

enum conformance_cluster_way {
	CONFORMANCE_SHARE_TILE,  /* one block loads the tile for those that the mask names */
	CONFORMANCE_SHARE_BYTES, /* the same with bytes */
	CONFORMANCE_COPY_BYTES,  /* one block copies bytes to the only one that the mask names */
	CONFORMANCE_CLUSTER_WAYS
};

struct conformance_cluster_args {
	struct conformance_args tile; /* bytes: of all blocks, one after the other */
	uint64_t global;              /* bytes to share */
	uint32_t way;
	uint32_t issuer;
	uint32_t mask;
	uint32_t from; /* of shared memory; copy */
	uint32_t to;   /* the same, of bytes */
};

#endif
