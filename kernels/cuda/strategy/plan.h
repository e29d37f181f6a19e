/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU's plan for a transform: it says which strategy moves the window, over which tiles and through which
 * tensor maps, and whether a second launch writes the border. The code is pure: it knows no driver, so tests
 * need no hardware.
 *
 * The dimensions of struct tma_route_plan are innermost first, as the Tensor Memory Accelerator (TMA) counts
 * them. Those of a loop nest and of struct plan are outermost first.
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

/* The predicted time of a plan is its cost relative to a copy, times the time that the device's own copy
 * takes.
 *
 * The speed of a copy is computed from the device's memory clock and bus width, not measured when an engine
 * starts. It is then the same at every start, whoever else uses the device, and needs no memory on a device
 * that is full. Data is assumed to be in no cache.
 */

/* The speed of the device's own copy from its memory to its memory. */
struct copy_speed {
	double bytes_per_ns; /* bytes read plus bytes written per ns; 0 if not known */
	/* Time in ns that every copy takes in addition, measured between events before and after it. */
	double fixed_ns;
};

/* Returns the speed that follows from the memory clock, of which each cycle transfers twice, and the bus
 * width. Either is 0 if it is not known. */
struct copy_speed copy_speed_of(uint32_t memory_khz, uint32_t bus_bits);

/* Returns the time in ns of a copy that reads and writes this many bytes altogether, or 0 if the speed is not
 * known. */
double copy_speed_ns(const struct copy_speed *speed, uint64_t bytes);

/* ---- Plans --------------------------------------------------------------------------------------------- */

/* Strategies are numbered in the order of strategies.def. */
enum strategy_id {
#define STRATEGY(name) STRATEGY_##name,
#include "strategies.def"
	STRATEGY_COUNT
};

/* The ways in which `convert` moves elements. */
enum tma_convert_how {
	TMA_CONVERT_ELEMENTS, /* one element after the other, with pads of any mode */
	TMA_CONVERT_CHUNKS,   /* rows of the destination, in chunks of 16 bytes */
	/* Tiles through shared memory. The destination is contiguous along dimension 0 and the source along
	 * dimension 1. */
	TMA_CONVERT_TILES,
	/* Rows of the destination, in chunks of 16 bytes. Dimension 0 counts pixels of byte channels,
	 * dimension 1 the channels. */
	TMA_CONVERT_CHANNELS,
	/* Tiles as for TMA_CONVERT_TILES, with scales computed on the way. Rows may also be contiguous along
	 * dimension 0 on both sides. */
	TMA_CONVERT_AMAX_TILES,
	TMA_CONVERT_AMAX_BOXES, /* scaling block by scaling block, one element after the other */
};

/* The scaling blocks of a conversion that computes scales (amax), and the places of their scales. If there
 * are two passes, the first finds the largest magnitudes and the second converts. */
struct tma_amax_plan {
	bool two_passes;
	bool alike; /* AMAX_TILES: rows are contiguous along dimension 0 on both sides */
	uint64_t blocks;
	uint64_t elements; /* AMAX_BOXES: elements of a scaling block, which is moved in `parts` parts */
	uint64_t parts;
	/* Bytes from element [0, ..., 0] of the tensor of scales; likewise for the inverses. */
	int64_t scale_offset;
	int64_t inverse_offset;
	/* The fields block to to_inverse are those of struct loop_nest_dim, in the order of
	 * tma_route_plan.dim. */
	int64_t block[ARGS_MAX_RANK];
	int64_t skew[ARGS_MAX_RANK];
	int64_t to_scale[ARGS_MAX_RANK];
	int64_t to_inverse[ARGS_MAX_RANK];
};

struct tma_convert {
	enum tma_convert_how how;
	uint32_t tile_x; /* elements of a tile along dimension 0; tile_y: along dimension 1 */
	uint32_t tile_y;
	bool packed; /* A tile has no gaps in the source. */
	bool woven;  /* A tile has no gaps in the destination, where its rows are short. */
	/* Bytes from element [0, ..., 0] of the tensor of scales; bias_offset: of biases. */
	int64_t scale_offset;
	int64_t bias_offset;
	int64_t scale[ARGS_MAX_RANK]; /* strides in bytes, in the order of tma_route_plan.dim */
	int64_t bias[ARGS_MAX_RANK];
	struct tma_amax_plan amax;
};

/* Sizes of a tile of many axes, in bytes. */
struct permute_sizes {
	double tile;
	double load; /* a run of the source */
	double row;
};

struct tma_route_plan {
	enum strategy_id strategy;
	uint32_t element; /* bytes of the kernel's elements; for rows and tiles, at most the alignment */
	uint32_t rank;
	int64_t dst_offset; /* bytes from element [0, ..., 0] to where the tensor map or the kernel starts */
	int64_t src_offset;
	uint64_t tiles;
	uint64_t repeats; /* number of times that each tile is stored */

