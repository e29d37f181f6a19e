/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of the seeds' kernels. Coordinates are in elements, innermost first. */
#ifndef TESTS_SEEDS_ARGS_H
#define TESTS_SEEDS_ARGS_H

#include <cuda.h>
#include <stdint.h>

/* One tile, and the bytes of shared memory that it occupies. */
struct seed_tile_args {
	CUtensorMap map;
	/* Global address where a load kernel writes the bytes and a store kernel reads them. */
	uint64_t bytes_at;
	uint32_t rank;
	uint32_t bytes; /* bytes that are moved */
	uint32_t span;  /* bytes of shared memory that they occupy; a multiple of 16 */
	int32_t c[5];
};

struct seed_bulk_args {
	uint64_t data; /* global address of int32_t values, changed in place */
	uint32_t n;    /* values per block; a multiple of 4 */
};

struct seed_mojo_args {
	CUtensorMap map;
};

/* One tile, or as many contiguous bytes, for the blocks of a cluster that a mask names. */
struct seed_share_args {
	CUtensorMap map;
	/* Global address where the blocks write their shared memory, one after the other. */
	uint64_t bytes_at;
	uint64_t from; /* global address of bytes to load instead of a tile; 0: a tile */
	uint32_t rank;
	uint32_t bytes;
	uint32_t span;
	uint32_t issuer; /* the block that issues the load */
	uint32_t mask;
	int32_t c[5];
};

/* Each block has bytes at `from` in shared memory, which are copied to `to` in another block. */
struct seed_copy_args {
	uint64_t data;     /* global address of a share for each block */
	uint64_t bytes_at; /* global address for what each block received, one after the other */
	uint32_t bytes;
	uint32_t from;
	uint32_t to;
	uint32_t span;
};

struct seed_stages_args {
	uint64_t data;
	uint64_t bytes_at; /* global address for all of data as each block received it, one after the other */
	uint32_t bytes;    /* bytes of a tile */
	uint32_t tiles;
};

/* One axis of a grid of tiles: two dimensions, and the growth of their coordinates from one tile to the
 * next. */
struct seed_move_axis {
	uint32_t tiles;
	uint32_t load_dim;
	uint32_t store_dim;
	int32_t load_step;
	int32_t store_step;
};

/* Tiles of one tensor that are stored as tiles of another. */
struct seed_move_args {
	CUtensorMap load;
	CUtensorMap store;
	uint32_t load_rank;
	uint32_t store_rank;
	uint32_t bytes; /* bytes of a tile; a multiple of 16 */
	uint32_t axes;
	struct seed_move_axis axis[5];
};

#endif
