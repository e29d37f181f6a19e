/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU's plan for a transform says which strategy moves the window, over which tiles and through which
 * tensor maps, and whether another launch writes the border. Pure: it knows no driver, so it is tested
 * without hardware.
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
#include "kernels/transform/transform.h"
#include "permute_args.h"
#include "tensor_map.h"
#include "tuning.h"

struct engine_blocks;

/* ---- Predictions --------------------------------------------------------------------------------------- */

/* How long a plan will take on a device is what it costs next to a copy, times what the device's own copy
 * takes.
 *
 * The speed of a copy is computed from the device's memory clock and bus, not measured when an engine starts:
 * the figure is then the same at every start, whoever else uses the device, and needs no memory of a device
 * that is full. Data is taken to be in no cache.
 */

/* The speed of a device's own copy from its memory to its memory. */
struct copy_speed {
	double bytes_per_ns; /* read plus written; 0: not known */
	double fixed_ns;     /* time of a copy of any size, between events before and after it */
};

/* Returns the speed by the clock of memory that transfers twice a cycle, and by the width of its bus. Either
 * may be 0 if it is not known. */
struct copy_speed copy_speed_of(uint32_t memory_khz, uint32_t bus_bits);

/* Returns how long a copy takes that reads and writes so many bytes, or 0 if that is not known. */
double copy_speed_ns(const struct copy_speed *speed, uint64_t bytes);

/* ---- Plans --------------------------------------------------------------------------------------------- */

/* Strategies are numbered in the order of strategies.def. */
enum strategy_id {
#define STRATEGY(name) STRATEGY_##name,
#include "strategies.def"
	STRATEGY_COUNT
};

/* A conversion goes by one of these ways. */
enum tma_convert_how {
	TMA_CONVERT_ELEMENTS, /* one by one, pads of any mode included */
	TMA_CONVERT_CHUNKS,   /* rows of the destination, 16 bytes at a time */
	/* Tiles go by way of shared memory: contiguous along dimension 0 in the destination, along dimension
	 * 1 in the source. */
	TMA_CONVERT_TILES,
	/* Rows of the destination are written in chunks: pixels of bytes along dimension 0, their channels
	 * along dimension 1. */
	TMA_CONVERT_CHANNELS,
	/* With scales, tiles go by way of shared memory as well; rows may also be contiguous along dimension
	 * 0 on both sides. */
	TMA_CONVERT_AMAX_TILES,
	TMA_CONVERT_AMAX_BOXES, /* with scales, block by block, one element after the other */
};

/* The blocks of a conversion, and where their scales go. If there are two passes, one finds the largest
 * magnitudes and the other converts. */
struct tma_amax_plan {
	bool two_passes;
	bool alike; /* tiles: rows are contiguous on both sides */
	uint64_t blocks;
	uint64_t elements; /* boxes: elements of a block, which is done in `parts` parts */
	uint64_t parts;
	int64_t scale_offset; /* bytes from the results' elements [0, ..., 0] */
	int64_t inverse_offset;
	int64_t block[ARGS_MAX_RANK]; /* as in a loop nest, in the order of dim */
	int64_t skew[ARGS_MAX_RANK];
	int64_t to_scale[ARGS_MAX_RANK];
	int64_t to_inverse[ARGS_MAX_RANK];
};

struct tma_convert {
	enum tma_convert_how how;
	uint32_t tile_x; /* elements of a tile along dimensions 0 and 1 */
	uint32_t tile_y;
	bool packed;          /* A tile has no gaps in the source. */
	bool woven;           /* A tile has none in the destination either, where its rows are short. */
	int64_t scale_offset; /* bytes from an operand's element [0, ..., 0] */
	int64_t bias_offset;
	int64_t scale[ARGS_MAX_RANK]; /* strides in bytes, in the order of dim */
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
	uint32_t element; /* bytes of the kernel's elements; rows and tiles: at most the alignment */
	uint32_t rank;
	int64_t dst_offset; /* bytes from element [0, ..., 0]: where the map or the kernel starts */
	int64_t src_offset;
	uint64_t tiles;
	uint64_t repeats; /* how many times a tile is stored */

