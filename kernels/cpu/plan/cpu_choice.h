/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses whether the CPU engine moves a loop nest by its microkernel or by tiles, and by which. Pure.
 *
 * Tiles are boxes of a loop nest that are read, permuted within the cache, and written, one after the other.
 * A tile spans as many dimensions as it takes for both sides to have long runs: those in which the
 * destination is contiguous, innermost first, and those in which the source is.
 *
 * What lies in memory goes by the candidate that costs the least. What is small, or is written through the
 * cache, goes by tiles of one kind where a rule says that its microkernel would be slow.
 */
#ifndef KERNELS_CPU_PLAN_CPU_CHOICE_H
#define KERNELS_CPU_PLAN_CPU_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/nest/loop_nest.h"

/* A run has so many elements at most, because tables of a tile have so many entries. */
#define CPU_TILE_EXTENT 1024

struct cpu_tile {
	int64_t n[TENSOR_MAX_RANK]; /* extents of a tile, by dimension of the loop nest */
	/* Extents of a piece: a multiple of the tile's, or all of the dimension. */
	int64_t piece[TENSOR_MAX_RANK];
};

/* These are the sizes that a tile should have, where there is room for it, in bytes. */
struct cpu_tile_want {
	int64_t tile;             /* bytes of the whole tile */
	int64_t src_run, dst_run; /* bytes of its runs on either side */
	int64_t piece;            /* bytes of the lines that a piece touches on one side, about */
};

/* Chooses a tile. The loop nest is canonical, no fill, and of rank 1 or more. Windows are whole in a tile. */
void cpu_tile_choose(struct cpu_tile *ret, const struct loop_nest *nest, const struct cpu_tile_want *want);

/* The first legal strategy is candidate 0, the others are tiles of what cpu_candidate_names says: bytes of a
 * tile, and of runs in the source and in the destination. */
#define CPU_CANDIDATES 5
#define CPU_USUAL      1 /* the candidate that a rule chooses, which has the smallest tiles */

extern const char *const cpu_candidate_names[CPU_CANDIDATES];

/* From so many bytes of the destination on, a job writes past the cache. */
#define CPU_STREAM_BYTES (8 << 20)

#define CPU_PIECE_BYTES (1 << 20) /* bytes of the destination that one thread takes at a time */

struct cpu_strategy;

struct cpu_case {
	int64_t piece_bytes; /* as in cpu_tile_want */
	int64_t tiled_bytes; /* bytes of the destination; smaller ones go by the microkernel */
	bool stream;         /* the destination is written past the cache */
};

struct cpu_choice {
	const struct cpu_strategy *strategy;
	int candidate;
	struct cpu_tile tile; /* set for candidates above 0 */
	double cost; /* 0: not known, because the candidate was chosen by rule, or the nest is a fill */
};

/* All strategies, in the order of strategies.def. */
extern const struct cpu_strategy *const cpu_strategies[];

/* Returns the first legal strategy that has no tiles of several kinds. */
const struct cpu_strategy *cpu_first_strategy(const struct loop_nest *nest);

void cpu_choose(struct cpu_choice *ret, const struct loop_nest *nest, const struct cpu_case *c);

/* Takes this candidate instead. Those above 0 are for loop nests that have tiles. */
void cpu_choose_candidate(struct cpu_choice *ret, const struct loop_nest *nest, int candidate,
                          int64_t piece_bytes);

/* These return what it costs to move a loop nest that lies in memory, in no cache, by a strategy: a time, in
 * units of what a copy of as many bytes takes on as many threads. Ways without tiles ignore `tile`. */
double cpu_cost_copy(const struct loop_nest *nest, const struct cpu_tile *tile);
double cpu_cost_transpose(const struct loop_nest *nest, const struct cpu_tile *tile);
double cpu_cost_rows(const struct loop_nest *nest, const struct cpu_tile *tile); /* repeated or reversed */
double cpu_cost_strided(const struct loop_nest *nest, const struct cpu_tile *tile);
double cpu_cost_tiles(const struct loop_nest *nest, const struct cpu_tile *tile);

#endif
