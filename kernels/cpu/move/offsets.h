/* SPDX-License-Identifier: Apache-2.0 */
/* Loop nests whose innermost dimensions are short: by tables of offsets, without a call for each short run.
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
#include "kernels/nest/loop_nest.h"

#define OFFSETS_MOST 512
#define OFFSETS_SIDE 128

/* `steps` times `step` indices further, the last time as far as there are any: tiles may overlap. */
struct offsets_dim {
	int64_t steps, step, last;
	int64_t dst, src; /* strides, bytes */
};

struct offsets {
	uint32_t unit;   /* bytes of an element */
	bool transposes; /* rows x cols; else rows is 1 */
	int64_t rows, cols;
	int rank; /* dimensions that step from tile to tile, from the inside out */
	struct offsets_dim dim[2 * TENSOR_MAX_RANK];
	int64_t dst_offset, src_offset, src_end; /* bytes from the loop nest's bases */
	int32_t dst_at[OFFSETS_SIDE];            /* of each row of the destination, bytes */
	int32_t src_at[OFFSETS_MOST]; /* of each row of the source, or each element; last: see offsets_size */
};

/* Whether a loop nest is to be moved like this; fills *ret if so. */
bool offsets_init(struct offsets *ret, const struct loop_nest *nest);

/* Bytes of it that are used: the first ones. */
size_t offsets_size(const struct offsets *offsets);

/* dst and src: the loop nest's bases, before its offsets. Through the cache. */
void offsets_run(const struct offsets *offsets, const struct cpu_isa *isa, char *dst, const char *src);

#endif