	/* BULK, ROWS and TILES use dim; for BULK its first dimension is the run, in bytes. */
	struct strided_dim dim[ARGS_MAX_RANK];
	uint32_t chunk; /* BULK: bytes of a tile */
	uint32_t run;   /* GATHER: number of dimensions contiguous in the destination; CHANNELS: channels */
	/* Slots of one row (ROWS, CONVERT), of one run (GATHER) or of the pixels (CHANNELS); SHORT: chunks of
	 * a row. */
	uint64_t slots;
	bool whole; /* No dimension is padded, and none has 2^32 elements. */

	/* COPY and TRANSPOSE: see tile_copy_args and tile_transpose_args. TILES: grid alone. */
	struct tensor_map_layout load;
	struct tensor_map_layout store;
	uint32_t grid[ARGS_GRID_RANK]; /* tiles by dimension; 1 past the rank, as in repeat */
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

	/* These describe the border if it is written after the window; border_rank is 0 if there is none. */
	uint32_t border_rank;
	uint32_t border_element;
	uint64_t border_tiles;
	int64_t border_dst_offset;
	int64_t border_src_offset;
	struct strided_dim border[ARGS_MAX_RANK];

	union {
		struct permute_args permute; /* PERMUTE: all but the addresses */
		struct tma_convert convert;  /* CONVERT; `tiles` counts the slots of its kernel */
	};
};

