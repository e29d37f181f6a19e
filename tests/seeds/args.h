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

/* One tile or as many bytes, for the blocks of a cluster that a mask names. */
struct seed_share_args {
	CUtensorMap map;
	uint64_t bytes_at; /* global: each block writes its shared memory there, one after the other */
	uint64_t from;     /* global: bytes in place of a tile; or 0 */
	uint32_t rank;
	uint32_t bytes;
	uint32_t span;
	uint32_t issuer; /* the block that loads */
	uint32_t mask;
	int32_t c[5];
};

/* Shared memory of each block: bytes at from, then to, to be copied into another block's. */
struct seed_copy_args {
	uint64_t data;     /* global: a share for each block */
	uint64_t bytes_at; /* global: what each block got, one after the other */
	uint32_t bytes;
	uint32_t from;
	uint32_t to;
	uint32_t span;
};

struct seed_stages_args {
	uint64_t data;
	uint64_t bytes_at; /* global: all of data as each block saw it, one after the other */
	uint32_t bytes;    /* a tile */
	uint32_t tiles;
};

/* One axis of a grid of tiles: two dimensions, and by how much the coordinates grow from one tile to the
 * next. */
struct seed_move_axis {
	uint32_t tiles;
	uint32_t load_dim;
	uint32_t store_dim;
	int32_t load_step;
	int32_t store_step;
};

/* Tiles of one tensor that become tiles of another. */
struct seed_move_args {
	CUtensorMap load;
	CUtensorMap store;
	uint32_t load_rank;
	uint32_t store_rank;
	uint32_t bytes; /* of a tile; a multiple of 16 */
	uint32_t axes;
	struct seed_move_axis axis[5];
};

#endif
