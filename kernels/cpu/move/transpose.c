/* SPDX-License-Identifier: Apache-2.0 */
/* The transpose microkernel: dst[r][c] = src[c][r], rows contiguous on their own side.
 *
 * Boxes are cut into strips that give every row of dst one line (isa.h). What is left at the edges is done
 * by strips that overlap the last whole one: they write the same bytes twice. Past the cache, whole lines
 * are written or none: straight from registers where all rows of dst start at the same place in a line, else
 * by way of scratch.
 */
#include "microkernel.h"

#include <string.h>

#include "proto/arithmetic.h"

/* Bytes of a run read from one row of src before the next row, and rows of dst that are written side by side,
 * at most: short, so that few pages are open at once. */
#define TRANSPOSE_RUN 512
#define OPEN_ROWS     256

/* Between parts: stores of 16 bytes may reach past one, and the same place in each falls into another set of
 * the cache. */
#define GAP CPU_LINE

/* Bytes of a run read from one row of src before the next row, and rows of dst that are made side by side, at
 * most. Runs of 1 and 4 KiB: within noise, with huge pages (tests/bench/EXPERIMENTS.md). */
#define STAGE_RUN  2048
#define STAGE_ROWS 512

/* Bytes of all parts: they stay in the second cache. */
#define STAGE_BYTES (128 << 10)

/* Bytes of a part of a row; more where rows are few, up to as many in all. Parts of 64, 128, 512 and 1024
 * bytes: within 0.05 of memcpy's speed (tests/bench/EXPERIMENTS.md). */
#define PART_BYTES  256
#define PARTS_BYTES (16 << 10)
#define PART_MOST   4096

/* Rows of dst that are shorter than this, and follow each other without a gap, are made as one. */
#define PACKED_BYTES 512

/* How rows are split: parts of `step` of the outermost contiguous dimension, of which each takes `bytes`. */
struct row_split {
	struct microkernel_dim outer;
	int64_t step, bytes;
	int64_t pitch;
};

static bool stage_takes(const struct microkernel *microkernel);
static void stage_transpose(const struct microkernel *microkernel);
static void transpose_box(const struct microkernel *microkernel);
static void transpose_cached(const struct microkernel *microkernel, const char *next);
static void transpose_aligned(const struct microkernel *microkernel, int64_t lead);

static struct microkernel microkernel_part(const struct microkernel *microkernel, int64_t row, int64_t rows,
                                           int64_t col, int64_t cols)
{
	struct microkernel part = *microkernel;
	part.dst += row * microkernel->dst_row + col * microkernel->dst_col;
	part.src += row * microkernel->src_row + col * microkernel->src_col;
	part.rows = rows;
	part.cols = cols;
	return part;
}

/* Row `row` of dst. */
static char *microkernel_row(const struct microkernel *microkernel, int64_t row)
{
	int64_t block = row / microkernel->row_block;
	char *dst = microkernel->dst + row % microkernel->row_block * microkernel->dst_row;
	for (int d = 0; d < microkernel->n_row; d++) {
		dst += block % microkernel->row_dim[d].n * microkernel->row_dim[d].dst;
		block /= microkernel->row_dim[d].n;
	}
	return dst;
}

/* ---- The way ---------------------------------------------------------------------------------------- */

void microkernel_transpose(const struct microkernel *microkernel)
{
	if (microkernel->scratch && stage_takes(microkernel)) {
		stage_transpose(microkernel);
		return;
	}
	if (!microkernel->n_row && !microkernel->n_run) {
		transpose_box(microkernel);
		return;
	}
	/* Box by box of two dimensions. */
	int64_t at[MICROKERNEL_DIMS] = { 0 };
	struct microkernel part = *microkernel;
	part.n_row = part.n_run = 0;
	for (;;) {
		int d = 0;
		for (int64_t row = 0; row < microkernel->rows; row += part.row_block) {
			struct microkernel box = part;
			box.rows = microkernel->row_block;
			box.dst += microkernel_row(microkernel, row) - microkernel->dst;
			box.src += row * microkernel->src_row;
			transpose_box(&box);
		}
		for (; d < microkernel->n_run; d++) {
			part.dst += microkernel->run[d].dst;
			part.src += microkernel->run[d].src;
			if (++at[d] < microkernel->run[d].n)
				break;
			at[d] = 0;
			part.dst -= microkernel->run[d].n * microkernel->run[d].dst;
			part.src -= microkernel->run[d].n * microkernel->run[d].src;
		}
		if (d == microkernel->n_run)
			return;
	}
}

