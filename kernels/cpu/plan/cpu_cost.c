/* SPDX-License-Identifier: Apache-2.0 */
/* The model: a copy, and what is paid beside it for each line that is moved, by how short the runs are that
 * the lines lie in on either side, and by the instructions that permute them.
 *
 * Fitted to all candidates of 185 random rows of 16 to 48 MiB on Zen 3 with AVX2, one and two threads
 * (tests/bench/EXPERIMENTS.md).
 */
#include "cpu_cost.h"

#include <stdbool.h>

#include "kernels/nest/nest_family.h"
#include "proto/arithmetic.h"

#define LINE 64

/* Of a copy. What is read or written in vain is half as much, because a copy does both. */
#define COPY       1.05
#define EXTRA_LINE 0.5

/* Of each run of a tile, in lines: of the source, to be found and fetched from a page of its own; of the
 * destination, more where runs do not begin whole lines apart, and share lines with their neighbours. */
#define SRC_RUN        2.2
#define DST_RUN        0.8
#define DST_RUN_SHARED 4.9

/* Of tiles that write to more than PAGES pages at once, for each time that they are so many; and of those
 * that do not stay in a part of the second cache with the tile that is fetched meanwhile. */
#define PAGES      256
#define WIDE       0.39
#define CACHE_TILE (64 << 10)
#define LARGE      0.09

/* Of the instructions of a tile: those that transpose units of 1, 2, 4, 8 and 16 bytes; where one side has
 * less than 16 bytes of them; where they are moved by a table; and of a run that is contiguous on both sides.
 */
static const double panel[] = { 0.05, 0.14, 0.60, 0.23, 0.28 };
#define FEW        1.35
#define TABLE      0.1
#define TABLE_UNIT 8.0
#define TILE_CALL  1.5

/* Of those of the transpose's microkernel, by the size of a unit; far: where this does not read its source
 * from one end to the other, ROW_UNITS of it at a time. */
static const double strips[] = { 1.10, 0.45, 0.20, 0.02, 0.03 };
static const double far[] = { 0.80, 0.60, 0.09, 0.05, 0.05 };
#define ROW_UNITS 256

/* Of a call of it; of its boxes' rows, less where they follow each other in the source, and of columns that
 * do not in the destination, by their lines; and where they have less than 16 bytes, and units are moved one
 * by one. */
#define BOX_CALL 9.0
#define BOX_ROW  0.06
#define BOX_COL  0.9
#define TINY_ROW 0.8
#define TINY_COL 3.3

/* Of a call for pixels, by the lines of its longer side; shared: where this is the destination's, whose rows
 * do not begin whole lines apart. By one row of those: of 254 bytes, 0.25 of memcpy's speed. */
#define PIXEL_CALL        3.0
#define PIXEL_CALL_SHARED 8.0

/* Of a row that is copied through the cache; of short ones that follow each other on both sides. */
#define COPY_CALL 0.9
#define SHORT_ROW 0.2

/* Of the microkernels for rows that repeat a unit or run backwards, more where these are put together in
 * scratch: of 640 bytes 0.31 to 0.42 of memcpy's speed, of 4096 0.77. And for units one by one. */
#define REVERSE        0.07
#define REVERSE_CALL   0.4
#define REVERSE_CACHED 0.7
#define REVERSE_STAGED 16.0
#define STRIDED_UNIT   32.0

/* Runs that are shorter are written through the cache, which reads their lines first. */
#define CACHED_RUN 512
#define CACHED_ROW 128

/* What of the source lies between runs of a tile and is packed with them. */
#define GAP_MOST 32

/* ---- Runs ------------------------------------------------------------------------------------------- */

static int64_t stride_of(const struct loop_nest *nest, int d, bool dst)
{
	return dst ? nest->dim[d].dst : magnitude_i64(nest->dim[d].src);
}

/* Bytes up to which a side is contiguous from a run of `run` bytes on, in a box of these extents, in
 * dimensions that are not taken. */
