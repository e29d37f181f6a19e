/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments of kernels: plain structs that kernels/cuda/launch fills, with the same layout on both sides.
 *
 * Dimensions are innermost first (as the Tensor Memory Accelerator counts them) unless said otherwise;
 * strides are bytes; n is the destination's extent. A window: destination index i reads source index i -
 * before where that is in [0, source), and the fill pattern elsewhere.
 *
 * Work is counted in tiles, slots or blocks. A block of threads takes what has its number, then every
 * gridDim.x-th that follows, so that the size of the grid alone decides how many multiprocessors a kernel
 * occupies at most.
 */
#ifndef KERNELS_CUDA_DEVICE_ARGS_H
#define KERNELS_CUDA_DEVICE_ARGS_H

#include <cuda.h>
#include <stdint.h>

#include "kernels/cuda/strategy/permute_args.h"
#include "kernels/nest/border.h"
#include "kernels/transform/amax_scale.h"

/* A tile lies at index[d] in a grid of grid[d] tiles; it is loaded from index * load_step + load_shift and
 * stored to index * store_step + store_shift. A broadcast dimension has one tile in the grid and is stored
 * repeat[d] times, one further each time. */
struct tile_copy_args {
	CUtensorMap load;
	CUtensorMap store;
	uint32_t rank;
	uint32_t tiles;      /* in the grid */
	uint32_t tile_bytes; /* of shared memory, a multiple of 128 */
	uint32_t load_bytes; /* what the barrier is to expect */
	uint32_t repeats;    /* product of repeat */
	uint32_t grid[ARGS_MAP_RANK];
	uint32_t repeat[ARGS_MAP_RANK];
	int32_t load_step[ARGS_MAP_RANK];
	int32_t load_shift[ARGS_MAP_RANK];
	int32_t store_step[ARGS_MAP_RANK];
	int32_t store_shift[ARGS_MAP_RANK];
};

/* The same where the border is not zero: the window as the kernel counts it, dimensions of 1 past the rank.
 */
struct tile_pad_args {
	struct tile_copy_args copy;
	uint64_t src;
	uint32_t mode;
	int32_t scale; /* of the map's elements there are so many in one */
	uint32_t pattern[4] __attribute__((aligned(16)));
	uint32_t box[ARGS_MAP_RANK];
	struct strided_dim dim[ARGS_MAP_RANK];
};

/* Runs of contiguous bytes, one for each index of the outer dimensions. */
struct bulk_copy_args {
	uint64_t dst;
	uint64_t src;
	uint64_t run;    /* bytes, a multiple of 16 */
	uint32_t chunk;  /* bytes of a run that are one tile */
	uint32_t chunks; /* a run: ceil(run / chunk) */
	uint64_t tiles;  /* in all */
	uint32_t rank;   /* of the outer dimensions */
	uint32_t n[ARGS_MAX_RANK];
	int64_t dst_stride[ARGS_MAX_RANK];
	int64_t src_stride[ARGS_MAX_RANK];
};

/* Dimension 0 is contiguous in the source, dimension 1 in the destination. The rows of a tile are 1 <<
 * shift_x indices of dimension 1 for as many of dimension 2 as fill it; its boxes are 1 << shift_y along
 * dimension 0 for as many of dimension 3. Dimensions from the fourth on are the map's last one, each by its
 * step. */
struct tile_transpose_args {
	CUtensorMap load;
	uint64_t dst;
	uint32_t rank; /* of the map */
	uint32_t tiles;
	uint32_t repeats;
	uint32_t shift_x; /* x is dimension 1, y dimension 0: tile_transpose.cu has the legend */
	uint32_t shift_y;
	uint32_t grid[ARGS_GRID_RANK]; /* 1 past the rank, as n */
	uint32_t repeat[ARGS_GRID_RANK];
	uint32_t n[ARGS_GRID_RANK];
	int32_t load_shift[ARGS_MAP_RANK];
	int32_t load_step[ARGS_GRID_RANK]; /* dimensions 2 and up: 0 for a broadcast one */
	int64_t dst_stride[ARGS_GRID_RANK];
};

/* rows: dimension 0 is the innermost of both. tiles: dimension 0 is the destination's innermost, dimension 1
 * the source's. gather: dimensions 0 to run - 1 follow each other in the destination. slots: rows, 32 chunks
 * each; tiles; chunks; short: rows. */
