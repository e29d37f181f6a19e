/* SPDX-License-Identifier: Apache-2.0 */
/* The microkernels: rows that are contiguous in the destination, boxes with arbitrary strides, and
 * transposes. */
#include "microkernel.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/plan/cpu_choice.h"
#include "kernels/explanation.h"
#include "move.h"
#include "proto/arithmetic.h"

/* ---- Rows: copied, repeated, reversed --------------------------------------------------------------- */

/* Runs of at least STREAM_MIN bytes are written past the cache. Shorter runs consist mostly of their first
 * and last lines, which are written through the cache anyway. They are written past it only if they consist
 * of STREAM_LINES or more whole lines. */
#define STREAM_MIN   512
#define STREAM_LINES 2

/* While a row of up to AHEAD_MOST bytes is copied, the row that comes about AHEAD_BYTES later is prefetched,
 * as the hardware prefetcher would do if rows followed each other in the source. */
#define AHEAD_BYTES 2048
#define AHEAD_MOST  4096

/* Reversed rows are made in pieces of this many bytes if they are written past the cache. */
#define REVERSE_BYTES 4096

static bool is_lines(const char *dst, int64_t n)
{
	return n >= STREAM_LINES * CPU_LINE && n % CPU_LINE == 0 && (uintptr_t)dst % CPU_LINE == 0;
}

static void copy_run(const struct microkernel *microkernel, char *dst, const char *src, int64_t n,
                     int64_t ahead)
{
	if (!microkernel->scratch || (n < STREAM_MIN && !is_lines(dst, n))) {
		memcpy(dst, src, (size_t)n);
		return;
	}
	int64_t head = microkernel_to_line(dst);
	int64_t lines = (n - head) / CPU_LINE;
	int64_t done = head + lines * CPU_LINE;
	memcpy(dst, src, (size_t)head);
	microkernel->isa->copy_lines(dst + head, src + head, lines, ahead);
	memcpy(dst + done, src + done, (size_t)(n - done));
}

void microkernel_copy_run(const struct microkernel *microkernel, char *dst, const char *src, int64_t n)
{
	copy_run(microkernel, dst, src, n, 0);
}

/* Copies rows that are contiguous on both sides: dst_col == src_col == unit. */
static void microkernel_copy(const struct microkernel *microkernel)
{
	int64_t n = microkernel->cols * microkernel->unit;
	if (!microkernel->scratch) {
		for (int64_t r = 0; r < microkernel->rows; r++)
			memcpy(microkernel->dst + r * microkernel->dst_row,
			       microkernel->src + r * microkernel->src_row, (size_t)n);
		return;
	}
	int64_t rows_ahead = AHEAD_BYTES / n + 1;
	for (int64_t r = 0; r < microkernel->rows; r++) {
		int64_t ahead = microkernel->ahead;
		if (!ahead && n <= AHEAD_MOST && r + rows_ahead < microkernel->rows)
			ahead = rows_ahead * microkernel->src_row;
		copy_run(microkernel, microkernel->dst + r * microkernel->dst_row,
		         microkernel->src + r * microkernel->src_row, n, ahead);
	}
}

/* Writes n bytes of a pattern that repeats every 16 bytes. The pattern must be CPU_LINE + 16 bytes long. */
static void repeat_run(const struct microkernel *microkernel, char *dst, const char *pattern, int64_t n)
{
	if (n < CPU_LINE) {
		memcpy(dst, pattern, (size_t)n);
		return;
	}
	int64_t head = microkernel_to_line(dst);
	memcpy(dst, pattern, CPU_LINE);
	const char *line = pattern + head % 16;
	int64_t lines = (n - head) / CPU_LINE;
	if (microkernel->scratch && n >= STREAM_MIN)
		microkernel->isa->fill_lines(dst + head, line, lines);
	else
		for (int64_t i = 0; i < lines; i++)
			memcpy(dst + head + i * CPU_LINE, line, CPU_LINE);
	int64_t done = head + lines * CPU_LINE;
	memcpy(dst + done, line, (size_t)(n - done));
}

void microkernel_repeat(const struct microkernel *microkernel)
{
	char pattern[CPU_LINE + 16];
	for (int64_t r = 0; r < microkernel->rows; r++) {
		if (r == 0 || microkernel->src_row != 0)
			for (size_t i = 0; i < sizeof(pattern); i += microkernel->unit)
				memcpy(pattern + i, microkernel->src + r * microkernel->src_row,
				       microkernel->unit);
		repeat_run(microkernel, microkernel->dst + r * microkernel->dst_row, pattern,
		           microkernel->cols * microkernel->unit);
	}
}

