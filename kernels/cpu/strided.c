/* The leaf for everything that no better one takes. */
#include "leaf.h"

#include <string.h>

/* Units of a block's side, when rows and columns run in different orders on the two sides. */
#define BLOCK 32

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

/* n = 1 .. CPU_LINE bytes, by two overlapping moves of one size or a few of 16. */
static inline void copy_short(char *dst, const char *src, uint32_t n)
{
	char a[16], b[16];
#define ENDS(size)                         \
	memcpy(a, src, size);              \
	memcpy(b, src + n - (size), size); \
	memcpy(dst, a, size);              \
	memcpy(dst + n - (size), b, size)
	if (n >= 16) {
		for (uint32_t i = 0; i + 16 < n; i += 16)
			memcpy(dst + i, src + i, 16);
		memcpy(dst + n - 16, src + n - 16, 16);
	} else if (n >= 8) {
		ENDS(8);
	} else if (n >= 4) {
		ENDS(4);
	} else if (n >= 2) {
		ENDS(2);
	} else {
		*dst = *src;
	}
#undef ENDS
}

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

void leaf_strided(const struct leaf *leaf)
{
	line_fn *line = line_of(leaf->unit);
	bool blocked = magnitude(leaf->src_row) < magnitude(leaf->src_col);
	int64_t row_block = blocked ? BLOCK : leaf->rows;
	int64_t col_block = blocked ? BLOCK : leaf->cols;
	for (int64_t r0 = 0; r0 < leaf->rows; r0 += row_block) {
		int64_t r1 = r0 + row_block < leaf->rows ? r0 + row_block : leaf->rows;
		for (int64_t c0 = 0; c0 < leaf->cols; c0 += col_block) {
			int64_t n = c0 + col_block < leaf->cols ? col_block : leaf->cols - c0;
			for (int64_t r = r0; r < r1; r++)
				line(leaf->dst + r * leaf->dst_row + c0 * leaf->dst_col, leaf->dst_col,
				     leaf->src + r * leaf->src_row + c0 * leaf->src_col, leaf->src_col, n,
				     leaf->unit);
		}
	}
}
