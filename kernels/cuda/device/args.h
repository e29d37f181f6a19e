/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments of the kernels: plain structs that kernels/cuda/launch fills in, with the same layout for the
 * host and the device.
 *
 * Dimensions are innermost first, as the Tensor Memory Accelerator (TMA) counts them, and strides are in
 * bytes, unless a comment says otherwise; n is the destination's extent. A dimension may have a window: index
 * i of the destination reads index i - before of the source if that is in [0, source), and the fill pattern
 * otherwise. The "phase" of an address is its value modulo 16; a "chunk" is 16 bytes, aligned unless a
 * comment says otherwise.
 *
 * A kernel's work is counted in tiles or slots. Each thread block takes the one with its own number and every
 * gridDim.x-th one after it, so the size of the grid alone bounds the number of multiprocessors that a kernel
 * occupies.
 */
#ifndef KERNELS_CUDA_DEVICE_ARGS_H
#define KERNELS_CUDA_DEVICE_ARGS_H

#include <cuda.h>
#include <stdint.h>

#include "kernels/cuda/strategy/permute_args.h"
#include "kernels/nest/border.h"
#include "kernels/transform/amax_scale.h"

/* Arguments of tile_copy. The grid has grid[d] tiles along dimension d. A tile with index[d] along each
 * dimension is loaded from the coordinates index * load_step + load_shift and stored to index * store_step +
 * store_shift. A broadcast dimension has one tile in the grid, which is stored repeat[d] times at consecutive
 * indices. */
struct tile_copy_args {
	CUtensorMap load;
	CUtensorMap store;
	uint32_t rank;
	uint32_t tiles;      /* number of tiles in the grid */
	uint32_t tile_bytes; /* bytes of shared memory for a tile, a multiple of 128 */
	uint32_t load_bytes; /* bytes that the barrier has to expect */
	uint32_t repeats;    /* product of repeat */
	uint32_t grid[ARGS_MAP_RANK];
	uint32_t repeat[ARGS_MAP_RANK];
	int32_t load_step[ARGS_MAP_RANK];
	int32_t load_shift[ARGS_MAP_RANK];
	int32_t store_step[ARGS_MAP_RANK];
	int32_t store_shift[ARGS_MAP_RANK];
};

/* Arguments of tile_pad, for a border that is not zero. box is the extent of a tile and dim describes the
 * dimensions, both in the kernel's elements. Beyond the rank, both have one index. */
struct tile_pad_args {
	struct tile_copy_args copy;
	uint64_t src;
	uint32_t mode;
	int32_t scale; /* number of the map's elements in one of the kernel's elements */
	uint32_t pattern[4] __attribute__((aligned(16)));
	uint32_t box[ARGS_MAP_RANK];
	struct strided_dim dim[ARGS_MAP_RANK];
};

/* Arguments of bulk_copy. There is a run of contiguous bytes for each index of the outer dimensions. */
struct bulk_copy_args {
	uint64_t dst;
	uint64_t src;
	uint64_t run;    /* bytes; a multiple of 16 */
	uint32_t chunk;  /* bytes of a run that make a tile */
	uint32_t chunks; /* number of tiles of a run: ceil(run / chunk) */
	uint64_t tiles;  /* total number of tiles */
	uint32_t rank;   /* number of outer dimensions */
	uint32_t n[ARGS_MAX_RANK];
	int64_t dst_stride[ARGS_MAX_RANK];
	int64_t src_stride[ARGS_MAX_RANK];
};

/* Arguments of tile_transpose. Dimension 0 is contiguous in the source, dimension 1 in the destination. A
 * tile has 1 << shift_x indices of dimension 1 and as many of dimension 2 as fill its rows. It has 1 <<
 * shift_y boxes along dimension 0 and as many along dimension 3 as complete it. If the map has five
 * dimensions, the last of them stands for dimension 4 and all after it, each of which has its own step
 * there. */
