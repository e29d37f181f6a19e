/* SPDX-License-Identifier: Apache-2.0 */
/* The plan for the Tensor Memory Accelerator: which kernel moves the window, over which tiles and through
 * which tensor maps, and whether another one writes the border. Pure: knows no driver, so it is tested
 * without hardware.
 *
 * Dimensions are innermost first here, as the unit counts them; those of a loop nest are outermost first.
 */
#ifndef KERNELS_PLAN_TMA_PLAN_H
#define KERNELS_PLAN_TMA_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "border.h"
#include "permute.h"
#include "tuning.h"
#include "tensor_map.h"

struct alternatives;
struct plan;
struct plan_facts;
struct transform;

enum tma_route {
	TMA_ROUTE_NONE,      /* no element of the source is read */
	TMA_ROUTE_MEMCPY,    /* one run: the driver's own copy, or rows by threads; blocks_rows for each of a
	                        list */
	TMA_ROUTE_BULK,      /* long runs, no map */
	TMA_ROUTE_COPY,      /* map to map */
	TMA_ROUTE_TRANSPOSE, /* map, registers, plain stores */
	TMA_ROUTE_ROWS,      /* without a map: contiguous on both sides */
	TMA_ROUTE_SHORT,     /* the same, several rows at a time */
	TMA_ROUTE_TILES,
	TMA_ROUTE_GATHER,
	TMA_ROUTE_CHANNELS, /* a few, together on one side and apart on the other */
	TMA_ROUTE_PERMUTE,  /* tiles of many axes */
	TMA_ROUTE_ELEMENTS, /* wide elements one by one */
	TMA_ROUTE_CONVERT,  /* elements become others */
};

#define TMA_ROUTES (TMA_ROUTE_CONVERT + 1)

/* How elements are converted. */
enum tma_convert_how {
	TMA_CONVERT_ELEMENTS, /* one by one, pads of any mode included */
	TMA_CONVERT_CHUNKS,   /* rows of the destination, 16 bytes at a time */
	TMA_CONVERT_TILES, /* by way of shared memory: contiguous along dimension 0 in the destination, along
	                      dimension 1 in the source */
	TMA_CONVERT_CHANNELS, /* rows of the destination, as chunks: pixels of bytes along dimension 0, their
	                         channels along dimension 1 */
	TMA_CONVERT_AMAX_TILES, /* with scales: by way of shared memory, too; or along dimension 0 on both
	                           sides */
	TMA_CONVERT_AMAX_BOXES, /* with scales: block by block, one element after the other */
};

/* Blocks and where their scales go. Two passes: one that looks for the largest magnitudes, one that converts.
 */
struct tma_amax_plan {
	bool two_passes;
	bool alike; /* tiles: rows are contiguous on both sides */
	uint64_t blocks;
	uint64_t elements; /* boxes: of a block, and in how many parts it is done */
	uint64_t parts;
	int64_t scale_offset; /* bytes from the results' elements [0, ..., 0] */
	int64_t inverse_offset;
	int64_t block[ARGS_MAX_RANK]; /* as in a loop nest, as dim */
	int64_t skew[ARGS_MAX_RANK];
	int64_t to_scale[ARGS_MAX_RANK];
	int64_t to_inverse[ARGS_MAX_RANK];
};

struct tma_convert {
	enum tma_convert_how how;
	uint32_t tile_x; /* elements of a tile along dimensions 0 and 1 */
	uint32_t tile_y;
	bool packed;          /* a tile has no gap in the source */
	bool woven;           /* nor in the destination, where its rows are short */
	int64_t scale_offset; /* bytes from an operand's element [0, ..., 0] */
	int64_t bias_offset;
	int64_t scale[ARGS_MAX_RANK]; /* strides, bytes, as dim */
	int64_t bias[ARGS_MAX_RANK];
	struct tma_amax_plan amax;
};

/* Of a tile of many axes, in bytes. */
struct permute_sizes {
	double tile;
	double load; /* a run of the source */
	double row;
};

struct tma_route_plan {
	enum tma_route route;
	uint32_t element; /* bytes, of the kernel; rows and tiles: at most the alignment */
	uint32_t rank;
	int64_t dst_offset; /* bytes from element [0, ..., 0]: where the map or the kernel starts */
	int64_t src_offset;
	uint64_t tiles;
	uint64_t repeats; /* stores of a tile */