/* Reverses one row by way of scratch, in pieces that end at the end of a line of dst. */
static void reverse_staged(const struct microkernel *microkernel, char *dst, const char *src)
{
	int64_t unit = microkernel->unit;
	int64_t n = REVERSE_BYTES / unit + microkernel_to_line(dst) / unit;
	for (int64_t at = 0; at < microkernel->cols; at += n, n = REVERSE_BYTES / unit) {
		n = min_i64(n, microkernel->cols - at);
		microkernel->isa->reverse[microkernel_shift(microkernel->unit)](microkernel->scratch,
		                                                                src - at * unit, n);
		microkernel_copy_run(microkernel, dst + at * unit, microkernel->scratch, n * unit);
	}
}

/* Reverses rows that run backwards in the source: dst_col == unit, src_col == -unit, and unit is 1, 2, 4, 8
 * or 16. */
static void microkernel_reverse(const struct microkernel *microkernel)
{
	bool staged = microkernel->scratch && microkernel->cols * microkernel->unit >= STREAM_MIN;
	for (int64_t r = 0; r < microkernel->rows; r++) {
		char *dst = microkernel->dst + r * microkernel->dst_row;
		const char *src = microkernel->src + r * microkernel->src_row;
		if (staged)
			reverse_staged(microkernel, dst, src);
		else
			microkernel->isa->reverse[microkernel_shift(microkernel->unit)](dst, src,
			                                                                microkernel->cols);
	}
}

/* ---- Any strides ------------------------------------------------------------------------------------ */

#define BLOCK_UNITS 1024
#define BLOCK_SIDE  32 /* in units; its square is BLOCK_UNITS */

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
/* In these functions the size is a constant for the compiler; other sizes take longer. */
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

/* Chooses the sides of a block: square if rows and columns run in different orders on the two sides, else as
 * wide as possible. If one side is short, the other becomes longer. */
static void block_shape(const struct microkernel *microkernel, int64_t *ret_rows, int64_t *ret_cols)
{
	bool crossed = magnitude_i64(microkernel->src_row) < magnitude_i64(microkernel->src_col);
	int64_t cols = min_i64(microkernel->cols, crossed ? BLOCK_SIDE : BLOCK_UNITS);
	int64_t rows = min_i64(microkernel->rows, BLOCK_UNITS / cols);
	*ret_rows = rows;
	*ret_cols = min_i64(microkernel->cols, BLOCK_UNITS / rows);
}

/* Moves one block, with the longer of its two loops as the inner one. */
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

/* Moves boxes with any strides and any unit of up to CPU_LINE bytes. */
static void microkernel_strided(const struct microkernel *microkernel)
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

/* ---- Transposes ------------------------------------------------------------------------------------- */

/* A transpose is dst[r][c] = src[c][r], with rows contiguous on their own side.
 *
 * Boxes are cut into strips that give each row of dst one line (isa.h). What is left at the edges is moved by
 * strips that overlap the last whole one and write the same bytes twice. Past the cache, only whole lines are
 * written: straight from registers if all rows of dst start at the same offset within a line, else by way of
 * scratch.
 */

/* Maximum number of bytes that are read from one row of src before the next row is read, and maximum number
 * of rows of dst that are written side by side. They are small, so that only few pages are in use at once. */
#define TRANSPOSE_RUN 512
#define OPEN_ROWS     256

/* Bytes between two parts in scratch. Stores of 16 bytes may reach beyond a part, and the same position in
 * each part falls into another set of the cache. */
#define GAP CPU_LINE

/* These are the limits for transposes that are staged in scratch memory. With huge pages, runs of 1 or 4 KiB
 * are as fast, within noise (tests/bench/EXPERIMENTS.md). */
#define STAGE_RUN  2048
#define STAGE_ROWS 512

/* Maximum number of bytes of all parts together, which stay in the second-level cache. */
#define STAGE_BYTES (128 << 10)

/* Bytes of a part of a row. If there are few rows, parts are larger: up to PARTS_BYTES for all rows together,
 * and up to PART_MOST for each. With parts of 64, 128, 512 and 1024 bytes the speed differs by less than 0.05
 * of memcpy's (tests/bench/EXPERIMENTS.md). */
#define PART_BYTES  256
#define PARTS_BYTES (16 << 10)
#define PART_MOST   4096

/* Rows of dst that are shorter than this and follow each other without gaps are assembled as one. */
#define PACKED_BYTES 512

/* A division of rows into parts: each part has `step` indices of `outer`, the outermost contiguous dimension,
 * and each index stands for `bytes` bytes. Parts lie `pitch` bytes apart in scratch. */
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

/* Returns the address of row `row` of dst. */
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

/* Transposes, with dst_col == unit, src_row == unit, and unit 1, 2, 4, 8 or 16. dst_row and src_col may have
 * any sign. */
