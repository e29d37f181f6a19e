/* SPDX-License-Identifier: Apache-2.0 */
/* Ways that transpose rows and columns: panels, whole or of few rows or columns, and pixels. */
#include <math.h>
#include <string.h>

#include "proto/arithmetic.h"
#include "tile_fill.h"

/* Smaller panels are faster unit by unit, many of them by one table. Not measured apart. */
#define PANEL_LEAST 256 /* bytes */

/* Rows of a panel, with those of gaps, to those that there are, at most. Not measured. */
#define ROW_GAPS 4

/* Instructions for 16 bytes of pixels that need no room, to bring them together. */
#define MERGE_COST 6

/* Few rows or columns cost so many times their part of the squares and of their copies: in the cache of a Zen
 * 3, where 16 bytes of a panel of bytes, whose cost is 6, take 0.8 ns, 3 to 15 rows 12.3 to 3.2, in long
 * columns 8.5 to 2.2; 6 to 15 columns 8.6 to 3.5. */
#define FEW_TIMES 2.2

/* Rows of few columns that are transposed at a time. */
#define BLOCK_ROWS 64

/* ---- The choice ------------------------------------------------------------------------------------- */

static void begin_tables(struct tile_choice *choice)
{
	struct tile_fill *fill = choice->fill;
	fill->rows = fill->cols = 1;
	fill->shift = 0;
	fill->image[0] = fill->src[0] = 0;
	choice->used = 1;
}

/* The dimension that goes on with rows in the source, across a gap if may_skip; -1: none. */
static int find_row(const struct tile_choice *choice, bool may_skip)
{
	const struct tile_fill *fill = choice->fill;
	int64_t run = fill->rows * fill->unit, most = ROW_GAPS * choice->used * fill->unit;
	int ret = choice_find_src(choice, run);
	if (ret >= 0 && choice->dim[ret].image != fill->unit)
		return ret;
	ret = -1;
	for (int d = 0; d < choice->n && may_skip; d++) {
		int64_t stride = magnitude_i64(choice->dim[d].packed);
		if (!choice_is_taken(choice, d) && choice->dim[d].image != fill->unit && stride > run &&
		    stride <= most && stride % fill->unit == 0) {
			most = stride;
			ret = d;
		}
	}
	return ret;
}

/* Goes on with rows where they end in the source, up to `enough` and to `most` at most, but not into the
 * dimension in which the image is contiguous. Rows in a gap lie where the next one after it does, which is
 * written later. */
static void extend_rows(struct tile_choice *choice, int64_t enough, int64_t most, bool may_skip)
{
	struct tile_fill *fill = choice->fill;
	while (fill->rows < enough) {
		int d = find_row(choice, may_skip);
		if (d < 0)
			return;
		int64_t pitch = magnitude_i64(choice->dim[d].packed) / fill->unit, have = fill->rows;
		if (!choice_shorten(choice, d, (most - have) / pitch + 1))
			return;
		const struct tile_dim *dim = &choice->dim[d];
		int64_t back = dim->packed < 0 ? dim->n - 1 : 0; /* it runs backwards: from its end */
		int64_t step = back ? -dim->image : dim->image;
		fill->shift += back * dim->packed;
		for (int64_t r = 0; r < have; r++)
			fill->image[r] += back * dim->image;
		for (int64_t r = have; r < pitch; r++)
			fill->image[r] = fill->image[0] + step;
		fill->rows = have + (dim->n - 1) * pitch;
		for (int64_t r = pitch; r < fill->rows; r++)
			fill->image[r] = fill->image[r - pitch] + step;
		choice->used *= dim->n;
		choice_take(choice, d);
	}
}

/* The same of columns, where they end in the image. */
static void extend_cols(struct tile_choice *choice, int64_t enough, int64_t most)
{
	struct tile_fill *fill = choice->fill;
	while (fill->cols < enough) {
		int d = choice_find_image(choice, fill->cols * fill->unit);
		if (d < 0 || magnitude_i64(choice->dim[d].packed) == fill->unit ||
		    !choice_shorten(choice, d, most / fill->cols))
			return;
		const struct tile_dim *dim = &choice->dim[d];
		choice_extend(fill->src, fill->cols, dim->n, dim->packed);
		fill->cols *= dim->n;
		choice_take(choice, d);
	}
}