struct tile_transpose_args {
	CUtensorMap load;
	uint64_t dst;
	uint32_t rank; /* rank of the map */
	uint32_t tiles;
	uint32_t repeats;
	/* Axis x is dimension 1 and y is dimension 0; tile_transpose.cu explains the axes. */
	uint32_t shift_x;
	uint32_t shift_y;
	uint32_t grid[ARGS_GRID_RANK]; /* 1 beyond the rank, as are repeat and n */
	uint32_t repeat[ARGS_GRID_RANK];
	uint32_t n[ARGS_GRID_RANK];
	int32_t load_shift[ARGS_MAP_RANK];
	int32_t load_step[ARGS_GRID_RANK]; /* for dimensions 2 and up; 0 for a broadcast one */
	int64_t dst_stride[ARGS_GRID_RANK];
};

/* Arguments of the kernels without a tensor map. Rows and short: dimension 0 is the innermost of both sides.
 * Tiles: dimension 0 is the destination's innermost and dimension 1 the source's. Gather: the first `run`
 * dimensions follow each other in the destination. The slots are parts of rows (rows), rows (short), tiles
 * (tiles), chunks (gather), groups of 32 units (channels) or elements (elements). */
struct strided_args {
	uint64_t dst;
	uint64_t src;
	/* Only memory in [low, high) may be read. */
	uint64_t low;
	uint64_t high;
	uint64_t slots;
	uint64_t run_bytes; /* gather: bytes of a run */
	uint32_t rank;
	/* Gather: number of dimensions, 1 to 3, that follow each other in the destination. Elements: the
	 * same, 0 to rank. Channels: number of channels. */
	uint32_t run;
	uint32_t whole; /* same meaning as tma_route_plan.whole */
	uint32_t mode;  /* rows, short: enum pad_mode */
	uint32_t rows;  /* short: rows of a tile */
	uint32_t pitch; /* short: bytes from one row to the next in shared memory */
	/* Elements: number of unused slots before the first element, so that warps write whole lines. */
	uint32_t lead;
	/* Short: rows of the source follow each other along dimension 1, at most `pitch` bytes apart. */
	uint32_t follow;
	/* The fill, repeated to 16 bytes. Kernels read it by whole elements. */
	uint32_t pattern[4] __attribute__((aligned(16)));
	/* Divides by the slots of a row (rows) or of a run (gather), or by the chunks of a row (short). */
	struct divisor by_slots;
	/* Divides by the maximum number of elements of a row outside its whole chunks (short). */
	struct divisor by_rest;
	struct strided_dim dim[ARGS_MAX_RANK];
	/* Divides by n; tiles: by the number of tiles along dimensions 0 and 1. */
	struct divisor by[ARGS_MAX_RANK];
};

/* A list of the blocks to move, layer by layer (struct engine_blocks). All addresses are the device's. The
 * dst and src of the move are those of block 0 of the first layer. */
struct block_list {
	/* Address of n entries; 0: the list is enclosed in the arguments, with one number for each entry. */
	uint64_t index;
	/* Address of one int64_t offset in bytes for each layer; 0: layers are dst_layer_step apart. */
	uint64_t dst_layers;
	uint64_t src_layers;
	uint64_t dst_layer_step;
	uint64_t src_layer_step;
	uint64_t dst_step;
	uint64_t src_step;
	uint64_t limit;     /* number of blocks of the indexed side; with pairs, of src */
	uint64_t dst_limit; /* with pairs: number of blocks of dst */
	/* Address of two uint64_t counters: of entries with a -1, and of other entries that name no block. 0:
	 * entries are not counted. */
	uint64_t counts;
	/* Bytes of a number. Numbers in memory are signed and have 4 or 8 bytes. Enclosed numbers are
	 * unsigned and have 2 or 4 bytes; all bits are set in an entry that is to be skipped. */
	uint32_t number_bytes;
	uint16_t scatter; /* 1: the list indexes blocks of the destination; 0: of the source */
	/* 1: an entry has the number of a block of src and that of a block of dst, and scatter is 0. */
	uint16_t pairs;
	struct divisor by_slots; /* divides by the slots of one block; n == 0: there is no list */
	struct divisor by_n;
};