static void microkernel_transpose(const struct microkernel *microkernel)
{
	if (microkernel->scratch && stage_takes(microkernel)) {
		stage_transpose(microkernel);
		return;
	}
	if (!microkernel->n_row && !microkernel->n_run) {
		transpose_box(microkernel);
		return;
	}
	/* Go box by box of two dimensions. */
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

/* Transposes two dimensions without staging. */
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

/* Runs one strip over all rows. next is the start of the next strip's first column, or NULL if there is
 * none. */
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

/* Transposes in strips of whole lines, from column col on. next is what the last strip prefetches
 * (cpu_strip_fn). Returns the first column that is left. */
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

static void lay_out_rows(int64_t *row, int64_t n, int64_t pitch)
{
	for (int64_t i = 0; i < n; i++)
		row[i] = i * pitch;
}

/* Transposes two dimensions through the cache. next is the address in src of what is read afterwards, as for
 * cpu_strip_fn. */
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

/* Transposes past the cache. lead is the number of columns before the first whole line. The columns before
 * and after the whole lines are written through the cache; where they are fewer than a narrow strip has, some
 * columns are written twice. */
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

/* A transpose past the cache by way of scratch: rows of dst are assembled there, a part of each at a time,
 * and flushed in whole lines, wherever in a line they begin (isa.h).
 *
 *   scratch   | lines that rows keep | part of row 0 | part of row 1 | ...
 *
 * A part is a range of the dimensions that are contiguous in dst: of the columns, or, if `run` adds further
 * dimensions, of the outermost of those. Short rows that follow each other in dst without gaps are treated as
 * one row.
 *
 * This function returns where the parts begin in scratch. */
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
	/* Lines that are written in halves of vectors, with several rows side by side, would leave the CPU's
	 * write-combining buffers before they are complete. */
	bool by_halves = microkernel->isa->vector < CPU_LINE && microkernel->unit < 16;
	bool same_place = !by_halves && microkernel->dst_row % CPU_LINE == 0 &&
	                  microkernel_to_line(microkernel->dst) % microkernel->unit == 0;
	return !same_place || microkernel->n_run || microkernel->n_row ||
	       microkernel->rows < 16 / microkernel->unit;
}

/* Transposes rows that follow each other without gaps, as one row. */
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

/* Transposes one part of all rows into scratch, `steps` indices of the outermost contiguous dimension from
 * index `from` on. */
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

/* ---- The strategies ---------------------------------------------------------------------------------------
 */

/* The unit that a microkernel moves as one: an element, or a short run that is contiguous on both sides.
 * `rank` is the number of the nest's other dimensions. */
struct units {
	uint32_t bytes;
	int rank;
};

static struct units units_of(const struct loop_nest *nest)
{
	struct units ret = { nest->element, nest->rank };
	if (nest->fill || nest->rank < 2)
		return ret;
	const struct loop_nest_dim *inner = &nest->dim[nest->rank - 1];
	if (inner->dst == nest->element && inner->src == nest->element &&
	    inner->n * nest->element <= CPU_LINE) {
		ret.bytes = (uint32_t)(inner->n * nest->element);
		ret.rank--;
	}
	return ret;
}

/* Returns whether units follow each other in the destination and lie `times` times their size apart in the
 * source. */
static bool is_row(const struct loop_nest *nest, int times)
{
	struct units units = units_of(nest);
	if (units.rank == 0)
		return false;
	const struct loop_nest_dim *inner = &nest->dim[units.rank - 1];
	return inner->dst == units.bytes && (nest->fill ? 0 : inner->src) == times * (int64_t)units.bytes;
}

static bool is_power(uint32_t bytes)
{
	return bytes <= 16 && !(bytes & (bytes - 1));
}

static bool copies(const struct loop_nest *nest)
{
	return (nest->rank == 0 && !nest->fill) || is_row(nest, 1);
}

static bool transposes(const struct loop_nest *nest)
{
	int src_inner;
	return loop_nest_family(nest, &src_inner) == FAMILY_TILE_TRANSPOSE;
}

static bool repeats(const struct loop_nest *nest)
{
	return is_power(units_of(nest).bytes) && is_row(nest, 0);
}

static bool reverses(const struct loop_nest *nest)
{
	return is_power(units_of(nest).bytes) && is_row(nest, -1);
}

static bool takes_all(const struct loop_nest *nest)
{
	(void)nest;
	return true;
}

static bool plan_rows(struct move *move, const struct loop_nest *nest, const struct move_place *place,
                      const struct cpu_tile *tile)
{
	struct units units = units_of(nest);
	(void)place;
	(void)tile;
	move->unit = units.bytes;
	move->rank = units.rank;
	move->col_dim = units.rank - 1;
	move->row_dim = units.rank >= 2 ? units.rank - 2 : -1;
	return true;
}

/* If another dimension than the column dimension has the smallest stride in the source, it becomes the row
 * dimension. */