/* A plan depends on these facts, besides the transform. */
struct plan_facts {
	struct copy_speed copy; /* zeros: plans have no predicted time */
	uint32_t threads;       /* multiprocessors */
	uint32_t align;         /* alignment of both base addresses in bytes, on which widening may rely */
	/* Phases of the base addresses: modulo PLAN_PHASE; for a list's blocks, modulo 16. */
	uint8_t dst_phase;
	uint8_t src_phase;
	bool spread; /* One of many moves of one launch: it takes no map, and no copy of the driver's. */
	bool listed; /* One block of a list: it takes no strategy that only a single move can take. */
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

/* Returns the bytes from one row of a tile with scales to the next in shared memory, with room for any phase.
 * Rows that are written as they lie are read in pieces of 16 bytes; others begin in different banks. */
static inline uint64_t amax_pitch(uint64_t row_bytes, bool alike)
{
	return (row_bytes + 15) / 16 * 16 + (alike ? 16 : 20);
}

/* These return the blocks along a dimension of n elements, and its tiles, which begin anew with each block
 * that is longer than they are. */
static inline uint64_t amax_blocks(int64_t n, int64_t skew, int64_t block)
{
	return ((uint64_t)(n + skew) + (uint64_t)block - 1) / (uint64_t)block;
}

static inline uint64_t amax_tiles(int64_t n, int64_t skew, int64_t block, uint32_t tile)
{
	return tile < block ? amax_blocks(n, skew, block) * amax_blocks(block, 0, tile)
	                    : amax_blocks(n, skew, tile);
}

/* These return a tile's elements, x along the destination and y along the source; the transpose kernel's are
 * fixed by its registers. */
static inline uint32_t transpose_tile_x(uint32_t element)
{
	return TRANSPOSE_X_BYTES / element;
}
static inline uint32_t transpose_tile_y(uint32_t element)
{
	return TRANSPOSE_TILE_BYTES / element / transpose_tile_x(element);
}

/* Returns a dimension of one index. */
static inline struct strided_dim tma_unit_dim(uint32_t element)
{
	return (struct strided_dim){ .n = 1, .dst = element, .src = element, .source = 1 };
}

/* Returns the bytes of shared memory for pixels of so many channels. */
static inline uint32_t strided_channel_bytes(uint32_t channels)
{
	return ROWS_THREADS * (channels | 1) * 16;
}

/* Sets *ret to the value of a constant border over and over, as it lies in an aligned chunk of a destination
 * that has an element at this address: a plan may serve several. */
void tma_fill_pattern(const struct transform *t, uint64_t dst, uint32_t ret[4]);

/* Chooses the plan that is predicted to take the least time. */
void plan_init(struct plan *plan, const struct transform *transform, const struct plan_facts *facts);

/* Returns the facts with the alignment and phases of the places. */
struct plan_facts plan_facts_at(const struct plan_facts *facts, struct plan_places places);

/* Returns how long a transform of so many bytes, read plus written, takes by the plan; 0: not predicted. */
double plan_predict_ns(const struct plan *plan, uint64_t bytes, const struct copy_speed *speed);

/* ---- Lists of blocks ----------------------------------------------------------------------------------- */

/* A plan for a list of blocks depends on these, besides the plan for one of them. */

/* Returns what the distances between blocks are all multiples of: a power of two of at most 16, in bytes. */
uint32_t block_align(const struct engine_blocks *blocks);

enum block_side { BLOCK_DST, BLOCK_SRC };

/* Sets *ret to one block's map on that side with the block, and where there are layers these, as further
 * dimensions. Returns false if no map can say that. */
bool block_plan_map(const struct tensor_map_layout *one, const struct engine_blocks *blocks,
                    enum block_side side, struct tensor_map_layout *ret);

/* Returns whether a kernel for lists alone can move the list, given the plan for one of its blocks. There is
 * one for `memcpy`, where each block is one aligned run, and one for `copy`, where maps can express the
 * blocks' places: those of block_plan_map, applied to the plan's maps. */
bool block_plan_has_kernel(const struct plan *plan, const struct engine_blocks *blocks);

/* ---- Alternatives -------------------------------------------------------------------------------------- */

/* Alternatives are other plans for a transform, which are predicted to be little slower than the one that
 * plan_init chose, and different enough that they may turn out faster on a device. The planner runs again to
 * find them, so that a plan that is used once costs nothing more. */
#define PLAN_ALTERNATIVES 10

struct alternatives {
	int n;                               /* at least 1 */
	struct plan plan[PLAN_ALTERNATIVES]; /* the chosen one, then the others, cheapest predicted first */
};

/* Finds alternatives to a plan that plan_init has chosen for the same transform and facts. It has none if it
 * fills, is the driver's copy, or is for many moves or blocks of one launch. */
void alternatives_init(struct alternatives *ret, const struct plan *chosen, const struct transform *transform,
                       const struct plan_facts *facts);

/* Returns whether a run of the chosen plan takes long enough to be compared with others. */
bool alternatives_are_worth_trying(const struct plan *chosen, uint64_t bytes, const struct copy_speed *copy);

/* The planner calls this with a plan whose cost is predicted: it takes a copy of the plan, unless it costs
 * much more than the chosen one or resembles one that costs less. */
void alternatives_add(struct alternatives *list, const struct plan *plan);

/* ---- Explanations -------------------------------------------------------------------------------------- */

/* A plan's tile in memory. Its dimensions are outermost first: those of plan->tile, or those in which a tile
 * of many axes has more than one element. */
struct plan_tile {
	int rank;
	int64_t n[PLAN_TILE_RANK];   /* elements */
	uint32_t element;            /* bytes of one of the tile's elements */
	uint32_t row_bytes;          /* in shared memory; 0: it is in none, or not in rows */
	int64_t dst[PLAN_TILE_RANK]; /* bytes from an element to the next in the destination */
	int64_t src[PLAN_TILE_RANK]; /* and in the source */
};

/* Describes the tile of a plan, by zeros if it moves without tiles. */
void plan_tile_of(const struct plan *plan, struct plan_tile *ret);

/* Strategies call this: it makes dimension d of the tile, counted from the outermost, the plan's dimension
 * `of`. */
void plan_tile_set_dim(struct plan_tile *ret, const struct plan *plan, int d, int of);

/* Sets *ret to an explanation of the plan. */
void plan_explain(struct engine_explanation *ret, const struct plan *plan, const struct transform *transform,
                  const struct plan_facts *facts);

/* Returns the facts of an H200, for well aligned bases. */
struct plan_facts plan_facts_of_h200(void);

#endif