/* Rows first, as many as a tile of short elements has or a line of long ones, then columns, then whatever
 * rows are left: what both could have goes to the side that lacks it. */
static void choose_tables(struct tile_choice *choice)
{
	struct tile_fill *fill = choice->fill;
	begin_tables(choice);
	extend_rows(choice, (fill->unit <= 2 ? 16 : CPU_LINE) / fill->unit, TILE_TABLE, false);
	extend_cols(choice, TILE_TABLE, TILE_TABLE);
	extend_rows(choice, TILE_TABLE, TILE_TABLE, false);
}

/* Columns first, as many as a square has, then rows across what of the source lies between them: it is
 * cropped, or belongs to the columns. */
static void choose_tables_with_gaps(struct tile_choice *choice)
{
	struct tile_fill *fill = choice->fill;
	int64_t least = 16 / fill->unit;
	begin_tables(choice);
	extend_cols(choice, least, TILE_TABLE);
	extend_rows(choice, 2 * least, TILE_TABLE, true);
	extend_cols(choice, TILE_TABLE, TILE_TABLE);
	extend_rows(choice, TILE_TABLE, TILE_TABLE, false);
}

/* Instructions for 16 bytes, about: to read and write them, and the rounds of interleaving. */
static double panel_cost(int64_t unit)
{
	return 6 - __builtin_ctzll((uint64_t)unit);
}

/* false: it has no whole square, or hardly more. */
static bool take_panel(struct tile_choice *choice)
{
	struct tile_fill *fill = choice->fill;
	int64_t least = 16 / fill->unit;
	if (fill->rows < least || fill->cols < least || fill->rows * fill->cols * fill->unit < PANEL_LEAST)
		return false;
	double squares = (double)(divide_up_i64(fill->rows, least) * divide_up_i64(fill->cols, least));
	fill->way = TILE_PANEL;
	fill->cost =
	    panel_cost(fill->unit) * squares * (double)(least * least) / (double)(choice->used * fill->cols);
	return true;
}

/* Where squares overlap or have gaps this much, another way may be faster. */
#define PANEL_WASTE 1.5

bool choose_panel(struct tile_choice *choice)
{
	struct tile_fill *fill = choice->fill;
	struct tile_choice before = *choice;
	choose_tables(choice);
	bool is_panel = take_panel(choice);
	double cost = is_panel ? fill->cost : HUGE_VAL;
	if (cost <= PANEL_WASTE * panel_cost(fill->unit))
		return true;
	*choice = before;
	if (!choice->direct) {
		choose_tables_with_gaps(choice);
		if (take_panel(choice) && fill->cost < cost)
			return true;
		*choice = before;
	}
	if (!is_panel)
		return false;
	choose_tables(choice);
	return take_panel(choice);
}

bool panel_is_full(const struct tile_fill *fill)
{
	return fill->cost <= PANEL_WASTE * panel_cost(fill->unit);
}

bool choose_few(struct tile_choice *choice)
{
	struct tile_fill *fill = choice->fill;
	struct tile_choice before = *choice;
	int64_t least = 16 / fill->unit;
	choose_tables(choice);
	fill->way = fill->rows < least ? TILE_FEW_ROWS : TILE_FEW_COLS;
	for (int64_t c = fill->cols; c < least; c++)
		fill->src[c] = fill->src[0];
	if ((fill->rows < least) == (fill->cols < least)) {
		*choice = before;
		return false;
	}
	/* All of a square for those that there are of it, and their copy. */
	if (fill->way == TILE_FEW_ROWS)
		fill->cost = panel_cost(fill->unit) * (double)least / (double)fill->rows + 2;
	else
		fill->cost = panel_cost(fill->unit) * (double)least / (double)fill->cols +
		             64 / (double)(fill->cols * fill->unit);
	fill->cost *= FEW_TIMES;
	return true;
}

double pixel_cost(int64_t bytes, double full)
{
	int64_t room = 1;
	while (room < bytes)
		room *= 2;
	return full * (double)room / (double)bytes;
}