static int64_t extend_run(const struct loop_nest *nest, const int64_t *extent, bool dst, int64_t run,
                          uint64_t taken)
{
	for (int d = nest->rank - 1; d >= 0; d--) {
		if (taken >> d & 1 || stride_of(nest, d, dst) != run)
			continue;
		taken |= UINT64_C(1) << d;
		run *= extent[d];
		if (extent[d] < nest->dim[d].n)
			break;
		d = nest->rank;
	}
	return run;
}

/* One side of a box: runs of so many bytes, from the first to the last. */
struct runs {
	int64_t n, bytes;
	bool is_cut;  /* each goes on in another box */
	bool is_even; /* runs begin whole lines apart */
};

static struct runs runs_of(const struct loop_nest *nest, const int64_t *extent, bool dst, int64_t gap_most)
{
	struct runs ret = { .n = 1, .bytes = nest->element, .is_even = true };
	uint64_t taken = 0;
	bool is_open = true;
	for (int i = 0; i < nest->rank; i++) {
		int closest = -1;
		for (int d = nest->rank - 1; d >= 0; d--)
			if (!(taken >> d & 1) &&
			    (closest < 0 || stride_of(nest, d, dst) < stride_of(nest, closest, dst)))
				closest = d;
		int64_t stride = stride_of(nest, closest, dst);
		taken |= UINT64_C(1) << closest;
		if (stride == 0)
			continue;
		is_open = is_open && stride - ret.bytes <= min_i64(ret.bytes, gap_most);
		if (is_open) {
			ret.bytes += (extent[closest] - 1) * stride;
			ret.is_cut = extent[closest] < nest->dim[closest].n;
			is_open = !ret.is_cut;
		} else {
			ret.n *= extent[closest];
			ret.is_even = ret.is_even && stride % LINE == 0;
		}
	}
	return ret;
}

/* Lines that they lie in, about. What is cut is read on before it is forgotten. */
static double lines_of(const struct runs *runs)
{
	double lines = (double)runs->bytes / LINE;
	if (!runs->is_cut)
		lines = runs->is_even ? (double)divide_up_i64(runs->bytes, LINE)
		                      : (double)(runs->bytes - 1) / LINE + 1;
	return lines * (double)runs->n;
}

static double per_line(int64_t bytes)
{
	return (double)LINE / (double)bytes;
}

/* ---- Tiles ------------------------------------------------------------------------------------------ */

/* Rows are contiguous in the source, columns in the destination; rows do not go on into columns. */
static double permute_cost(const struct loop_nest *nest, const int64_t *extent)
{
	int64_t unit = nest->element;
	uint64_t taken = 0, in_col = 0;
	int d = nest->rank - 1;
	for (; d >= 0 && nest->dim[d].dst == unit && nest->dim[d].src == unit; d--) {
		unit *= extent[d];
		taken |= UINT64_C(1) << d;
	}
	if (unit > LINE)
		return TILE_CALL * per_line(unit);
	if (d >= 0 && nest->dim[d].dst == unit)
		in_col = UINT64_C(1) << d;
	bool is_short_row = extend_run(nest, extent, false, unit, taken | in_col) < 16;
	bool is_short_col = extend_run(nest, extent, true, unit, taken) < 16;
	if (unit > 16 || unit & (unit - 1) || (is_short_row && is_short_col))
		return TABLE + TABLE_UNIT / (double)unit;
	return is_short_row || is_short_col ? FEW : panel[__builtin_ctzll((uint64_t)unit)];
}

/* Bytes of the destination's longest run. */
static int64_t longest_row(const struct loop_nest *nest)
{
	int64_t run = nest->element;
	for (int d = nest->rank - 1; d >= 0 && nest->dim[d].dst == run; d--)
		run *= nest->dim[d].n;
	return run;
}

double cpu_cost_tiles(const struct loop_nest *nest, const struct cpu_tile *tile)
{
	struct runs src = runs_of(nest, tile->n, false, GAP_MOST), dst = runs_of(nest, tile->n, true, 0);
	int64_t bytes = nest->element;
	for (int d = 0; d < nest->rank; d++)
		bytes *= tile->n[d];
	double lines = (double)bytes / LINE, cost = COPY + permute_cost(nest, tile->n);
	cost += EXTRA_LINE * (lines_of(&src) > lines ? lines_of(&src) / lines - 1 : 0);
	cost += SRC_RUN * (double)src.n / lines;
	if (longest_row(nest) < CACHED_ROW)
		cost += EXTRA_LINE;
	else
		cost += (dst.is_even ? DST_RUN : DST_RUN_SHARED) * (double)dst.n / lines;
	if (dst.n > PAGES)
		cost += WIDE * ((double)dst.n / PAGES - 1);
	if (bytes > CACHE_TILE)
		cost += LARGE;
	return cost;
}