	/* The dimensions, innermost first. BULK: dimension 0 is the run, in bytes. */
	struct strided_dim dim[ARGS_MAX_RANK];
	uint32_t chunk; /* BULK: bytes of a tile */
	/* GATHER, ELEMENTS: number of dimensions contiguous in the destination; CHANNELS: channels. */
	uint32_t run;
	/* Slots are the parts that the threads take (strategy.slots). ROWS, CONVERT: slots of a row. GATHER:
	 * slots of a run. CHANNELS: slots of a row of pixels. SHORT: chunks of a row. ELEMENTS: elements. */
	uint64_t slots;
	bool whole; /* No dimension is padded. GATHER, TILES: and none has more than INT32_MAX indices. */

	/* COPY and TRANSPOSE use these fields as described at tile_copy_args and tile_transpose_args. TILES
	 * uses only grid. */
	struct tensor_map_layout load;
	struct tensor_map_layout store;
	/* Number of tiles along each dimension; 1 beyond the rank, as in repeat. */
	uint32_t grid[ARGS_GRID_RANK];
	uint32_t repeat[ARGS_GRID_RANK];
	int32_t load_step[ARGS_GRID_RANK];
	int32_t load_shift[ARGS_MAP_RANK];
	int32_t store_step[ARGS_MAP_RANK];
	int32_t store_shift[ARGS_MAP_RANK];
	/* TRANSPOSE: binary logarithms of the tile's extent along dimension 1 and of its number of boxes
	 * along dimension 0. */
	uint32_t shift_x;
	uint32_t shift_y;

	double cost;                /* PERMUTE: predicted time relative to a copy of as many bytes */
	struct permute_sizes sizes; /* PERMUTE: sizes of the tile */
	bool alike;                 /* PERMUTE: the runs of both sides begin with the same dimension */
	bool patched;               /* COPY: the border is written into the tiles in shared memory */

	/* The border, if a launch after the window's writes it. border_rank is 0 if there is no such
	 * launch. */
	uint32_t border_rank;
	uint32_t border_element;
	uint64_t border_tiles;
	int64_t border_dst_offset;
	int64_t border_src_offset;
	struct strided_dim border[ARGS_MAX_RANK];

	union {
		struct permute_args permute; /* PERMUTE: everything but the addresses and the fill */
		/* CONVERT: `tiles` is the number of slots that its kernel counts. */
		struct tma_convert convert;
	};
};

/* The facts, besides the transform, that a plan depends on. */
struct plan_facts {
	struct copy_speed copy; /* zeros: plans get no predicted time */
	uint32_t threads;       /* number of multiprocessors */
	uint32_t align;         /* alignment of both base addresses in bytes; elements are widened up to it */
	/* The base addresses modulo PLAN_PHASE; for the blocks of a list, modulo 16. */
	uint8_t dst_phase;
	uint8_t src_phase;
	/* The transform is one of many moves in one launch, which use neither tensor maps nor the driver's
	 * copy. */
	bool spread;
	/* The transform is one block of a list, so strategies that fit only a single move are excluded. */
	bool listed;
};

struct plan {
	enum family family;
	int tile_rank;                /* 0 if the plan moves without tiles */
	int64_t tile[PLAN_TILE_RANK]; /* elements, outermost first */
	const char *swizzle;          /* swizzle of the tile in shared memory; "none" without one */
	int64_t grid;                 /* maximum number of pieces that can run concurrently */
	/* The whole destination, with the pads as windows. If no source is read, rank is 0 and fill is
	 * set. */
	struct loop_nest interior;
	struct tma_route_plan tma;
	uint64_t n_subregions;
	/* Predicted time relative to a copy of as many bytes; 0 if there is no prediction. */
	double predicted;
	struct family_rules rules;
};

/* Returns the bytes in shared memory from one row of an AMAX_TILES tile to the next, with room for any phase.
 * If `alike` is set, rows are read in pieces of 16 bytes, so the pitch is a multiple of 16. Otherwise it is
 * an odd number of words, so that consecutive rows begin in different banks. */
static inline uint64_t amax_pitch(uint64_t row_bytes, bool alike)
{
	return (row_bytes + 15) / 16 * 16 + (alike ? 16 : 20);
}

/* amax_blocks returns the number of scaling blocks along a dimension of n elements, and amax_tiles the number
 * of tiles. Tiles start afresh at each block that is longer than a tile. */
static inline uint64_t amax_blocks(int64_t n, int64_t skew, int64_t block)
{
	return ((uint64_t)(n + skew) + (uint64_t)block - 1) / (uint64_t)block;
}

static inline uint64_t amax_tiles(int64_t n, int64_t skew, int64_t block, uint32_t tile)
{
	return tile < block ? amax_blocks(n, skew, block) * amax_blocks(block, 0, tile)
	                    : amax_blocks(n, skew, tile);
}

/* These return the elements of a transpose tile along the destination (x) and along the source (y). The
 * kernel's registers fix the shape. */
static inline uint32_t transpose_tile_x(uint32_t element)
{
	return TRANSPOSE_X_BYTES / element;
}
static inline uint32_t transpose_tile_y(uint32_t element)
{
	return TRANSPOSE_TILE_BYTES / element / transpose_tile_x(element);
}

