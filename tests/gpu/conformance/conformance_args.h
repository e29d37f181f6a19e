/* SPDX-License-Identifier: Apache-2.0 */
/* What the conformance kernels are called with: one tile, moved once. */
#ifndef TESTS_GPU_CONFORMANCE_CONFORMANCE_ARGS_H
#define TESTS_GPU_CONFORMANCE_CONFORMANCE_ARGS_H

#include <cuda.h>
#include <stdint.h>

#include "kernels/plan/tensor_map.h"

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
	uint64_t status; /* uint32_t; load */
	uint32_t rank;
	uint32_t expect; /* bytes of the tile */
	uint32_t copied; /* bytes of shared memory: the tile's span, and for a load the guard */
	int32_t at[TENSOR_MAP_MAX_RANK];
};

#endif
