/* SPDX-License-Identifier: Apache-2.0 */
/* A tile of many axes is planned in steps: a box is turned into a tile, or divided into squares that
 * registers transpose (permute_tile.c), its cost is predicted (permute_cost.c), it is laid out in shared
 * memory, and its slots are spaced such that few lanes meet in a bank (permute_layout.c). Sketches tell which
 * boxes are worth that (permute_cost.c). Internal to the planner. */
#ifndef KERNELS_CUDA_STRATEGY_PERMUTE_PLAN_H
#define KERNELS_CUDA_STRATEGY_PERMUTE_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "permute_args.h"
#include "plan.h"

#define CHUNK              16
#define SECTOR             32
#define LINE               128
#define PERMUTE_MOST_SLOTS 65000 /* bytes: offsets are of 16 bits */

/* Tiles and their sketches keep to the same limits. */
#define LEAST_RUN   8     /* bytes on either side; with less there is nothing to gain */
#define LEAST_ROW   64    /* bytes */
#define MOST_TABLE  1024  /* entries of a row's table; longer rows are cut */
#define TABLE_BYTES 65000 /* of all copies: notes have offsets of 16 bits */
#define MOST_PIECES 2048

/* Extents of a tile, in the order of the loop nest. */
struct permute_box {
	uint32_t n[TENSOR_MAX_RANK + 1];
};

/* The dimensions of a run, innermost first. */
struct permute_chain {
	int n;
	int dim[TENSOR_MAX_RANK + 1];
	int split; /* the last one, where the box has only a part of it; else -1 */
};

struct permute_sides {
	const struct loop_nest *nest;
	const struct plan_facts *facts;
	enum pad_mode mode;
	struct permute_chain dst; /* the longest runs of the destination that a box may have */
	struct permute_chain src;
};

/* A box as the kernel gets it, and the quantities that its cost depends on. */
struct permute_tile {
	struct permute_args args;
	struct loop_nest nest; /* nest that args refers to; some dimensions may be reversed */
	uint64_t tiles;
	uint32_t processors; /* multiprocessors that share them */
	double useful;       /* bytes of a tile, without its margin */
	double load_run;     /* bytes of a run of the source, with the gaps in it */
	double gaps;         /* load_run divided by the bytes of it that are needed */
	double row_run;      /* bytes of a row, without its margin */
	double wasted;       /* bytes of all tiles divided by those of the destination */
	double wavefronts;   /* wavefronts of shared memory for a chunk; 0 until permute_arrange */
	double cost;         /* set by the caller */
	/* SQUARES: lines that a run of the source touches beyond those it would fill, divided by these; 0 for
	 * others. */
	double load_lines;
	double row_lines;     /* the same for a row */
	bool unaligned_loads; /* Loads are not of whole chunks. */
	bool split_lines;     /* Lines of the source arrive in two parts; false until permute_arrange. */
	bool alike;           /* Runs of both sides begin with the same dimension. */
};

/* nest and facts must outlive *ret. */
void permute_sides_init(struct permute_sides *ret, const struct loop_nest *nest,
                        const struct plan_facts *facts, enum pad_mode mode);

static inline bool is_padded(const struct loop_nest_dim *dim)
{
	return dim->source != dim->n;
}

/* Returns what a box has of a chain. */
struct permute_chain permute_chain_within(const struct permute_chain *all, const struct loop_nest *nest,
                                          const struct permute_box *box);

bool permute_chain_has(const struct permute_chain *chain, int d);

/* Returns the bytes from one index of dimension d to the next, on one side. */
typedef int64_t permute_stride(const struct loop_nest *nest, int d);
permute_stride permute_dst_stride;
permute_stride permute_src_stride;

/* Returns what the runs' addresses are multiples of, in bytes and up to `most`: `base`, the strides of the
 * dimensions that are not in the run, and `step`. */
uint64_t permute_align(const struct loop_nest *nest, const struct permute_chain *run, permute_stride *stride,
                       uint64_t step, uint64_t base, uint64_t most);

/* Turns a box into a tile. Returns false if the kernels cannot move it that way. */
bool permute_tile_init(struct permute_tile *ret, const struct permute_sides *sides,
                       const struct permute_box *box, enum permute_how how);

/* Decides where everything lies in shared memory. */
void permute_lay_out(struct permute_tile *tile);

/* Returns whether the slots, as they are spaced, are no larger than PERMUTE_MOST_SLOTS. */
bool permute_slots_fit(const struct permute_args *args);

/* Chooses pads between the slots, and how many rows lie side by side in a warp, such that few lanes want
 * different words of a bank. The tile must have been laid out, and must be so again. Returns false, and
 * chooses nothing, if a chunk takes more than about `most` wavefronts. This takes much longer than all else
 * here: it is only for tiles that may be taken. */
bool permute_arrange(struct permute_tile *tile, double most);

/* Returns the predicted time of a byte, in units of what a copy takes for it; PERMUTE_NEVER where a
 * multiprocessor cannot hold the tile. */
#define PERMUTE_NEVER 1e30
double permute_cost(const struct permute_tile *tile);

/* Returns with how many wavefronts for a chunk a tile costs at least `most`. tile->cost must have been
 * predicted without any. */
double permute_most_wavefronts(const struct permute_tile *tile, double most);

/* A sketch tells about what a tile costs, before permute_arrange, and how large it is, without working it
 * out. */
struct permute_sketch {
	double cost; /* PERMUTE_NEVER if it cannot be moved that way, or is not worth it */
	struct permute_sizes sizes;
};

/* Sketches the tiles of a box, one for each way to move it. It may leave out those that cost `most` or
 * more. */
void permute_sketch(const struct permute_sides *sides, const struct permute_box *box, double most,
                    struct permute_sketch ret[PERMUTE_HOWS]);

struct permute_sizes permute_sizes_of(const struct permute_tile *tile);

/* Returns whether no size is a third larger than the other tile's. */
bool permute_sizes_are_near(const struct permute_sizes *a, const struct permute_sizes *b);

#endif