struct strided_args {
	uint64_t dst;
	uint64_t src;
	uint64_t low; /* of the source's rows: what may be read around a chunk */
	uint64_t high;
	uint64_t slots;
	uint64_t run_bytes; /* gather */
	uint32_t rank;
	uint32_t run;    /* 1 to 3 */
	uint32_t whole;  /* no dimension is padded, and none has 2^32 elements */
	uint32_t mode;   /* rows, short: of the pads, enum pad_mode */
	uint32_t rows;   /* short: of a tile */
	uint32_t pitch;  /* short: bytes of a row's slot in shared memory */
	uint32_t lead;   /* elements: numbers ahead of the first, so that warps write whole lines */
	uint32_t follow; /* short: along dimension 1 the source's rows are no further from each other */
	/* The fill, repeated to 16 bytes; read by whole elements. */
	uint32_t pattern[4] __attribute__((aligned(16)));
	struct divisor by_slots; /* rows, gather: slots of one row, of one run; short: chunks of a row */
	struct divisor by_rest;  /* short: elements of a row that are in no chunk, at most */
	struct strided_dim dim[ARGS_MAX_RANK];
	struct divisor by[ARGS_MAX_RANK]; /* tiles: tiles along dimensions 0 and 1; else n */
};

/* Blocks by a list of their numbers, layer after layer: as struct engine_blocks. Addresses are the device's.
 * dst and src of the move are the first block's of the first layer. */
struct block_list {
	uint64_t index;      /* n entries; 0: enclosed, one number each */
	uint64_t dst_layers; /* int64_t, bytes, one a layer; 0: layer_step apart */
	uint64_t src_layers;
	uint64_t dst_layer_step;
	uint64_t src_layer_step;
	uint64_t dst_step;
	uint64_t src_step;
	uint64_t limit;     /* blocks of the indexed side, of src with pairs */
	uint64_t dst_limit; /* blocks of dst with pairs */
	uint64_t
	    counts; /* two uint64_t that entries with a -1 and those beyond a limit are added to; 0: none */
	uint32_t number_bytes;   /* in memory 4 or 8, signed; enclosed 2 or 4, unsigned, none of them being
	                            beyond the limit */
	uint16_t scatter;        /* the list is the destination's */
	uint16_t pairs;          /* 1: an entry is a block of src and one of dst; scatter is then 0 */
	struct divisor by_slots; /* of one block; n 0: there is no list */
	struct divisor by_n;
};

/* One of the moves that one launch does. slots are those of all of its blocks. Packed: the divisors lie after
 * the last dimension of the rank, and by only where the rank is the most. */
struct many_move {
	struct block_list list;
	struct strided_args move;
};

/* Shared memory that the move of a block of threads is copied to. */
#define MANY_SHARED ((uint32_t)(sizeof(struct many_move) + 127) / 128 * 128)

/* So many moves of one kernel. Move i lies which[i] bytes from `moves`, and blocks of threads [first[i],
 * first[i + 1]) are its own. */
struct many_args {
	uint64_t moves; /* addresses; 0: own is the only move */
	uint64_t which; /* uint32_t, n */
	uint64_t first; /* uint32_t, n + 1 */
	uint32_t n;
	uint32_t blocks; /* blocks of threads of all moves together; a smaller grid takes them in turns */
	struct many_move own;
};

/* One run of contiguous bytes on both sides; the parts of all runs, of ROW_BYTES each but the last of a run,
 * are counted through. */
struct run_entry {
	uint64_t dst;
	uint64_t src;
	uint64_t bytes;
	uint64_t first; /* its first part */
};

struct runs_args {
	uint64_t runs; /* address of n entries, none empty */
	uint64_t parts;
	uint64_t
	    scale; /* of a part's number to its run's, where all have as many: n * 2^32 / parts, rounded up */
	uint32_t n;
};

/* Blocks of a list that are each one run of bytes, everything a multiple of 16. The list's by_slots counts a
 * block's parts of ROW_BYTES, slots those of all. */
struct blocks_rows_args {
	struct block_list list;
	uint64_t dst;
	uint64_t src;
	uint64_t run; /* bytes */
	uint64_t slots;
};

/* Lists that are enclosed: short ones, which are with the kernel as soon as its launch is, while bytes sent
 * to memory before it are some 8 us on their way behind a device that is at work. Two sizes, since all of the
 * arguments travel, and the first within the 4096 bytes that cost nothing more. The entries lie where the
 * other size's do. */
#define ENCLOSED_SHORT 2048u /* bytes */
#define ENCLOSED_LONG  16384u

struct blocks_rows_short_args {
	struct blocks_rows_args blocks;
	unsigned char entries[ENCLOSED_SHORT] __attribute__((aligned(16)));
};

struct blocks_rows_long_args {
	struct blocks_rows_args blocks;
	unsigned char entries[ENCLOSED_LONG] __attribute__((aligned(16)));
};

/* As tile_copy, of each block of a list. The maps have the block as dimension block_dim, and where there are
 * layers these as the next. grid and repeat are of one block; the list's by_slots counts its tiles,
 * copy.tiles all of them. */
struct blocks_copy_args {
	struct tile_copy_args copy;
	struct block_list list;
	uint32_t block_dim;
};

struct blocks_copy_short_args {
	struct blocks_copy_args blocks;
	unsigned char entries[ENCLOSED_SHORT] __attribute__((aligned(16)));
};

struct blocks_copy_long_args {
	struct blocks_copy_args blocks;
	unsigned char entries[ENCLOSED_LONG] __attribute__((aligned(16)));
};

