/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU's plan for a transform: which strategy moves the window, over which tiles and through which tensor
 * maps, and whether another launch writes the border. Pure: it knows no driver, so it is tested without
 * hardware.
 *
 * Dimensions of struct tma_route_plan are innermost first, as the Tensor Memory Accelerator counts them;
 * those of a loop nest and of struct plan are outermost first.
 */
#ifndef KERNELS_CUDA_STRATEGY_PLAN_H
#define KERNELS_CUDA_STRATEGY_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/explanation.h"
#include "kernels/nest/border.h"
#include "kernels/nest/loop_nest.h"
#include "kernels/plan_key.h"
#include "kernels/transform/family.h"
#include "permute_args.h"
#include "predict.h"
#include "tensor_map.h"
#include "tuning.h"

/* Strategies are numbered in the order of strategies.def. */
enum strategy_id {
#define STRATEGY(name) STRATEGY_##name,
#include "strategies.def"
	STRATEGY_COUNT
};

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

/* These are the sizes of a tile of many axes, in bytes. */
struct permute_sizes {
	double tile;
	double load; /* a run of the source */
	double row;
};

struct tma_route_plan {
	enum strategy_id strategy;
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

/* What a plan depends on, besides the transform. */
struct plan_facts {
	struct copy_speed copy; /* zeros: plans have no predicted time */
	uint32_t threads;       /* multiprocessors */
	uint32_t align;         /* of both base addresses, bytes; what widening may rely on */
	uint8_t dst_phase;      /* of the base addresses: modulo PLAN_PHASE; of a list's blocks, modulo 16 */
	uint8_t src_phase;
	bool spread; /* one of many moves of one launch: no map, and no copy of the driver's */
	bool listed; /* one block of a list: it takes no strategy that only a single move can take */
};

struct plan {
	enum family family;
	int tile_rank;                /* 0 when it moves without tiles */
	int64_t tile[PLAN_TILE_RANK]; /* elements, outermost first */
	const char *swizzle;          /* of the tile in shared memory: "none" */
	int64_t grid;                 /* pieces that can run side by side at most */
	struct loop_nest interior;    /* the whole destination, pads as windows; rank 0 and fill when no
	                                 source is read */
	struct tma_route_plan tma;
	uint64_t n_subregions;
	double predicted; /* time, in units of what a copy of as many bytes takes; 0: not predicted */
	struct family_rules rules;
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

/* Returns whether plan_init takes a few microseconds, rather than up to some hundred. */
bool plan_is_quick(const struct transform *transform, const struct plan_facts *facts);

void plan_init(struct plan *plan, const struct transform *transform, const struct plan_facts *facts);

/* Returns the facts with the alignment and phases of the places. */
struct plan_facts plan_facts_at(const struct plan_facts *facts, struct plan_places places);

/* Returns how long a transform of so many bytes, read plus written, takes by the plan; 0: not predicted. */
double plan_predict_ns(const struct plan *plan, uint64_t bytes, const struct copy_speed *speed);

#endif