/* ---- Microkernels ----------------------------------------------------------------------------------- */

/* Whether all strides but the innermost dimension's are whole lines. */
static bool is_lines(const struct loop_nest *nest, bool dst)
{
	for (int d = 0; d < nest->rank - 1; d++)
		if (stride_of(nest, d, dst) % LINE)
			return false;
	return true;
}

static double copy_cost(const struct loop_nest *nest)
{
	int64_t run = nest->dim[nest->rank - 1].n * nest->element;
	int64_t step = stride_of(nest, nest->rank - 2, false);
	if (run <= LINE && step <= run + LINE) /* on the next line, if not on the same */
		return COPY + SHORT_ROW;
	struct runs src = { .n = 1, .bytes = run, .is_even = is_lines(nest, false) };
	bool is_cached = run < CACHED_RUN && !(run >= 2 * LINE && run % LINE == 0 && is_lines(nest, true));
	double cost = COPY + EXTRA_LINE * (lines_of(&src) * per_line(run) - 1);
	return is_cached ? cost + EXTRA_LINE + COPY_CALL * per_line(run) : cost;
}

/* Pixels of a few channels, from or to a plane for each. */
static bool is_pixels(const struct loop_nest *nest, int64_t row, int64_t col, int64_t row_step,
                      int64_t col_step)
{
	return nest->element < 8 && ((row <= 16 && col >= LINE && col_step == row) ||
	                             (col <= 16 && row >= LINE && row_step == col));
}

static double transpose_cost(const struct loop_nest *nest, int src_inner)
{
	const struct loop_nest_dim *r = &nest->dim[src_inner], *c = &nest->dim[nest->rank - 1];
	int64_t unit = nest->element, row = r->n * unit, col = c->n * unit;
	int64_t col_step = magnitude_i64(c->src);
	int shift = __builtin_ctz(nest->element);
	if (is_pixels(nest, row, col, r->dst, col_step)) {
		bool is_shared = col >= LINE && !is_lines(nest, true);
		return COPY + (is_shared ? PIXEL_CALL_SHARED : PIXEL_CALL) * per_line(max_i64(row, col));
	}
	double cost = COPY + BOX_CALL * per_line(r->n * col);
	if (col < 16)
		return cost + TINY_COL;
	if (row < 16)
		return cost + TINY_ROW;
	cost += BOX_ROW * per_line(row);
	if (r->dst != col)
		cost += BOX_COL * per_line(col);
	bool is_far = col_step != row || r->n > ROW_UNITS;
	return cost + strips[shift] + (is_far ? far[shift] : 0);
}

static double reverse_cost(int64_t row, bool is_read)
{
	double cost = COPY + REVERSE + REVERSE_CALL * per_line(row);
	if (!is_read)
		return cost;
	return row < CACHED_RUN ? cost + REVERSE_CACHED : cost + REVERSE_STAGED * per_line(row);
}

double cpu_cost_microkernel(const struct loop_nest *nest)
{
	const struct loop_nest_dim *inner = &nest->dim[nest->rank - 1];
	int src_inner;
	switch (loop_nest_family(nest, &src_inner)) {
	case FAMILY_MEMCPY:
	case FAMILY_FILL:
		return 1;
	case FAMILY_TILE_COPY:
		return copy_cost(nest);
	case FAMILY_TILE_TRANSPOSE:
		return transpose_cost(nest, src_inner);
	default:
		break;
	}
	if (inner->dst == nest->element && magnitude_i64(inner->src) <= nest->element)
		return reverse_cost(inner->n * nest->element, inner->src != 0);
	return COPY + STRIDED_UNIT / nest->element;
}