/* Two dimensions, neither of them staged. */
static void transpose_box(const struct microkernel *microkernel)
{
	int64_t run =
	    OPEN_ROWS * microkernel->unit < TRANSPOSE_RUN ? OPEN_ROWS : TRANSPOSE_RUN / microkernel->unit;
	int64_t lead = microkernel_to_line(microkernel->dst);
	bool streamed = microkernel->scratch && microkernel->cols * microkernel->unit >= CPU_LINE + lead &&
	                microkernel->dst_row % CPU_LINE == 0 && lead % microkernel->unit == 0 &&
	                microkernel->rows >= 16 / microkernel->unit;
	if (!streamed && microkernel->rows <= run) {
		transpose_cached(microkernel, NULL);
		return;
	}
	for (int64_t row = 0; row < microkernel->rows; row += run) {
		struct microkernel part = microkernel_part(
		    microkernel, row, microkernel->rows - row < run ? microkernel->rows - row : run, 0,
		    microkernel->cols);
		if (streamed && part.rows >= 16 / microkernel->unit)
			transpose_aligned(&part, lead / microkernel->unit);
		else
			transpose_cached(&part, NULL);
	}
}

/* ---- Strips ----------------------------------------------------------------------------------------- */

/* next: the first column of the strip after this one, 0 when there is none. */
static void strip_all(const struct microkernel *microkernel, cpu_strip_fn *strip, int64_t col,
                      const char *next)
{
	int64_t per_group = 16 / microkernel->unit;
	int64_t groups = microkernel->rows / per_group;
	char *dst = microkernel->dst + col * microkernel->dst_col;
	const char *src = microkernel->src + col * microkernel->src_col;
	strip(dst, microkernel->dst_row, src, microkernel->src_col, groups, next);
	if (microkernel->rows % per_group) {
		int64_t row = microkernel->rows - per_group;
		strip(dst + row * microkernel->dst_row, microkernel->dst_row,
		      src + row * microkernel->src_row, microkernel->src_col, 1, NULL);
	}
}

/* Strips of whole lines from column col on; gives the first column that is left. */
static int64_t strips(const struct microkernel *microkernel, cpu_strip_fn *strip, int64_t col,
                      const char *next)
{
	int64_t wide = CPU_LINE / microkernel->unit;
	for (; col + wide <= microkernel->cols; col += wide) {
		bool more = col + 2 * wide <= microkernel->cols;
		strip_all(microkernel, strip, col,
		          more ? microkernel->src + (col + wide) * microkernel->src_col : next);
	}
	return col;
}

/* Offsets of n rows. */
static void lay_out_rows(int64_t *row, int64_t n, int64_t pitch)
{
	for (int64_t i = 0; i < n; i++)
		row[i] = i * pitch;
}

/* Rows and columns of two dimensions go through the cache. next is where what is read after them begins in
 * src, as for cpu_strip_fn. */
