/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of kernels whose instructions and sectors can be counted by hand (counted.cu). */
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
	COUNTED_ADDS,     /* atomic additions of all lanes to one word */
	COUNTED_MEETINGS, /* one synchronization of each kind, and a shuffle */
	COUNTED_TILE,     /* a tile load and a tile store */
	COUNTED_BULK,     /* two concurrent bulk loads of stride bytes, one after them, and a bulk store */
	COUNTED_STORE,    /* copies COUNTED_WORDS words to the words that follow them */
	COUNTED_UNCOALESCED_STORE, /* COUNTED_STORE, but each thread stores consecutive words */
	COUNTED_MULTICAST,         /* counted_cluster: each block loads stride bytes for all blocks */
	COUNTED_COPIES             /* counted_cluster: block 0 alone loads, then copies to each other block */
};

#define COUNTED_LOOP   4
#define COUNTED_SHARED (64 << 10)
#define COUNTED_WORDS  256

/* Lane i accesses size bytes at base + i * stride. base is an address of global memory, or 0 for shared
 * memory. */
struct counted_args {
	CUtensorMap map; /* for COUNTED_TILE: a map of two dimensions; the tile starts at [0, row] */
	uint64_t base;
	uint32_t what; /* enum counted_what */
	uint32_t size;
	uint32_t stride;
	uint32_t tile_bytes;
	int32_t row;
};

#endif