/* One of the moves of a launch. move.slots counts the slots of all of its blocks. The struct is packed: the
 * divisors follow dim[rank - 1] directly, and are at `by` only for the maximum rank. */
struct many_move {
	struct block_list list;
	struct strided_args move;
};

/* The bytes of shared memory that a copy of a thread block's move takes. */
#define MANY_SHARED ((uint32_t)(sizeof(struct many_move) + 127) / 128 * 128)

/* Arguments of a kernel that does n moves. The entry of move i is which[i] bytes after `moves`, and thread
 * blocks first[i] to first[i + 1] - 1 work on it. */
struct many_args {
	uint64_t moves; /* address of the entries; 0: `own` is the only move */
	uint64_t which; /* address of n uint32_t */
	uint64_t first; /* address of n + 1 uint32_t */
	uint32_t n;
	/* Total number of thread blocks of all moves. If the grid has fewer, they take several turns. */
	uint32_t blocks;
	struct many_move own;
};

/* A run of contiguous bytes on both sides. A run consists of parts of ROW_BYTES, the last of which may be
 * shorter. Parts are numbered consecutively over all runs. */
struct run_entry {
	uint64_t dst;
	uint64_t src;
	uint64_t bytes;
	uint64_t first; /* number of its first part */
};

struct runs_args {
	uint64_t runs; /* address of n entries, none of which is empty */
	uint64_t parts;
	/* Factor that turns the number of a part into that of its run if all runs have equally many parts: n
	 * * 2^32 / parts, rounded up. */
	uint64_t scale;
	uint32_t n;
};

/* Arguments for blocks of a list that are each one run of bytes; addresses and sizes are multiples of 16.
 * list.by_slots divides by the parts of ROW_BYTES of one block, and slots is the number of parts of all
 * blocks. */
struct blocks_rows_args {
	struct block_list list;
	uint64_t dst;
	uint64_t src;
	uint64_t run; /* bytes */
	uint64_t slots;
};

/* The following structs enclose a short list in the arguments, which arrive with the launch. A copy of the
 * list to the device's memory before the launch would take some 8 us if the device is busy. There are two
 * sizes because all bytes of the arguments are sent, used or not. With the smaller one, the arguments fit in
 * 4096 bytes, which cost no extra time. The entries have the same offset in both. */
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

/* Arguments of blocks_copy, which moves each block of a list as tile_copy does. The maps have the block
 * number as dimension block_dim and, if there are several layers, the layer as the next dimension. grid and
 * repeat describe one block; list.by_slots divides by its tiles, and copy.tiles is the number of tiles of all
 * blocks. */
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

/* A dimension of a move that converts. scale and bias are strides of the operands in bytes; with amax, they
 * are the bytes from one scaling block's scale, or inverse, to the next. */
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
	uint64_t address; /* address of the tensor's element [0, ..., 0]; 0: `number` is the operand */
	uint32_t bytes;   /* bytes of an element, 4 or 8; 0: there is no operand */
	uint32_t unit;    /* bytes of an access: 1, or all bytes of an element */
};

/* Arguments of a move that converts. The slots are elements, chunks of the destination, units or tiles. Only
 * the kernel for elements has windows. */
