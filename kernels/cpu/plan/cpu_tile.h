/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU engine's tiles: boxes of a loop nest that are read, permuted within the cache, and written, one
 * after the other. Pure.
 *
 * A tile spans as many dimensions as it takes for both sides to have long runs: those in which the
 * destination is contiguous, innermost first, and those in which the source is.
 */
#ifndef KERNELS_CPU_PLAN_CPU_TILE_H
#define KERNELS_CPU_PLAN_CPU_TILE_H

#include <stdint.h>

#include "kernels/nest/loop_nest.h"

/* Elements of a run, at most: tables of a tile have so many entries. */
#define CPU_TILE_EXTENT 1024

struct cpu_tile {
	int64_t n[TENSOR_MAX_RANK];     /* extents of a tile, by dimension of the loop nest */
	int64_t piece[TENSOR_MAX_RANK]; /* and of a piece: a multiple of them, or all of the dimension */
};

/* What a tile is to be, where there is room for it, in bytes. */
struct cpu_tile_want {
	int64_t tile;             /* of all of it */
	int64_t src_run, dst_run; /* of its runs on either side */
	int64_t piece;            /* of the lines that a piece touches on one side, about */
};

/* The loop nest is canonical, no fill, and of rank 1 or more. Windows are whole in a tile. */
void cpu_tile_choose(struct cpu_tile *ret, const struct loop_nest *nest, const struct cpu_tile_want *want);

#endif
