/* SPDX-License-Identifier: Apache-2.0 */
/* Converts the rows of a box, block by block in the first cache: from elements to lanes, which are multiplied
 * and added to, and back to elements. Or looks for the largest magnitude among them.
 */
#ifndef KERNELS_CPU_MOVE_CONVERT_ROWS_H
#define KERNELS_CPU_MOVE_CONVERT_ROWS_H

#include "move_struct.h"

/* Lanes that are converted at a time: three buffers of float64 lanes in half of a first cache of 32 KiB. */
#define CONVERT_BLOCK 512

#define CONVERT_LANES_BYTES (CONVERT_BLOCK * (int64_t)sizeof(double) + CPU_LINE)

enum { SCALE, BIAS, OPERANDS };

/* The dimensions of a row, innermost first; several where all but the last are whole. */
struct row {
	int n_dims;
	int64_t n; /* elements */
	struct row_dim {
		int64_t n, stride[OPERANDS];
	} dim[TENSOR_MAX_RANK];
};

/* A piece on its way. */
struct converting {
	const struct move *move;
	const struct cpu_converters *converters;
	cpu_load_fn *load, *load_back;
	cpu_store_fn *store;
	enum cpu_lane lane;
	int64_t from, to; /* bytes of an element */
	bool is_exact;
	uint64_t changed;
	const struct operand *operand[OPERANDS];
	bool is_by; /* lanes of float32 are multiplied by this, and the scale is not looked at */
	float by;
	struct row row;
	/* Nothing is converted; magnitude is that of the elements so far, if that was larger. */
	bool reduces;
	bool by_lanes; /* the magnitudes of a row, which is of a block at most, are in result, lane by lane */
	uint32_t magnitude;
	cpu_magnitude_fn *magnitude_of;
	/* What the lanes of an operand are of; NULL: of nothing yet. */
	const char *held[OPERANDS];
	int64_t held_from[OPERANDS], held_n[OPERANDS];
	_Alignas(CPU_LINE) char lanes[CONVERT_LANES_BYTES];
	_Alignas(CPU_LINE) char result[CONVERT_LANES_BYTES];
	_Alignas(CPU_LINE) char operand_lanes[OPERANDS][CONVERT_LANES_BYTES];
	_Alignas(CPU_LINE) char elements[CONVERT_LANES_BYTES];
};

/* Nothing is held, and reduces and is_by are false. */
void converting_init(struct converting *c, const struct move *move);

/* Finds the dimensions of a row of boxes of this extent, whose elements lie src[d] bytes apart in what is
 * read. */
void converting_choose_row(struct converting *c, const int64_t *extent, const int64_t *src);

/* Converts a box, or looks through it if c->reduces, by the row that has been chosen for its extent. operand:
 * where those of its first element lie. */
void convert_rows(struct converting *c, char *dst, const char *src, const char *const *operand,
                  const int64_t *extent, const int64_t *src_stride);

#endif