static bool plan_strided(struct move *move, const struct loop_nest *nest, const struct move_place *place,
                         const struct cpu_tile *tile)
{
	plan_rows(move, nest, place, tile);
	if (move->col_dim < 0)
		return true;
	int64_t least = magnitude_i64(move->dim[move->col_dim].src);
	for (int d = move->col_dim - 1; d >= 0; d--) {
		int64_t stride = magnitude_i64(move->dim[d].src);
		if (stride && stride < least) {
			least = stride;
			move->row_dim = d;
		}
	}
	return true;
}

/* If the source runs backwards along the row dimension, both sides are described from the other end of that
 * dimension. The move is then a transpose whose destination runs backwards. */
static bool plan_transpose(struct move *move, const struct loop_nest *nest, const struct move_place *place,
                           const struct cpu_tile *tile)
{
	int src_inner;
	(void)place;
	(void)tile;
	loop_nest_family(nest, &src_inner);
	move->col_dim = move->rank - 1;
	move->row_dim = src_inner;
	struct move_dim *dim = &move->dim[src_inner];
	if (dim->src < 0) {
		move->dst += (dim->n - 1) * dim->dst;
		move->src += (dim->n - 1) * dim->src;
		dim->dst = -dim->dst;
		dim->src = -dim->src;
	}
	return true;
}

/* ---- What explain tells of them --------------------------------------------------------------------- */

#define TILE_LEAST 4 /* elements */

/* Sets the tile of a transpose, which is a square of a cache line on each side. */
static void describe_square(struct engine_explanation *ret, const struct loop_nest *nest,
                            const struct cpu_tile *tile)
{
	const int64_t row = CPU_LINE / nest->element, n = row > TILE_LEAST ? row : TILE_LEAST;
	int src_inner;

	(void)tile;
	loop_nest_family(nest, &src_inner);
	explanation_add_tile_dim(ret, nest, src_inner, n);
	explanation_add_tile_dim(ret, nest, nest->rank - 1, n);
}

/* In the rules' text, strides are those of the interior in bytes, and dimensions are counted from the
 * outermost. */
static void explain_inner(struct family_rules *ret, const struct loop_nest *nest, enum family family,
                          const char *side, int64_t stride)
{
	if (stride != nest->element)
		family_rules_add(ret, family, "%s stride %d is %" PRId64 " bytes, not %" PRIu32, side,
		                 nest->rank - 1, stride, nest->element);
}

static void explain_source(struct family_rules *ret, const struct loop_nest *nest)
{
	int smallest = 0;

	for (int d = 0; d < nest->rank; d++) {
		if (nest->dim[d].src == nest->element)
			return;
		if (llabs(nest->dim[d].src) < llabs(nest->dim[smallest].src))
			smallest = d;
	}
	family_rules_add(ret, FAMILY_TILE_TRANSPOSE,
	                 "source stride %d, the smallest, is %" PRId64 " bytes, and none is %" PRIu32,
	                 smallest, nest->dim[smallest].src, nest->element);
}

static void explain_copy(const struct loop_nest *nest, struct family_rules *ret)
{
	const struct loop_nest_dim *inner = &nest->dim[nest->rank - 1];

	loop_nest_explain_memcpy(nest, ret);
	explain_inner(ret, nest, FAMILY_TILE_COPY, "destination", inner->dst);
	explain_inner(ret, nest, FAMILY_TILE_COPY, "source", inner->src);
}

static void explain_transpose(const struct loop_nest *nest, struct family_rules *ret)
{
	if (transposes(nest))
		return;
	explain_inner(ret, nest, FAMILY_TILE_TRANSPOSE, "destination", nest->dim[nest->rank - 1].dst);
	explain_source(ret, nest);
}

const struct cpu_strategy cpu_strategy_copy = {
	.name = "copy",
	.probe = copies,
	.cost = cpu_cost_copy,
	.plan = plan_rows,
	.microkernel = microkernel_copy,
	.explain = explain_copy,
};

const struct cpu_strategy cpu_strategy_transpose = {
	.name = "transpose",
	.probe = transposes,
	.cost = cpu_cost_transpose,
	.plan = plan_transpose,
	.microkernel = microkernel_transpose,
	.describe = describe_square,
	.explain = explain_transpose,
};

const struct cpu_strategy cpu_strategy_repeat = {
	.name = "repeat",
	.probe = repeats,
	.cost = cpu_cost_rows,
	.plan = plan_rows,
	.microkernel = microkernel_repeat,
};

const struct cpu_strategy cpu_strategy_reverse = {
	.name = "reverse",
	.probe = reverses,
	.cost = cpu_cost_rows,
	.plan = plan_rows,
	.microkernel = microkernel_reverse,
};

const struct cpu_strategy cpu_strategy_strided = {
	.name = "strided",
	.probe = takes_all,
	.cost = cpu_cost_strided,
	.plan = plan_strided,
	.microkernel = microkernel_strided,
};