static void transpose_cached(const struct microkernel *microkernel, const char *next)
{
	int64_t at[16];
	int shift = microkernel_shift(microkernel->unit);
	int64_t narrow = 16 / microkernel->unit, wide = CPU_LINE / microkernel->unit;
	if (microkernel->rows > 1 && microkernel->rows < narrow &&
	    microkernel->src_col == microkernel->rows * microkernel->unit && microkernel->cols >= wide) {
		lay_out_rows(at, microkernel->rows, microkernel->dst_row);
		microkernel->isa->split[shift](microkernel->dst, at, microkernel->src, microkernel->rows,
		                               microkernel->cols);
		return;
	}
	if (microkernel->cols > 1 && microkernel->cols <= narrow &&
	    microkernel->dst_row == microkernel->cols * microkernel->unit && microkernel->rows >= wide) {
		lay_out_rows(at, microkernel->cols, microkernel->src_col);
		microkernel->isa->merge[shift](microkernel->dst, microkernel->src, at, microkernel->cols,
		                               microkernel->rows);
		return;
	}
	if (microkernel->rows < narrow || microkernel->cols < narrow) {
		microkernel_strided(microkernel);
		return;
	}
	int64_t col = strips(microkernel, microkernel->isa->strip[shift], 0, next);
	for (; col < microkernel->cols; col += narrow) {
		bool more = col + narrow < microkernel->cols;
		int64_t from = col + narrow <= microkernel->cols ? col : microkernel->cols - narrow;
		strip_all(microkernel, microkernel->isa->narrow[shift], from,
		          more ? microkernel->src + (col + narrow) * microkernel->src_col : next);
	}
}

/* lead: columns before the first whole line. The columns before and after the whole lines go through the
 * cache, at least a narrow strip of them. */
static void transpose_aligned(const struct microkernel *microkernel, int64_t lead)
{
	int64_t narrow = 16 / microkernel->unit;
	if (lead) {
		struct microkernel head =
		    microkernel_part(microkernel, 0, microkernel->rows, 0, max_i64(lead, narrow));
		transpose_cached(&head, NULL);
	}
	int64_t col = strips(
	    microkernel, microkernel->isa->strip_stream[microkernel_shift(microkernel->unit)], lead, NULL);
	if (col < microkernel->cols) {
		int64_t rest = max_i64(microkernel->cols - col, narrow);
		struct microkernel tail =
		    microkernel_part(microkernel, 0, microkernel->rows, microkernel->cols - rest, rest);
		transpose_cached(&tail, NULL);
	}
}

/* ---- By way of scratch ------------------------------------------------------------------------------ */

/* A transpose past the cache by way of scratch: rows of dst are put together there, a part of each at a time,
 * and flushed as whole lines, wherever in a line they begin (isa.h).
 *
 *   scratch   | lines that rows keep | part of row 0 | part of row 1 | ...
 *
 * A part is a stretch of the dimensions that are contiguous in dst: columns of the microkernel, or, where
 * those are short, a few steps of the outermost of them. Rows that follow each other in dst without a gap are
 * treated as one row. */
static char *parts_of(const struct microkernel *microkernel)
{
	return microkernel->scratch + STAGE_ROWS * CPU_LINE;
}

static bool is_packed(const struct microkernel *microkernel)
{
	int64_t row_bytes = microkernel->cols * microkernel->unit;
	return microkernel->n_row == 0 && microkernel->n_run == 0 && microkernel->dst_row == row_bytes &&
	       row_bytes < PACKED_BYTES && microkernel->rows * row_bytes >= 4 * CPU_LINE;
}

static int64_t run_bytes(const struct microkernel *microkernel)
{
	int64_t bytes = microkernel->cols * microkernel->unit;
	for (int d = 0; d < microkernel->n_run; d++)
		bytes *= microkernel->run[d].n;
	return bytes;
}

static bool stage_takes(const struct microkernel *microkernel)
{
	if (is_packed(microkernel))
		return true;
	if (run_bytes(microkernel) < 4 * CPU_LINE)
		return false;
	/* Lines that are written by halves of vectors, several rows side by side, would leave the processor
	 * before they are whole. */
	bool by_halves = microkernel->isa->vector < CPU_LINE && microkernel->unit < 16;
	bool same_place = !by_halves && microkernel->dst_row % CPU_LINE == 0 &&
	                  microkernel_to_line(microkernel->dst) % microkernel->unit == 0;
	return !same_place || microkernel->n_run || microkernel->n_row ||
	       microkernel->rows < 16 / microkernel->unit;
}

