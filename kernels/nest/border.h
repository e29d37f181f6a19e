/* SPDX-License-Identifier: Apache-2.0 */
/* Divides the border of a padded destination into boxes. A dimension's window is the range of its indices
 * that read the source; the border is everything outside of the windows. The planner, which counts the work,
 * and the kernel, which does it, must agree on the boxes.
 *
 * For each dimension from the outermost (rank - 1) to the innermost (0) there is a box before the window and
 * one after it. Such a box spans the windows of the dimensions outside of its own, and the whole of those
 * inside. Together the boxes cover every element of the border once.
 */
#ifndef KERNELS_NEST_BORDER_H
#define KERNELS_NEST_BORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "divisor.h"

#define ARGS_MAP_RANK 5
/* Maximum number of dimensions of a grid of tiles. There may be more than in a tensor map, which may combine
 * several of them as its last dimension. */
#define ARGS_GRID_RANK 8
/* The rank of a tensor, and one dimension more for elements that are narrowed (loop_nest_narrow). */
#define ARGS_MAX_RANK 33

/* A dimension with its window; the fields are those of struct loop_nest_dim. */
struct strided_dim {
	int64_t n;
	int64_t dst;
	int64_t src;
	int64_t before;
	int64_t source;
};

struct border_range {
	int64_t start;
	int64_t n;
};

/* Returns the range of indices of dimension d in box b of 2 * rank boxes. */
ON_BOTH_SIDES struct border_range border_box(const struct strided_dim *dim, uint32_t rank, uint32_t b,
                                             uint32_t d)
{
	uint32_t own = rank - 1 - b / 2;
	struct border_range range = { 0, dim[d].n };

	if (d > own) {
		range.start = dim[d].before;
		range.n = dim[d].source;
	} else if (d == own && b % 2 == 0) {
		range.n = dim[d].before;
	} else if (d == own) {
		range.start = dim[d].before + dim[d].source;
		range.n = dim[d].n - range.start;
	}
	return range;
}

/* Returns the number of rows of a box: one for each combination of indices of its outer dimensions, or 0 if
 * it is empty. */
ON_BOTH_SIDES uint64_t border_rows(const struct strided_dim *dim, uint32_t rank, uint32_t b)
{
	uint64_t rows = border_box(dim, rank, b, 0).n > 0;

	for (uint32_t d = 1; d < rank; d++)
		rows *= (uint64_t)border_box(dim, rank, b, d).n;
	return rows;
}

/* Returns the maximum number of aligned chunks of 16 bytes that a row of row_bytes bytes touches. */
ON_BOTH_SIDES uint64_t row_chunks(uint64_t row_bytes)
{
	return (row_bytes + 30) / 16;
}

/* Returns whether rows of a border are shorter than a chunk. Such rows are written element by element:
 * threads that each write a chunk would write neighbouring elements one after another. */
ON_BOTH_SIDES bool border_is_short(uint64_t row_bytes)
{
	return row_bytes < 16;
}

/* Threads of a thread block, the number of chunks or elements that each takes at a time, and their
 * product. */
#define ROWS_THREADS 256
#define ROWS_BATCH   4
#define ROWS_BLOCK   (ROWS_THREADS * ROWS_BATCH)

/* Returns how many thread blocks it takes to write a box once, with ROWS_BLOCK chunks or elements each. */
ON_BOTH_SIDES uint64_t border_tiles(const struct strided_dim *dim, uint32_t rank, uint32_t b,
                                    uint32_t element)
{
	uint64_t n = (uint64_t)border_box(dim, rank, b, 0).n;
	uint64_t parts = border_is_short(n * element) ? n : row_chunks(n * element);

	return (border_rows(dim, rank, b) * parts + ROWS_BLOCK - 1) / ROWS_BLOCK;
}

#endif
