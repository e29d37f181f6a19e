/* The transpose leaf: dst[r][c] = src[c][r], rows contiguous on their own side.
 *
 * Boxes are cut into strips that give every row of dst one line (isa.h). What is left at the edges is done
 * by strips that overlap the last whole one: they write the same bytes twice. Past the cache, whole lines
 * are written or none: straight from registers where all rows of dst start at the same place in a line, else
 * by way of scratch, which holds each row at its own place in a line and keeps the part line at a block's end
 * for the next block.
 */
#include "leaf.h"

#include <string.h>

/* Bytes of a run read from one row of src before the next row: short, so that few pages are open at once. */
#define RUN_BYTES 1024

/* Bytes of a block of dst's row in scratch: a multiple of CPU_LINE. */
#define STAGE_BYTES 256

static void transpose_cached(const struct leaf *leaf);
static void transpose_streamed(const struct leaf *leaf);
static void transpose_aligned(const struct leaf *leaf, int64_t lead);
static void transpose_staged(const struct leaf *leaf);

static int64_t min(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

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

void leaf_transpose(const struct leaf *leaf)
{
	int64_t run = RUN_BYTES / leaf->unit;
	for (int64_t row = 0; row < leaf->rows; row += run) {
		struct leaf part = leaf_part(leaf, row, min(run, leaf->rows - row), 0, leaf->cols);
		if (leaf->scratch && leaf->cols * leaf->unit >= 4 * CPU_LINE)
			transpose_streamed(&part);
		else
			transpose_cached(&part);
	}
}

static void strip_all(const struct leaf *leaf, cpu_strip_fn *strip, int64_t col)
{
	int64_t per_group = 16 / leaf->unit;
	int64_t groups = leaf->rows / per_group;
	char *dst = leaf->dst + col * leaf->dst_col;
	const char *src = leaf->src + col * leaf->src_col;
	strip(dst, leaf->dst_row, src, leaf->src_col, groups);
	if (leaf->rows % per_group) {
		int64_t row = leaf->rows - per_group;
		strip(dst + row * leaf->dst_row, leaf->dst_row, src + row * leaf->src_row, leaf->src_col, 1);
	}
}

static void transpose_cached(const struct leaf *leaf)
{
	int shift = leaf_shift(leaf->unit);
	int64_t wide = CPU_LINE / leaf->unit;
	int64_t narrow = 16 / leaf->unit;
	if (leaf->rows < narrow || leaf->cols < narrow) {
		leaf_strided(leaf);
		return;
	}
	int64_t col = 0;
	for (; col + wide <= leaf->cols; col += wide)
		strip_all(leaf, leaf->isa->strip[shift], col);
	for (; col < leaf->cols; col += narrow)
		strip_all(leaf, leaf->isa->narrow[shift], min(col, leaf->cols - narrow));
}

static void transpose_streamed(const struct leaf *leaf)
{
	int64_t lead = leaf_to_line(leaf->dst);
	bool same_place = leaf->dst_row % CPU_LINE == 0 && lead % leaf->unit == 0;
	if (same_place && leaf->rows >= 16 / leaf->unit)
		transpose_aligned(leaf, lead / leaf->unit);
	else
		transpose_staged(leaf);
}

/* lead: columns before the first whole line. The columns before and after the whole lines go through the
 * cache, at least a narrow strip of them. */
static void transpose_aligned(const struct leaf *leaf, int64_t lead)
{
	int64_t wide = CPU_LINE / leaf->unit;
	int64_t narrow = 16 / leaf->unit;
	if (lead) {
		struct leaf head = leaf_part(leaf, 0, leaf->rows, 0, max(lead, narrow));
		transpose_cached(&head);
	}
	int64_t col = lead;
	for (; col + wide <= leaf->cols; col += wide)
		strip_all(leaf, leaf->isa->strip_stream[leaf_shift(leaf->unit)], col);
	if (col < leaf->cols) {
		int64_t rest = max(leaf->cols - col, narrow);
		struct leaf tail = leaf_part(leaf, 0, leaf->rows, leaf->cols - rest, rest);
		transpose_cached(&tail);
	}
}

/* Writes out one row's block of n bytes that stage holds at its place in a line; the bytes of the line
 * before it are the row's too unless it is the first block. Keeps the part line at the end in the first
 * line of stage unless it is the last block. */
static void stage_row(const struct leaf *leaf, char *dst, char *stage, int64_t n, bool first, bool last)
{
	int64_t place = (int64_t)((uintptr_t)stage % CPU_LINE);
	int64_t end = place + n;
	char *line = stage - place;
	char *dst_line = dst - place;
	int64_t from = first ? place : 0;
	if (from) {
		int64_t head = min(CPU_LINE, end) - from;
		memcpy(dst_line + from, line + from, (size_t)head);
		from += head;
	}
	int64_t lines = (end - from) / CPU_LINE;
	leaf->isa->copy_lines(dst_line + from, line + from, lines);
	from += lines * CPU_LINE;
	if (last)
		memcpy(dst_line + from, line + from, (size_t)(end - from));
	else
		memcpy(line, line + from, CPU_LINE);
}

static void transpose_staged(const struct leaf *leaf)
{
	/* A row's pitch in scratch puts every row at its place in a line, with its first line its own. */
	int64_t pitch = STAGE_BYTES + CPU_LINE + (int64_t)((uint64_t)leaf->dst_row % CPU_LINE);
	int64_t run = min(leaf->rows, CPU_SCRATCH / pitch - 1);
	int64_t block = STAGE_BYTES / leaf->unit;
	for (int64_t row = 0; row < leaf->rows; row += run) {
		char *dst = leaf->dst + row * leaf->dst_row;
		char *scratch = leaf->scratch + (uintptr_t)dst % CPU_LINE;
		int64_t rows = min(run, leaf->rows - row);
		for (int64_t col = 0; col < leaf->cols; col += block) {
			struct leaf part = leaf_part(leaf, row, rows, col, min(block, leaf->cols - col));
			part.dst = scratch;
			part.dst_row = pitch;
			transpose_cached(&part);
			for (int64_t r = 0; r < rows; r++)
				stage_row(leaf, dst + r * leaf->dst_row + col * leaf->dst_col,
				          scratch + r * pitch, part.cols * leaf->unit, col == 0,
				          col + block >= leaf->cols);
		}
	}
}
