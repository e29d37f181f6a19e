/* SPDX-License-Identifier: Apache-2.0 */
/* The microkernel for every box that no faster microkernel takes. */
#include "microkernel.h"

#include <string.h>

#include "kernels/cpu/isa/short.h"
#include "proto/arithmetic.h"

#define BLOCK_UNITS 1024
#define BLOCK_SIDE  32 /* units; its square is BLOCK_UNITS */

typedef void line_fn(char *dst, int64_t dst_stride, const char *src, int64_t src_stride, int64_t n,
                     uint32_t unit);

#define DEFINE_LINE(size)                                                                           \
	static void line_##size(char *dst, int64_t dst_stride, const char *src, int64_t src_stride, \
	                        int64_t n, uint32_t unit)                                           \
	{                                                                                           \
		(void)unit;                                                                         \
		for (int64_t i = 0; i < n; i++)                                                     \
			memcpy(dst + i * dst_stride, src + i * src_stride, size);                   \
	}
/* Of a size that is known when they are compiled; others take longer. */
DEFINE_LINE(1)
DEFINE_LINE(2)
DEFINE_LINE(4)
DEFINE_LINE(8)
DEFINE_LINE(16)
DEFINE_LINE(3)
DEFINE_LINE(5)
DEFINE_LINE(6)
DEFINE_LINE(7)
DEFINE_LINE(12)
DEFINE_LINE(24)
DEFINE_LINE(32)

static void line_short(char *dst, int64_t dst_stride, const char *src, int64_t src_stride, int64_t n,
                       uint32_t unit)
{
	for (int64_t i = 0; i < n; i++)
		copy_short(dst + i * dst_stride, src + i * src_stride, unit);
}

static line_fn *line_of(uint32_t unit)
{
	switch (unit) {
	case 1:
		return line_1;
	case 2:
		return line_2;
	case 4:
		return line_4;
	case 8:
		return line_8;
	case 16:
		return line_16;
	case 3:
		return line_3;
	case 5:
		return line_5;
	case 6:
		return line_6;
	case 7:
		return line_7;
	case 12:
		return line_12;
	case 24:
		return line_24;
	case 32:
		return line_32;
	default:
		return line_short;
	}
}

/* Sides of a block: square where rows and columns run in different orders on the two sides, else as wide as
 * it can be; what one side lacks goes to the other. */
static void block_shape(const struct microkernel *microkernel, int64_t *ret_rows, int64_t *ret_cols)
{
	bool crossed = magnitude_i64(microkernel->src_row) < magnitude_i64(microkernel->src_col);
	int64_t cols = min_i64(microkernel->cols, crossed ? BLOCK_SIDE : BLOCK_UNITS);
	int64_t rows = min_i64(microkernel->rows, BLOCK_UNITS / cols);
	*ret_rows = rows;
	*ret_cols = min_i64(microkernel->cols, BLOCK_UNITS / rows);
}

/* The inner loop is the longer one. */
static void move_block(const struct microkernel *microkernel, line_fn *line, char *dst, const char *src,
                       int64_t rows, int64_t cols)
{
	if (cols >= rows)
		for (int64_t r = 0; r < rows; r++)
			line(dst + r * microkernel->dst_row, microkernel->dst_col,
			     src + r * microkernel->src_row, microkernel->src_col, cols, microkernel->unit);
	else
		for (int64_t c = 0; c < cols; c++)
			line(dst + c * microkernel->dst_col, microkernel->dst_row,
			     src + c * microkernel->src_col, microkernel->src_row, rows, microkernel->unit);
}

void microkernel_strided(const struct microkernel *microkernel)
{
	line_fn *line = line_of(microkernel->unit);
	int64_t row_block, col_block;
	block_shape(microkernel, &row_block, &col_block);
	for (int64_t r = 0; r < microkernel->rows; r += row_block)
		for (int64_t c = 0; c < microkernel->cols; c += col_block)
			move_block(microkernel, line,
			           microkernel->dst + r * microkernel->dst_row + c * microkernel->dst_col,
			           microkernel->src + r * microkernel->src_row + c * microkernel->src_col,
			           min_i64(row_block, microkernel->rows - r),
			           min_i64(col_block, microkernel->cols - c));
}
