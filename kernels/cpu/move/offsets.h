/* SPDX-License-Identifier: Apache-2.0 */
/* Moves loop nests whose innermost dimensions are short, by tables of offsets, without a call for each short
 * run.
 *
 * A tile is what several dimensions make together. Where those that are contiguous in the source and those
 * that are contiguous in the destination are different ones, tiles are transposed in registers: a table says
 * where each row of the source begins, another where each row of the destination does. Other tiles are moved
 * element by element, by a table of where each one lies. The remaining dimensions step from tile to tile.
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

/* The dimension takes `steps` steps. Step i begins at index i * step, or at `last` if that is less, so tiles
 * may overlap. */
struct offsets_dim {
	int64_t steps, step, last;
	int64_t dst, src; /* strides, bytes */
};

struct offsets {
	uint32_t unit;      /* bytes of an element */
	bool transposes;    /* tiles of rows x cols are transposed; if not, rows is 1 */
	int64_t rows, cols; /* 0 columns: the loop nest is not to be moved by tables */
	int rank;           /* dimensions that step from tile to tile, from the inside out */
	struct offsets_dim dim[2 * TENSOR_MAX_RANK];
	int64_t dst_offset, src_offset, src_end; /* bytes from the loop nest's bases */
	int32_t dst_at[OFFSETS_SIDE];            /* where each row of the destination begins, bytes */
	/* Where each row of the source, or each element, lies, bytes; last field: see offsets_size. */
	int32_t src_at[OFFSETS_MOST];
};

/* Returns whether a loop nest is to be moved by tables of offsets, and fills *ret if so. */
bool offsets_init(struct offsets *ret, const struct loop_nest *nest);

/* Returns the tables by which a loop nest of the layout is to be moved, which are kept: made in *room if
 * there are none yet. NULL: it is not to be moved by tables. */
const struct offsets *offsets_find(struct kept_plans *kept, const struct loop_nest *nest,
                                   struct offsets *room);

/* Returns how many bytes of the struct are used, counted from its start. */
size_t offsets_size(const struct offsets *offsets);

/* Moves through the cache. dst and src are the loop nest's bases, before its offsets. */
void offsets_run(const struct offsets *offsets, const struct cpu_isa *isa, char *dst, const char *src);

#endif