/* Returns a dimension with a single index. */
static inline struct strided_dim tma_unit_dim(uint32_t element)
{
	return (struct strided_dim){ .n = 1, .dst = element, .src = element, .source = 1 };
}

/* Returns the bytes of shared memory that a thread block needs for pixels of this many channels. */
static inline uint32_t strided_channel_bytes(uint32_t channels)
{
	return ROWS_THREADS * (channels | 1) * 16;
}

/* Sets *ret to the constant border's value, repeated as it lies in an aligned chunk of a destination that has
 * an element at address dst. It is computed at each launch because a plan may serve several addresses. */
void tma_fill_pattern(const struct transform *t, uint64_t dst, uint32_t ret[4]);

/* Sets *plan to the plan with the least predicted time. */
void plan_init(struct plan *plan, const struct transform *transform, const struct plan_facts *facts);

/* Returns the facts with the alignment and phases of these places. */
struct plan_facts plan_facts_at(const struct plan_facts *facts, struct plan_places places);

/* Returns the time in ns that the plan takes for a transform of this many bytes, read plus written; 0 if
 * there is no prediction. */
double plan_predict_ns(const struct plan *plan, uint64_t bytes, const struct copy_speed *speed);

/* ---- Lists of blocks ----------------------------------------------------------------------------------- */

/* A plan for a list of blocks depends on what these functions return, besides the plan for one block. */

/* Returns the power of two, at most 16, that divides all distances between blocks, in bytes. */
uint32_t block_align(const struct engine_blocks *blocks);

enum block_side { BLOCK_DST, BLOCK_SRC };

/* Sets *ret to the tensor map of one block with the block number as a further dimension and, if there are
 * several layers, the layer as another. Returns false if no tensor map can express that. */
bool block_plan_map(const struct tensor_map_layout *one, const struct engine_blocks *blocks,
                    enum block_side side, struct tensor_map_layout *ret);

/* Returns whether a kernel that is specific to lists can move the list, given the plan for one block. There
 * is one for `memcpy` if each block is a single aligned run, and one for `copy` if block_plan_map can express
 * the places of the blocks on both sides. */
bool block_plan_has_kernel(const struct plan *plan, const struct engine_blocks *blocks);

/* ---- Alternatives -------------------------------------------------------------------------------------- */

/* Alternatives are other plans for a transform. Their predicted time is little more than that of the plan
 * that plan_init chose, and they differ enough that one may turn out faster on the device. The planner runs a
 * second time to find them, so a plan that is used only once costs nothing more. */
#define PLAN_ALTERNATIVES 10

struct alternatives {
	int n;                               /* at least 1 */
	struct plan plan[PLAN_ALTERNATIVES]; /* the chosen plan, then the others by rising predicted time */
};

/* Finds alternatives to a plan that plan_init chose for the same transform and facts. There are none if the
 * plan is a fill or the driver's copy, or if it serves many moves or blocks in one launch. */
void alternatives_init(struct alternatives *ret, const struct plan *chosen, const struct transform *transform,
                       const struct plan_facts *facts);

/* Returns whether a run of the chosen plan takes long enough for a comparison with others to pay off. */
bool alternatives_are_worth_trying(const struct plan *chosen, uint64_t bytes, const struct copy_speed *copy);

/* Adds a copy of the plan to the list, unless it costs much more than the chosen one or resembles one that
 * costs no more. The planner calls this with plans whose cost has been predicted. */
void alternatives_add(struct alternatives *list, const struct plan *plan);

/* ---- Explanations -------------------------------------------------------------------------------------- */

/* The place of a plan's tile in memory. Its dimensions are outermost first: those of plan->tile or, for a
 * tile of many axes, those along which the tile has more than one element. */
struct plan_tile {
	int rank;
	int64_t n[PLAN_TILE_RANK]; /* elements */
	uint32_t element;          /* bytes of one of the tile's elements */
	/* Bytes of a row in shared memory; 0 if the tile is not there or has no rows there. */
	uint32_t row_bytes;
	int64_t dst[PLAN_TILE_RANK]; /* bytes from one element to the next in the destination */
	int64_t src[PLAN_TILE_RANK]; /* the same in the source */
};

/* Sets *ret to the tile of a plan, or to zeros if the plan moves without tiles. */
void plan_tile_of(const struct plan *plan, struct plan_tile *ret);

/* Gives dimension d of the tile, counted from the outermost, the strides of the plan's dimension `of`.
 * Strategies' describe functions call it. */
void plan_tile_set_dim(struct plan_tile *ret, const struct plan *plan, int d, int of);

/* Sets *ret to an explanation of the plan. */
void plan_explain(struct engine_explanation *ret, const struct plan *plan, const struct transform *transform,
                  const struct plan_facts *facts);

/* Returns the facts of an H200 with well aligned base addresses. */
struct plan_facts plan_facts_of_h200(void);

#endif
