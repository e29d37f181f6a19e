/* The transpose leaf: dst[r][c] = src[c][r], rows contiguous on their own side.
 *
 * Boxes are cut into strips that give every row of dst one line (isa.h). What is left at the edges is done
 * by strips that overlap the last whole one: they write the same bytes twice. Past the cache, whole lines
 * are written or none: straight from registers where all rows of dst start at the same place in a line, else
 * by way of scratch (stage.c).
 */
#include "microkernel.h"

#include <string.h>

#include "transpose.h"

/* Bytes of a run read from one row of src before the next row, and rows of dst that are written side by side,
 * at most: short, so that few pages are open at once. */
#define TRANSPOSE_RUN 512
#define OPEN_ROWS     256

static void transpose_box(const struct leaf *leaf);
static void transpose_aligned(const struct leaf *leaf, int64_t lead);

static int64_t max(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static struct leaf leaf_part(const struct leaf *leaf, int64_t row, int64_t rows, int64_t col, int64_t cols)
{
	struct leaf part = *leaf;
	part.dst += row * leaf->dst_row + col * leaf->dst_col;
	part.src += row * leaf->src_row + col * leaf->src_col;
	part.rows = rows;
	part.cols = cols;
	return part;
}

char *leaf_row(const struct leaf *leaf, int64_t row)
{
	int64_t block = row / leaf->row_block;
	char *dst = leaf->dst + row % leaf->row_block * leaf->dst_row;
	for (int d = 0; d < leaf->n_row; d++) {
		dst += block % leaf->row_dim[d].n * leaf->row_dim[d].dst;
		block /= leaf->row_dim[d].n;
	}
	return dst;
}

/* ---- The way ---------------------------------------------------------------------------------------- */

void leaf_transpose(const struct leaf *leaf)
{
	if (leaf->scratch && stage_takes(leaf)) {
		stage_transpose(leaf);
		return;
	}
	if (!leaf->n_row && !leaf->n_run) {
		transpose_box(leaf);
		return;
	}
	/* Box by box of two dimensions. */
	int64_t at[LEAF_DIMS] = { 0 };
	struct leaf part = *leaf;
	part.n_row = part.n_run = 0;
	for (;;) {
		int d = 0;
		for (int64_t row = 0; row < leaf->rows; row += part.row_block) {
			struct leaf box = part;
			box.rows = leaf->row_block;
			box.dst += leaf_row(leaf, row) - leaf->dst;
			box.src += row * leaf->src_row;
			transpose_box(&box);
		}
		for (; d < leaf->n_run; d++) {
			part.dst += leaf->run[d].dst;
			part.src += leaf->run[d].src;
			if (++at[d] < leaf->run[d].n)
				break;
			at[d] = 0;
			part.dst -= leaf->run[d].n * leaf->run[d].dst;
			part.src -= leaf->run[d].n * leaf->run[d].src;
		}
		if (d == leaf->n_run)
			return;
	}
}

/* Two dimensions, neither of them staged. */
static void transpose_box(const struct leaf *leaf)
{
	int64_t run = OPEN_ROWS * leaf->unit < TRANSPOSE_RUN ? OPEN_ROWS : TRANSPOSE_RUN / leaf->unit;
	int64_t lead = leaf_to_line(leaf->dst);
	bool streamed = leaf->scratch && leaf->cols * leaf->unit >= CPU_LINE + lead &&
	                leaf->dst_row % CPU_LINE == 0 && lead % leaf->unit == 0 &&
	                leaf->rows >= 16 / leaf->unit;
	if (!streamed && leaf->rows <= run) {
		transpose_cached(leaf, NULL);
		return;
	}
	for (int64_t row = 0; row < leaf->rows; row += run) {
		struct leaf part =
		    leaf_part(leaf, row, leaf->rows - row < run ? leaf->rows - row : run, 0, leaf->cols);
		if (streamed && part.rows >= 16 / leaf->unit)
			transpose_aligned(&part, lead / leaf->unit);
		else
			transpose_cached(&part, NULL);
	}
}

/* ---- Strips ----------------------------------------------------------------------------------------- */

/* next: the first column of the strip after this one, 0 when there is none. */
static void strip_all(const struct leaf *leaf, cpu_strip_fn *strip, int64_t col, const char *next)
{
	int64_t per_group = 16 / leaf->unit;
	int64_t groups = leaf->rows / per_group;
	char *dst = leaf->dst + col * leaf->dst_col;
	const char *src = leaf->src + col * leaf->src_col;
	strip(dst, leaf->dst_row, src, leaf->src_col, groups, next);
	if (leaf->rows % per_group) {
		int64_t row = leaf->rows - per_group;
		strip(dst + row * leaf->dst_row, leaf->dst_row, src + row * leaf->src_row, leaf->src_col, 1,
		      NULL);
	}
}

/* Strips of whole lines from column col on; gives the first column that is left. */
static int64_t strips(const struct leaf *leaf, cpu_strip_fn *strip, int64_t col, const char *next)
{
	int64_t wide = CPU_LINE / leaf->unit;
	for (; col + wide <= leaf->cols; col += wide) {
		bool more = col + 2 * wide <= leaf->cols;
		strip_all(leaf, strip, col, more ? leaf->src + (col + wide) * leaf->src_col : next);
	}
	return col;
}

void transpose_cached(const struct leaf *leaf, const char *next)
{
	int shift = leaf_shift(leaf->unit);
	int64_t narrow = 16 / leaf->unit, wide = CPU_LINE / leaf->unit;
	if (leaf->rows > 1 && leaf->rows < narrow && leaf->src_col == leaf->rows * leaf->unit &&
	    leaf->cols >= wide) {
		leaf->isa->split[shift](leaf->dst, leaf->dst_row, leaf->src, leaf->rows, leaf->cols);
		return;
	}
	if (leaf->cols > 1 && leaf->cols <= narrow && leaf->dst_row == leaf->cols * leaf->unit &&
	    leaf->rows >= wide) {
		leaf->isa->merge[shift](leaf->dst, leaf->src, leaf->src_col, leaf->cols, leaf->rows);
		return;
	}
	if (leaf->rows < narrow || leaf->cols < narrow) {
		leaf_strided(leaf);
		return;
	}
	int64_t col = strips(leaf, leaf->isa->strip[shift], 0, next);
	for (; col < leaf->cols; col += narrow) {
		bool more = col + narrow < leaf->cols;
		int64_t from = col + narrow <= leaf->cols ? col : leaf->cols - narrow;
		strip_all(leaf, leaf->isa->narrow[shift], from,
		          more ? leaf->src + (col + narrow) * leaf->src_col : next);
	}
}

/* lead: columns before the first whole line. The columns before and after the whole lines go through the
 * cache, at least a narrow strip of them. */
static void transpose_aligned(const struct leaf *leaf, int64_t lead)
{
	int64_t narrow = 16 / leaf->unit;
	if (lead) {
		struct leaf head = leaf_part(leaf, 0, leaf->rows, 0, max(lead, narrow));
		transpose_cached(&head, NULL);
	}
	int64_t col = strips(leaf, leaf->isa->strip_stream[leaf_shift(leaf->unit)], lead, NULL);
	if (col < leaf->cols) {
		int64_t rest = max(leaf->cols - col, narrow);
		struct leaf tail = leaf_part(leaf, 0, leaf->rows, leaf->cols - rest, rest);
		transpose_cached(&tail, NULL);
	}
}
