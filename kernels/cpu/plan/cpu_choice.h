/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses whether the CPU engine moves a loop nest by a microkernel or by tiles, and by which. The functions
 * have no side effects.
 *
 * Tiles are boxes of a loop nest that are read, permuted within the cache, and written, one after the other.
 * A tile spans as many dimensions as are needed for long runs on both sides: those in which the destination
 * is contiguous, innermost first, and those in which the source is.
 *
 * A large move that is written past the cache uses the candidate with the least predicted cost. A move that
 * is small or written through the cache uses one kind of tiles if a rule says that its microkernel would be
 * slow.
 */
#ifndef KERNELS_CPU_PLAN_CPU_CHOICE_H
#define KERNELS_CPU_PLAN_CPU_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/nest/loop_nest.h"

/* Maximum number of elements of a run; a tile's tables have as many entries. */
#define CPU_TILE_EXTENT 1024

struct cpu_tile {
	int64_t n[TENSOR_MAX_RANK]; /* extents of a tile, by dimension of the loop nest */
	/* Extents of a piece: multiples of the tile's, or the whole dimension. */
	int64_t piece[TENSOR_MAX_RANK];
};

/* Sizes in bytes that a tile should have, as far as there is room. */
struct cpu_tile_want {
	int64_t tile;             /* bytes of the whole tile */
	int64_t src_run, dst_run; /* bytes of the tile's runs on either side */
	int64_t piece;            /* approximate bytes of the cache lines that a piece touches on one side */
};

/* Chooses a tile. The loop nest must be canonical, of rank 1 or more, and no fill. A tile always contains
 * windows as a whole. */
void cpu_tile_choose(struct cpu_tile *ret, const struct loop_nest *nest, const struct cpu_tile_want *want);

/* Number of candidates. Candidate 0 is the first legal strategy without tiles. The others are kinds of tiles,
 * whose cpu_candidate_names give the bytes of a tile and of its runs in the source and in the destination. */
#define CPU_CANDIDATES 5
#define CPU_USUAL      1 /* candidate with the smallest tiles; may be used without comparing costs */

extern const char *const cpu_candidate_names[CPU_CANDIDATES];

/* Jobs with at least this many bytes of destination are written past the cache. */
#define CPU_STREAM_BYTES (8 << 20)

#define CPU_PIECE_BYTES (1 << 20) /* bytes of the destination that one thread takes at a time */

struct cpu_strategy;

struct cpu_case {
	int64_t piece_bytes; /* as `piece` of struct cpu_tile_want */
	int64_t tiled_bytes; /* least bytes of the destination for which tiles are used */
	bool stream;         /* the destination is written past the cache */
};

struct cpu_choice {
	const struct cpu_strategy *strategy;
	int candidate;
	struct cpu_tile tile; /* valid for candidates above 0 */
	/* Predicted cost; 0: unknown, because no costs were compared, or the nest is a fill. */
	double cost;
};

/* All strategies in the order of strategies.def. */
extern const struct cpu_strategy *const cpu_strategies[];

/* Returns the first legal strategy that does not come in several kinds of tiles. */
const struct cpu_strategy *cpu_first_strategy(const struct loop_nest *nest);

/* Chooses the candidate by which to move a loop nest in the case c. */
void cpu_choose(struct cpu_choice *ret, const struct loop_nest *nest, const struct cpu_case *c);

/* Sets *ret to this candidate, without choosing. Candidates above 0 are possible only for loop nests that can
 * be moved by tiles. */
void cpu_choose_candidate(struct cpu_choice *ret, const struct loop_nest *nest, int candidate,
                          int64_t piece_bytes);

/* These functions return the predicted cost of a loop nest for one strategy: the time that it takes, relative
 * to that of a copy of as many bytes on as many threads, if all data is in memory and in no cache. Strategies
 * without tiles ignore `tile`. */
double cpu_cost_copy(const struct loop_nest *nest, const struct cpu_tile *tile);
double cpu_cost_transpose(const struct loop_nest *nest, const struct cpu_tile *tile);
/* Rows that are repeated or reversed. */
double cpu_cost_rows(const struct loop_nest *nest, const struct cpu_tile *tile);
double cpu_cost_strided(const struct loop_nest *nest, const struct cpu_tile *tile);
double cpu_cost_tiles(const struct loop_nest *nest, const struct cpu_tile *tile);

#endif