/* Rows without gaps. */
static void stage_packed(const struct microkernel *microkernel)
{
	int64_t row_bytes = microkernel->cols * microkernel->unit;
	int64_t most = (32 << 10) / row_bytes;
	struct microkernel part = *microkernel;
	char room[CPU_LINE];
	part.dst = parts_of(microkernel);
	for (int64_t row = 0; row < microkernel->rows; row += most) {
		part.rows = min_i64(most, microkernel->rows - row);
		part.src = microkernel->src + row * microkernel->src_row;
		transpose_cached(&part, NULL);
		unsigned ends =
		    (row == 0 ? CPU_PART_FIRST : 0) | (row + most >= microkernel->rows ? CPU_PART_LAST : 0);
		microkernel->isa->flush(microkernel->dst + row * row_bytes, 0, part.dst, 0, 1,
		                        part.rows * row_bytes, room, ends);
	}
}

static struct row_split split_rows(const struct microkernel *microkernel)
{
	struct row_split split = { .outer = { microkernel->cols, microkernel->unit, microkernel->src_col },
		                   .bytes = microkernel->unit };
	if (microkernel->n_run) {
		split.outer = microkernel->run[microkernel->n_run - 1];
		split.bytes = run_bytes(microkernel) / split.outer.n;
	}
	int64_t part = min_i64(max_i64(PART_BYTES, PARTS_BYTES / microkernel->rows), PART_MOST);
	split.step = max_i64(part / split.bytes, max_i64(1, CPU_LINE / split.bytes));
	split.pitch = divide_up_i64(split.step * split.bytes, CPU_LINE) * CPU_LINE + GAP;
	return split;
}

/* One part of all rows into scratch; from: of the outermost contiguous dimension. */
static void fill(const struct microkernel *microkernel, const struct row_split *split, int64_t row,
                 int64_t rows, int64_t from, int64_t steps)
{
	int64_t at[MICROKERNEL_DIMS] = { 0 };
	struct microkernel part = *microkernel;
	part.n_row = part.n_run = 0;
	part.rows = rows;
	part.dst = parts_of(microkernel);
	part.dst_row = split->pitch;
	part.src = microkernel->src + row * microkernel->src_row + from * split->outer.src;
	if (!microkernel->n_run) {
		const char *next = part.src + steps * microkernel->src_col;
		part.cols = steps;
		transpose_cached(&part, from + steps < microkernel->cols ? next : NULL);
		return;
	}
	for (;;) {
		transpose_cached(&part, part.src + microkernel->run[0].src);
		int d = 0;
		for (; d < microkernel->n_run; d++) {
			const struct microkernel_dim *dim = &microkernel->run[d];
			int64_t n = d == microkernel->n_run - 1 ? steps : dim->n;
			part.dst += dim->dst;
			part.src += dim->src;
			if (++at[d] < n)
				break;
			at[d] = 0;
			part.dst -= n * dim->dst;
			part.src -= n * dim->src;
		}
		if (d == microkernel->n_run)
			return;
	}
}

static void stage_rows(const struct microkernel *microkernel, const struct row_split *split, int64_t row,
                       int64_t rows)
{
	for (int64_t from = 0; from < split->outer.n; from += split->step) {
		int64_t steps = min_i64(split->step, split->outer.n - from);
		unsigned ends = (from == 0 ? CPU_PART_FIRST : 0) |
		                (from + split->step >= split->outer.n ? CPU_PART_LAST : 0);
		fill(microkernel, split, row, rows, from, steps);
		int64_t n;
		for (int64_t r = 0; r < rows; r += n) {
			n = min_i64(rows - r, microkernel->row_block - (row + r) % microkernel->row_block);
			microkernel->isa->flush(
			    microkernel_row(microkernel, row + r) + from * split->outer.dst,
			    microkernel->dst_row, parts_of(microkernel) + r * split->pitch, split->pitch, n,
			    steps * split->bytes, microkernel->scratch + r * CPU_LINE, ends);
		}
	}
}

static void stage_transpose(const struct microkernel *microkernel)
{
	if (is_packed(microkernel)) {
		stage_packed(microkernel);
		return;
	}
	struct row_split split = split_rows(microkernel);
	int64_t most = min_i64(min_i64(STAGE_RUN / microkernel->unit, STAGE_ROWS), STAGE_BYTES / split.pitch);
	for (int64_t row = 0; row < microkernel->rows; row += most)
		stage_rows(microkernel, &split, row, min_i64(most, microkernel->rows - row));
}
