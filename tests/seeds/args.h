/* SPDX-License-Identifier: Apache-2.0 */
/* What the seeds' kernels are called with. Coordinates are elements, innermost first. */
#ifndef TESTS_SEEDS_ARGS_H
#define TESTS_SEEDS_ARGS_H

#include <cuda.h>
#include <stdint.h>

/* One tile and the bytes of shared memory that it takes, as they lie there. */
struct seed_tile_args {
	CUtensorMap map;
	uint64_t bytes_at; /* global: load writes them there, store reads them from there */
	uint32_t rank;
	uint32_t bytes; /* that are moved */
	uint32_t span;  /* of shared memory, that they lie in; a multiple of 16 */
	int32_t c[5];
};

struct seed_bulk_args {
	uint64_t data; /* int32_t, changed in place */
	uint32_t n;    /* a block's share: a multiple of 4 */
};

struct seed_mojo_args {
	CUtensorMap map;
};

#endif
