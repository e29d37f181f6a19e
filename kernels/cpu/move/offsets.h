/* SPDX-License-Identifier: Apache-2.0 */
/* Moves loop nests whose innermost dimensions are short, by tables of offsets, without a call for each short
 * run.
 *
 * A tile is made of several dimensions together. If the dimensions that are contiguous in the source and
 * those that are contiguous in the destination are different ones, tiles are transposed in registers: one
 * table says where each row of the source begins, another where each row of the destination does. Other tiles
 * are moved element by element, by a table of each element's place in the source. The remaining dimensions
 * step from tile to tile.
 */
#ifndef KERNELS_CPU_MOVE_OFFSETS_H
#define KERNELS_CPU_MOVE_OFFSETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/isa/isa.h"
#include "kept.h"
#include "kernels/nest/loop_nest.h"

#define OFFSETS_MOST 512
#define OFFSETS_SIDE 128

/* A dimension along which tiles are repeated `steps` times. Step i begins at index i * step, or at `last` if
 * that is less, so tiles may overlap. */
struct offsets_dim {
	int64_t steps, step, last;
	int64_t dst, src; /* strides in bytes */
};

struct offsets {
	uint32_t unit;      /* bytes of an element */
	bool transposes;    /* tiles of rows x cols are transposed; if false, rows is 1 */
	int64_t rows, cols; /* elements of a tile; cols == 0: the loop nest is not to be moved by tables */
	int rank;           /* number of dimensions that step from tile to tile, innermost first */
	struct offsets_dim dim[2 * TENSOR_MAX_RANK];
	/* Bytes from the loop nest's bases to its first elements, and to the end of the source. */
	int64_t dst_offset, src_offset, src_end;
	/* Bytes from a tile's start to each row in the destination. */
	int32_t dst_at[OFFSETS_SIDE];
	/* Bytes from a tile's start to each row, or each element, in the source. Must be the last field: see
	 * offsets_size. */
	int32_t src_at[OFFSETS_MOST];
};

/* Returns whether a loop nest is to be moved by tables of offsets. If so, fills *ret. */
bool offsets_init(struct offsets *ret, const struct loop_nest *nest);

/* Returns the tables for a loop nest of the layout, or NULL if it is not to be moved by tables. They are
 * taken from `kept`, or else made in *room and added to `kept`. */
const struct offsets *offsets_find(struct kept_plans *kept, const struct loop_nest *nest,
                                   struct offsets *room);

/* Returns the number of bytes of the struct that are used, from its start. */
size_t offsets_size(const struct offsets *offsets);

/* Moves a loop nest, through the cache. dst and src are the loop nest's bases, before its offsets are
 * added. */
void offsets_run(const struct offsets *offsets, const struct cpu_isa *isa, char *dst, const char *src);

#endif
