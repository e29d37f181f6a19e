/* The leaf for everything that no better one takes. */
#include "microkernel.h"

#include <string.h>

#include "short.h"

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
DEFINE_LINE(1)
DEFINE_LINE(2)
DEFINE_LINE(4)
DEFINE_LINE(8)
DEFINE_LINE(16)

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
	default:
		return line_short;
	}
}

static int64_t magnitude(int64_t stride)
{
	return stride < 0 ? -stride : stride;
}

static int64_t min(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Sides of a block: square where rows and columns run in different orders on the two sides, else as wide as
 * it can be; what one side lacks goes to the other. */
static void block_shape(const struct leaf *leaf, int64_t *ret_rows, int64_t *ret_cols)
{
	bool crossed = magnitude(leaf->src_row) < magnitude(leaf->src_col);
	int64_t cols = min(leaf->cols, crossed ? BLOCK_SIDE : BLOCK_UNITS);
	int64_t rows = min(leaf->rows, BLOCK_UNITS / cols);
	*ret_rows = rows;
	*ret_cols = min(leaf->cols, BLOCK_UNITS / rows);
}

/* The inner loop is the longer one. */
static void move_block(const struct leaf *leaf, line_fn *line, char *dst, const char *src, int64_t rows,
                       int64_t cols)
{
	if (cols >= rows)
		for (int64_t r = 0; r < rows; r++)
			line(dst + r * leaf->dst_row, leaf->dst_col, src + r * leaf->src_row, leaf->src_col,
			     cols, leaf->unit);
	else
		for (int64_t c = 0; c < cols; c++)
			line(dst + c * leaf->dst_col, leaf->dst_row, src + c * leaf->src_col, leaf->src_row,
			     rows, leaf->unit);
}

void leaf_strided(const struct leaf *leaf)
{
	line_fn *line = line_of(leaf->unit);
	int64_t row_block, col_block;
	block_shape(leaf, &row_block, &col_block);
	for (int64_t r = 0; r < leaf->rows; r += row_block)
		for (int64_t c = 0; c < leaf->cols; c += col_block)
			move_block(leaf, line, leaf->dst + r * leaf->dst_row + c * leaf->dst_col,
			           leaf->src + r * leaf->src_row + c * leaf->src_col,
			           min(row_block, leaf->rows - r), min(col_block, leaf->cols - c));
}
