/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the planner's files for tiles of many axes share (permute_args.h explains the terms). The
 * planner sketches many boxes (permute_cost.c). It turns the promising ones into tiles, or into squares that
 * registers transpose (permute_tile.c), predicts their cost (permute_cost.c), lays them out in shared memory
 * and spaces the slots so that few lanes conflict in a bank (permute_layout.c). Only permute*.c may include
 * this header. */
#ifndef KERNELS_CUDA_STRATEGY_PERMUTE_PLAN_H
#define KERNELS_CUDA_STRATEGY_PERMUTE_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "permute_args.h"
#include "plan.h"

/* Bytes of a chunk, of a sector of the L2 and of a cache line. */
#define CHUNK              16
#define SECTOR             32
#define LINE               128
#define PERMUTE_MOST_SLOTS 65000 /* bytes; offsets have 16 bits */

/* Limits that hold for tiles and for their sketches. */
#define LEAST_RUN   8     /* bytes of a run on either side; shorter runs gain nothing */
#define LEAST_ROW   64    /* minimum bytes of a row that ends before its run does */
#define MOST_TABLE  1024  /* entries of a row's table; longer rows are cut */
#define TABLE_BYTES 65000 /* of all copies of the table; notes have 16-bit offsets */
#define MOST_PIECES 2048

/* The extents of a tile, in the dimension order of the loop nest. */
struct permute_box {
	uint32_t n[TENSOR_MAX_RANK + 1];
};

/* The dimensions of one side's run, innermost first. */
struct permute_chain {
	int n;
	int dim[TENSOR_MAX_RANK + 1];
	int split; /* the last dimension if the box has only a part of it; else -1 */
};

struct permute_sides {
	const struct loop_nest *nest;
	const struct plan_facts *facts;
	enum pad_mode mode;
	struct permute_chain dst; /* the longest runs of the destination that a box may have */
	struct permute_chain src;
};

/* A box in the form that the kernel takes, and the quantities that its cost depends on. */
struct permute_tile {
	struct permute_args args;
	/* The nest that args refers to. Some of its dimensions may be reversed. */
	struct loop_nest nest;
	uint64_t tiles;
	uint32_t processors; /* multiprocessors that share the tiles */
	double useful;       /* bytes of a tile, without its margin */
	double load_run;     /* bytes of a run of the source, gaps included */
	double gaps;         /* load_run divided by the bytes of it that are needed */
	double row_run;      /* bytes of a row, without its margin */
	double wasted;       /* bytes of all tiles divided by the bytes of the destination */
	/* Shared memory wavefronts for each chunk; 0 until permute_arrange has run. */
	double wavefronts;
	double cost; /* predicted cost; set by the caller */
	/* SQUARES: the average number of lines that a run of the source touches beyond those that it would
	 * fill if it were aligned, divided by the number that it would fill. 0 for other ways. */
	double load_lines;
	double row_lines;     /* the same for a row of the destination */
	bool unaligned_loads; /* Loads do not consist of whole chunks. */
	/* Lines of the source arrive in two parts. False until permute_arrange has run. */
	bool split_lines;
	bool alike; /* Runs of both sides begin with the same dimension. */
};

/* Finds the longest runs of both sides. nest and facts must outlive *ret. */
void permute_sides_init(struct permute_sides *ret, const struct loop_nest *nest,
                        const struct plan_facts *facts, enum pad_mode mode);

static inline bool is_padded(const struct loop_nest_dim *dim)
{
	return dim->source != dim->n;
}

/* Returns the part of a chain that a box covers. */
struct permute_chain permute_chain_within(const struct permute_chain *all, const struct loop_nest *nest,
                                          const struct permute_box *box);

bool permute_chain_has(const struct permute_chain *chain, int d);

/* Returns the bytes from one index of dimension d to the next, on one side. */
typedef int64_t permute_stride(const struct loop_nest *nest, int d);
permute_stride permute_dst_stride;
permute_stride permute_src_stride;

/* Returns the greatest power of two, at most `most`, of which the addresses of all runs of a side are
 * multiples. These addresses depend on `base`, which is the first one modulo a power of two, on the strides
 * of the dimensions that are not in the run, and on `step`, the bytes from tile to tile along the run's split
 * dimension (0 if there is none). */
uint64_t permute_align(const struct loop_nest *nest, const struct permute_chain *run, permute_stride *stride,
                       uint64_t step, uint64_t base, uint64_t most);

/* Turns a box into a tile. Returns false if the kernels cannot move the box in this way. */
bool permute_tile_init(struct permute_tile *ret, const struct permute_sides *sides,
                       const struct permute_box *box, enum permute_how how);

/* Assigns the offsets in shared memory of everything that a tile holds. */
void permute_lay_out(struct permute_tile *tile);

/* Returns whether the slots, with their current spacing, take at most PERMUTE_MOST_SLOTS bytes. */
bool permute_slots_fit(const struct permute_args *args);

/* Chooses the pads between slots and how many rows lie side by side in a warp, so that few lanes need
 * different words of the same bank. permute_lay_out must have run before and must run again afterwards.
 * Returns false, and chooses nothing, if a chunk takes more than about `most` wavefronts. This takes much
 * longer than the other functions here, so callers reserve it for tiles that they may take. */
bool permute_arrange(struct permute_tile *tile, double most);

/* Returns the predicted time of a byte, relative to the time that a copy takes for it, or PERMUTE_NEVER if a
 * multiprocessor cannot hold the tile. */
#define PERMUTE_NEVER 1e30
double permute_cost(const struct permute_tile *tile);

/* Returns the number of wavefronts for each chunk at which the tile's cost reaches `most`. tile->cost must
 * have been predicted with wavefronts == 0. */
double permute_most_wavefronts(const struct permute_tile *tile, double most);

/* An estimate of a tile's cost before permute_arrange, and of its sizes, made without building the tile. */
struct permute_sketch {
	/* PERMUTE_NEVER if the box cannot be moved in this way or is not worth it. */
	double cost;
	struct permute_sizes sizes;
};

/* Sketches one tile of the box for each way to move it. It may report PERMUTE_NEVER for tiles that cost
 * `most` or more. */
void permute_sketch(const struct permute_sides *sides, const struct permute_box *box, double most,
                    struct permute_sketch ret[PERMUTE_HOWS]);

struct permute_sizes permute_sizes_of(const struct permute_tile *tile);

/* Returns whether the two tiles differ by less than a third in every size. */
bool permute_sizes_are_near(const struct permute_sizes *a, const struct permute_sizes *b);

#endif