static bool choose_split(struct tile_choice *choice)
{
	struct tile_fill *fill = choice->fill;
	int64_t unit = fill->unit;
	begin_tables(choice);
	extend_rows(choice, 16 / unit, 16 / unit, false);
	int col = choice_find_image(choice, unit);
	const struct tile_dim *c = &choice->dim[col];
	if (fill->rows < 2 || c->packed != fill->rows * unit || c->n < CPU_LINE / unit)
		return false;
	fill->way = TILE_SPLIT;
	fill->cols = c->n;
	fill->cost = pixel_cost(fill->rows * unit, TILE_SPLIT_COST);
	choice_take(choice, col);
	return true;
}

static bool choose_merge(struct tile_choice *choice)
{
	struct tile_fill *fill = choice->fill;
	int64_t unit = fill->unit;
	begin_tables(choice);
	extend_cols(choice, 16 / unit, 16 / unit);
	int row = choice_find_src(choice, unit);
	const struct tile_dim *r = &choice->dim[row];
	if (fill->cols < 2 || r->image != fill->cols * unit || r->packed < 0 || r->n < CPU_LINE / unit)
		return false;
	fill->way = TILE_MERGE;
	fill->rows = r->n;
	fill->cost = pixel_cost(fill->cols * unit, MERGE_COST);
	choice_take(choice, row);
	return true;
}

bool choose_pixels(struct tile_choice *choice)
{
	struct tile_choice before = *choice;
	if (choice->fill->unit == 16)
		return false;
	if (choose_split(choice))
		return true;
	*choice = before;
	if (choose_merge(choice))
		return true;
	*choice = before;
	return false;
}

/* ---- Few rows or columns ---------------------------------------------------------------------------- */

/* Whole tiles by way of a block; from there those rows that there are. */
void few_rows_run(const struct tile_fill *fill, char *image, const char *src, struct cpu_fetch *fetch)
{
	int shift = __builtin_ctzll((uint64_t)fill->unit);
	int64_t unit = fill->unit, row[16];
	int64_t wide = fill->cols * unit >= CPU_LINE ? CPU_LINE / unit : 16 / unit;
	char block[16 * CPU_LINE] __attribute__((aligned(CPU_LINE)));
	for (int64_t r = 0; r < 16 / unit; r++)
		row[r] = r * CPU_LINE;
	for (int64_t c = 0; c < fill->cols; c += wide) {
		int64_t from = min_i64(c, fill->cols - wide);
		fill->isa->panel[shift](block, row, src, fill->src + from, 16 / unit, wide, fetch);
		for (int64_t r = 0; r < fill->rows; r++) {
			char *to = image + fill->image[r] + from * unit;
			if (wide * unit == CPU_LINE)
				memcpy(to, block + r * CPU_LINE, CPU_LINE);
			else
				memcpy(to, block + r * CPU_LINE, 16);
		}
	}
}

/* The n bytes that there are of rows of a block, by two moves of one size that may overlap. */
#define DEFINE_PUT(size)                                                                                    \
	static void put_##size(char *image, const int64_t *row, const char *block, int64_t rows, int64_t n) \
	{                                                                                                   \
		for (int64_t r = 0; r < rows; r++, block += 16) {                                           \
			char a[size], b[size];                                                              \
			memcpy(a, block, size);                                                             \
			memcpy(b, block + n - (size), size);                                                \
			memcpy(image + row[r], a, size);                                                    \
			memcpy(image + row[r] + n - (size), b, size);                                       \
		}                                                                                           \
	}
DEFINE_PUT(1)
DEFINE_PUT(2)
DEFINE_PUT(4)
DEFINE_PUT(8)

void few_cols_run(const struct tile_fill *fill, char *image, const char *src, struct cpu_fetch *fetch)
{
	int shift = __builtin_ctzll((uint64_t)fill->unit);
	int64_t unit = fill->unit, n = fill->cols * unit, least = 16 / unit, row[BLOCK_ROWS];
	char block[BLOCK_ROWS * 16] __attribute__((aligned(CPU_LINE)));
	for (int64_t r = 0; r < BLOCK_ROWS; r++)
		row[r] = r * 16;
	for (int64_t r = 0; r < fill->rows; r += BLOCK_ROWS) {
		int64_t from = min_i64(r, fill->rows - least);
		int64_t rows = min_i64(BLOCK_ROWS, fill->rows - from);
		fill->isa->panel[shift](block, row, src + from * unit, fill->src, rows, least, fetch);
		(n < 2   ? put_1
		 : n < 4 ? put_2
		 : n < 8 ? put_4
		         : put_8)(image, fill->image + from, block, rows, n);
	}
}
