/* SPDX-License-Identifier: Apache-2.0 */
/* The transpose microkernel: dst[r][c] = src[c][r], rows contiguous on their own side.
 *
 * Boxes are cut into strips that give every row of dst one line (isa.h). What is left at the edges is done
 * by strips that overlap the last whole one: they write the same bytes twice. Past the cache, whole lines
 * are written or none: straight from registers where all rows of dst start at the same place in a line, else
 * by way of scratch (stage.c).
 */
#include "microkernel.h"

#include <string.h>

#include "proto/arithmetic.h"
#include "transpose.h"

/* Bytes of a run read from one row of src before the next row, and rows of dst that are written side by side,
 * at most: short, so that few pages are open at once. */
#define TRANSPOSE_RUN 512
#define OPEN_ROWS     256

static void transpose_box(const struct microkernel *microkernel);
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

char *microkernel_row(const struct microkernel *microkernel, int64_t row)
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

void transpose_cached(const struct microkernel *microkernel, const char *next)
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
