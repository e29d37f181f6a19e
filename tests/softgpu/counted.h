/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels whose instructions and sectors can be counted by hand: what they are called with. */
#ifndef TESTS_SOFTGPU_COUNTED_H
#define TESTS_SOFTGPU_COUNTED_H

#include <cuda.h>
#include <stdint.h>

enum counted_what {
	COUNTED_GLOBAL_READ,
	COUNTED_GLOBAL_WRITE,
	COUNTED_SHARED_READ,
	COUNTED_SHARED_WRITE,
	COUNTED_SKIPS,    /* writes in COUNTED_LOOP iterations; lane i skips iteration i % COUNTED_LOOP */
	COUNTED_TRIPS,    /* writes in i % COUNTED_LOOP iterations, then reads in COUNTED_LOOP */
	COUNTED_BRANCHES, /* odd lanes write on one line, even ones on another */
	COUNTED_CALLS,    /* two writes on one line */
	COUNTED_ADDS,     /* all lanes to one word */
	COUNTED_MEETINGS, /* one of each kind, and a shuffle */
	COUNTED_TILE,     /* load and store */
	COUNTED_BULK,     /* two loads of stride bytes at once, one after them, and a store */
	COUNTED_STORE,    /* a copy of COUNTED_WORDS words to those that follow them */
	COUNTED_UNCOALESCED_STORE, /* the same, but each thread stores words that are side by side */
	COUNTED_MULTICAST,         /* counted_cluster: each block loads stride bytes for all */
	COUNTED_COPIES             /* the same: the first one alone loads, then copies to each other */
};

#define COUNTED_LOOP   4
#define COUNTED_SHARED (64 << 10)
#define COUNTED_WORDS  256

/* Lane i accesses size bytes at base + i * stride: of global memory, or of shared memory with base 0. */
struct counted_args {
	CUtensorMap map; /* COUNTED_TILE, of two dimensions; the tile at [0, row] */
	uint64_t base;
	uint32_t what; /* enum counted_what */
	uint32_t size;
	uint32_t stride;
	uint32_t tile_bytes;
	int32_t row;
};

#endif