	/* BULK, ROWS and TILES: dim; for BULK the first is the run, in bytes. */
	struct strided_dim dim[ARGS_MAX_RANK];
	uint32_t chunk; /* BULK: bytes of a tile */
	uint32_t run;   /* GATHER: dimensions that follow each other in the destination; CHANNELS: channels */
	uint64_t slots; /* ROWS, GATHER, CHANNELS, CONVERT: of one row, of one run, of the pixels; SHORT:
	                   chunks of a row */
	bool whole;     /* no dimension is padded, and none has 2^32 elements */

	/* COPY and TRANSPOSE: see tile_copy_args and tile_transpose_args. TILES: grid alone. */
	struct tensor_map_layout load;
	struct tensor_map_layout store;
	uint32_t grid[ARGS_GRID_RANK]; /* 1 past the rank, as repeat */
	uint32_t repeat[ARGS_GRID_RANK];
	int32_t load_step[ARGS_GRID_RANK];
	int32_t load_shift[ARGS_MAP_RANK];
	int32_t store_step[ARGS_MAP_RANK];
	int32_t store_shift[ARGS_MAP_RANK];
	uint32_t shift_x; /* TRANSPOSE: the tile's extent along dimension 1, and its boxes along dimension 0,
	                     as logarithms */
	uint32_t shift_y;

	double cost; /* PERMUTE: predicted time, in units of what a copy of as many bytes takes */
	struct permute_sizes sizes; /* PERMUTE */
	bool alike;                 /* PERMUTE: runs of both sides begin with the same dimension */
	bool patched;               /* COPY: the border is written into the tiles */

	/* The border, where it is written after the window: its dimensions, or rank 0 for none. */
	uint32_t border_rank;
	uint32_t border_element;
	uint64_t border_tiles;
	int64_t border_dst_offset;
	int64_t border_src_offset;
	struct strided_dim border[ARGS_MAX_RANK];

	union {
		struct permute_args permute; /* PERMUTE: but for the addresses */
		struct tma_convert convert;  /* CONVERT; tiles: slots of its kernel */
	};
};

/* From one row of a tile with scales to the next in shared memory: room for any phase. Rows that are written
 * as they lie are read in pieces of 16 bytes; others begin in different banks. */
static inline uint64_t amax_pitch(uint64_t row_bytes, bool alike)
{
	return (row_bytes + 15) / 16 * 16 + (alike ? 16 : 20);
}

/* Blocks along a dimension of n elements, and tiles, which begin anew with each block that is longer than
 * they are. */
static inline uint64_t amax_blocks(int64_t n, int64_t skew, int64_t block)
{
	return ((uint64_t)(n + skew) + (uint64_t)block - 1) / (uint64_t)block;
}

static inline uint64_t amax_tiles(int64_t n, int64_t skew, int64_t block, uint32_t tile)
{
	return tile < block ? amax_blocks(n, skew, block) * amax_blocks(block, 0, tile)
	                    : amax_blocks(n, skew, tile);
}

/* Tiles in elements, x along the destination and y along the source; the transpose kernel's are fixed by its
 * registers. */
static inline uint32_t transpose_tile_x(uint32_t element)
{
	return TRANSPOSE_X_BYTES / element;
}
static inline uint32_t transpose_tile_y(uint32_t element)
{
	return TRANSPOSE_TILE_BYTES / element / transpose_tile_x(element);
}

/* One index, contiguous. */
static inline struct strided_dim tma_unit_dim(uint32_t element)
{
	return (struct strided_dim){ .n = 1, .dst = element, .src = element, .source = 1 };
}

/* Shared memory for pixels of so many channels. */
static inline uint32_t strided_channel_bytes(uint32_t channels)
{
	return ROWS_THREADS * (channels | 1) * 16;
}

/* The value of a constant border over and over, as it lies in an aligned chunk of a destination that has an
 * element at this address: a plan may serve several. */
void tma_fill_pattern(const struct transform *t, uint64_t dst, uint32_t ret[4]);

/* As plan_init, for facts->tma. */
void tma_plan_init(struct plan *plan, const struct transform *transform, const struct plan_facts *facts);

/* Adds to the list, which has the chosen plan, the others that tma_plan_init considers and some that it need
 * not. */
void tma_plan_alternatives(struct alternatives *list, const struct transform *transform,
                           const struct plan_facts *facts);

#endif