/* A dimension of a move that converts, with the strides of its operands; with amax, scale and bias are those
 * of the scales and their inverses, from block to block. */
struct convert_dim {
	int64_t n;
	int64_t dst;
	int64_t src;
	int64_t before;
	int64_t source;
	int64_t scale;
	int64_t bias;
};

struct convert_operand {
	double number;
	uint64_t address; /* of a tensor's element [0, ..., 0]; 0: it is the number */
	uint32_t bytes;   /* of an element, 4 or 8; 0: there is no operand */
	uint32_t unit;    /* what elements are read by, 1 or all of their bytes */
};

/* slots: elements; chunks of 16 bytes of the destination; tiles. Only elements has windows. */
struct convert_args {
	struct block_list list; /* by_slots.n 0: there is none */
	uint64_t dst;
	uint64_t src;
	uint64_t low; /* of the source: what may be read around a chunk */
	uint64_t high;
	uint64_t slots;
	uint64_t ends;    /* chunks: the first slot of the rows' ends, two a row */
	uint64_t changed; /* a uint64_t that elements are counted in whose values change; 0: they are not
	                     counted */
	uint64_t value;   /* of a constant border, its bits */
	struct convert_operand scale;
	struct convert_operand bias;
	uint32_t rank;
	uint32_t packed; /* tiles: a tile has no gap in the source */
	uint32_t woven;  /* tiles: nor in the destination, where its rows are shorter than a chunk */
	uint32_t mode;   /* of the pads, enum pad_mode */
	uint32_t lane;   /* enum arithmetic */
	uint32_t from;   /* enum dtype */
	uint32_t to;
	uint32_t lossy;  /* as is_lossy of a struct conversion */
	uint32_t clamps; /* to what is finite */
	float most; /* Lanes of larger magnitudes, and NaN, are converted one by one. Below 0 all are: where
	               changes are counted, and where an operand lies at no multiple of its size. */
	uint32_t from_bytes;
	uint32_t to_bytes;
	uint32_t from_unit; /* what elements are read by, 1 or all of their bytes */
	uint32_t to_unit;
	uint32_t tile_x;
	uint32_t tile_y;
	uint32_t team;            /* threads of a block of boxes */
	uint32_t pitch;           /* of a row in shared memory */
	struct divisor by_chunks; /* chunks, units: of a row; tiles: of a row in shared memory */
	struct divisor by_x;      /* tiles: chunks, units or elements along dimension 0; woven: elements */
	struct convert_dim dim[ARGS_MAX_RANK];
	struct divisor by[ARGS_MAX_RANK]; /* n; tiles: tiles along dimensions 0 and 1; boxes: blocks */
};

/* A dimension of blocks that get scales. */
struct amax_dim {
	struct divisor by_block; /* elements of a block */
	int64_t skew;            /* that the first block lacks */
	int64_t to_magnitude;    /* from block to block of the magnitudes */
};

enum amax_pass_kind {
	AMAX_PASS_WHOLE,  /* the only one */
	AMAX_PASS_REDUCE, /* the first: looks for the largest magnitudes */
	AMAX_PASS_CONVERT,
};

/* move.slots: tiles; parts of blocks. move.tile_x and tile_y: whole blocks, or a part of one. No list. */
struct amax_args {
	struct convert_args move;
	uint64_t scale; /* addresses of the results of the first block; 0: they are not wanted */
	uint64_t inverse;
	uint64_t magnitudes; /* of all blocks, as float32s' bits, between two passes */
	uint64_t elements;   /* boxes: of a block */
	struct amax_rule rule;
	uint32_t pass;        /* enum amax_pass_kind */
	uint32_t scale_bytes; /* of a result: 4, a float32; 1, a power of two's exponent */
	uint32_t inverse_bytes;
	uint32_t alike; /* tiles: rows are contiguous on both sides */
	uint32_t group; /* units: this many are in one block at least, as a logarithm, at multiples of that */
	uint32_t blocks_x;       /* tiles: blocks of one along dimension 0, at most */
	uint32_t shared_blocks;  /* tiles: bytes of shared memory that blocks have, before the rows */
	struct divisor by_runs;  /* tiles: what a warp reduces at a time of a row in shared memory */
	struct divisor by_run;   /* the same of a block's part of a row */
	struct divisor by_parts; /* boxes: parts of a block */
	struct divisor
	    by_tiles[2]; /* tiles of a block along dimensions 0 and 1: 1 if it is no longer than they are */
	struct amax_dim dim[ARGS_MAX_RANK];
};

/* The elements of the destination that are outside of the window, by the rule of the mode (enum pad_mode). */
struct fill_args {
	struct block_list list; /* by_slots.n is 0 for a tensor without a list */
	uint64_t dst;
	uint64_t src;
	uint64_t tiles; /* of all blocks */
	uint32_t rank;
	uint32_t mode;
	uint32_t pattern[4];
	struct strided_dim dim[ARGS_MAX_RANK];
};

#endif