struct convert_args {
	struct block_list list; /* by_slots.n == 0: there is no list */
	uint64_t dst;
	uint64_t src;
	/* Only memory of the source in [low, high) may be read. */
	uint64_t low;
	uint64_t high;
	uint64_t slots;
	/* Chunks: number of the first of the slots for the rows' ends, of which each row has two. */
	uint64_t ends;
	/* Address of a uint64_t to which the number of elements whose value changes is added; 0: they are not
	 * counted. */
	uint64_t changed;
	uint64_t value; /* bits of the value of a constant border */
	struct convert_operand scale;
	struct convert_operand bias;
	uint32_t rank;
	uint32_t packed; /* tiles: a tile has no gap in the source */
	/* Tiles: a tile has no gap in the destination, whose rows are shorter than a chunk. */
	uint32_t woven;
	uint32_t mode; /* enum pad_mode */
	uint32_t lane; /* enum arithmetic */
	uint32_t from; /* enum dtype */
	uint32_t to;
	uint32_t lossy;  /* is_lossy of struct conversion */
	uint32_t clamps; /* values are clamped to finite ones */
	/* Lanes of a larger magnitude, and NaN, are converted one by one. If the value is negative, all lanes
	 * are; that is so where changes are counted and where an operand is not aligned to its size. */
	float most;
	uint32_t from_bytes;
	uint32_t to_bytes;
	uint32_t from_unit; /* bytes of an access: 1, or all bytes of an element */
	uint32_t to_unit;
	uint32_t tile_x;
	uint32_t tile_y;
	uint32_t team;  /* boxes: threads that work on a scaling block */
	uint32_t pitch; /* tiles: bytes from one row to the next in shared memory */
	/* Divides by the chunks or units of a row; tiles: by the chunks of a row in shared memory. */
	struct divisor by_chunks;
	/* Tiles: divides by the chunks, units or elements along dimension 0; woven: by the elements. */
	struct divisor by_x;
	struct convert_dim dim[ARGS_MAX_RANK];
	/* Divides by n; tiles: by the tiles along dimensions 0 and 1; boxes: by the scaling blocks. */
	struct divisor by[ARGS_MAX_RANK];
};

/* A dimension of a move that computes the scales of its scaling blocks. */
struct amax_dim {
	struct divisor by_block; /* divides by the elements of a scaling block */
	int64_t skew;            /* number of elements that the first scaling block lacks */
	int64_t to_magnitude;    /* magnitudes from one scaling block to the next */
};

enum amax_pass_kind {
	AMAX_PASS_WHOLE,  /* the only pass */
	AMAX_PASS_REDUCE, /* the first of two passes, which finds the largest magnitudes */
	AMAX_PASS_CONVERT,
};

/* Arguments of a move that computes scales. move.slots counts tiles or parts of scaling blocks. move.tile_x
 * and move.tile_y are whole scaling blocks, or a part of one. There is no list. */
struct amax_args {
	struct convert_args move;
	/* Address of the first scaling block's scale; inverse: of its inverse; 0: it is not wanted. */
	uint64_t scale;
	uint64_t inverse;
	/* Address of the magnitudes of all scaling blocks, as bits of float32, between two passes. */
	uint64_t magnitudes;
	uint64_t elements; /* boxes: elements of a scaling block */
	struct amax_rule rule;
	uint32_t pass; /* enum amax_pass_kind */
	/* Bytes of a scale: 4 for a float32, 1 for the exponent of a power of two. */
	uint32_t scale_bytes;
	uint32_t inverse_bytes;
	uint32_t alike; /* tiles: rows are contiguous on both sides */
	/* Units: 1 << group consecutive units lie in one scaling block if the number of the first is a
	 * multiple of 1 << group. */
	uint32_t group;
	uint32_t blocks_x; /* tiles: maximum number of scaling blocks of a tile along dimension 0 */
	/* Tiles: bytes of shared memory for the scaling blocks, which precede the rows. */
	uint32_t shared_blocks;
	/* Tiles: divides by the runs of a row in shared memory; a warp reduces one run at a time. */
	struct divisor by_runs;
	struct divisor by_run;   /* tiles: divides by the runs of one scaling block's part of a row */
	struct divisor by_parts; /* boxes: divides by the parts of a scaling block */
	/* Divides by the tiles of a scaling block along dimensions 0 and 1; 1 if the block is no longer than
	 * a tile. */
	struct divisor by_tiles[2];
	struct amax_dim dim[ARGS_MAX_RANK];
};

/* Arguments of fill, which writes the elements of the destination outside the window by the rule of the mode
 * (enum pad_mode). */
struct fill_args {
	struct block_list list; /* by_slots.n == 0: there is no list */
	uint64_t dst;
	uint64_t src;
	uint64_t tiles; /* number of tiles of all blocks */
	uint32_t rank;
	uint32_t mode;
	uint32_t pattern[4];
	struct strided_dim dim[ARGS_MAX_RANK];
};

#endif
