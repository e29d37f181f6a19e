/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the way to fill a tile, and runs the loops around it.
 *
 * A choice begins with all dimensions of the tile. A way takes the dimensions that it moves at a time, and
 * lists their offsets in tables; the others become loops around the way. Each choose_* function sets the way
 * and takes its dimensions, or leaves the choice as it was and returns false. Panels and pixels are for units
 * of 1, 2, 4, 8 or 16 bytes that are contiguous along different dimensions in the source and in the image.
 */
#include "tile_fill.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/isa/isa.h"
#include "proto/arithmetic.h"

/* Panels of units smaller than this, in bytes, are faster filled from packed runs than directly from the
 * source: otherwise one line of the source is spread over so many rows that neighbouring lines leave the
 * cache in between. Measured on two processors as speed relative to memcpy (tests/bench/EXPERIMENTS.md): for
 * 1 and 2 bytes 0.50 to 0.64 packed and 0.31 to 0.54 direct, for 4 bytes 0.54 packed and 0.65 direct. */
#define DIRECT_UNIT 4

/* Panels whose rows are shorter than this, in bytes, are also faster filled from packed runs. */
#define DIRECT_ROW CPU_LINE

/* Approximate number of instructions for 16 bytes that are moved in units of one byte. */
#define TILE_UNITS_COST 40.0

/* The dimensions of a tile while its way is chosen. Those that the way takes are marked in `taken`; the
 * others become loops around it. */
struct tile_choice {
	struct tile_fill *fill;
	bool direct;
	int n;
	uint64_t taken;
	int64_t used; /* rows of a panel that are not in gaps */
	struct tile_dim dim[TILE_DIMS];
};

/* ---- Dimensions ------------------------------------------------------------------------------------- */

static bool choice_is_taken(const struct tile_choice *choice, int d)
{
	return choice->taken >> d & 1;
}

static void choice_take(struct tile_choice *choice, int d)
{
	choice->taken |= UINT64_C(1) << d;
}

/* Returns the dimension that is not taken and has that stride in the image, or -1. */
static int choice_find_image(const struct tile_choice *choice, int64_t stride)
{
	for (int d = 0; d < choice->n; d++)
		if (!choice_is_taken(choice, d) && choice->dim[d].image == stride)
			return d;
	return -1;
}

/* Returns the dimension that is not taken and has that stride in the source, of either sign, or -1. */
static int choice_find_src(const struct tile_choice *choice, int64_t stride)
{
	for (int d = 0; d < choice->n; d++)
		if (!choice_is_taken(choice, d) && magnitude_i64(choice->dim[d].packed) == stride)
			return d;
	return -1;
}

/* Limits dimension d to at most `most` indices by splitting it in two if necessary; the other part is
 * inserted after it. Returns false if the dimension has no suitable divisor. */
static bool choice_shorten(struct tile_choice *choice, int d, int64_t most)
{
	struct tile_dim *dim = &choice->dim[d];
	if (dim->n <= most)
		return true;
	int64_t part = most;
	while (part > 1 && dim->n % part)
		part--;
	if (part < 2 || choice->n == TILE_DIMS)
		return false;
	memmove(dim + 2, dim + 1, (size_t)(choice->n - d - 1) * sizeof(*dim));
	dim[1] = (struct tile_dim){ dim->n / part, dim->image * part, dim->src * part, dim->packed * part };
	dim->n = part;
	choice->n++;
	uint64_t below = choice->taken & ((UINT64_C(2) << d) - 1);
	choice->taken = below | (choice->taken & ~below) << 1;
	return true;
}

/* Extends a table of `have` offsets by a dimension of n indices that lie `stride` bytes apart: the table
 * becomes n times as long. */
static void choice_extend(int64_t *table, int64_t have, int64_t n, int64_t stride)
{
	for (int64_t i = 1; i < n; i++)
		for (int64_t j = 0; j < have; j++)
			table[i * have + j] = table[j] + i * stride;
}

/* ---- Panels and pixels ------------------------------------------------------------------------------ */

/* Smaller panels are slower than moving unit by unit, where one table covers many of them. Not measured
 * separately. */
#define PANEL_LEAST 256 /* bytes */

/* Maximum number of rows of a panel, including those in gaps, for each row that is not in a gap. Not
 * measured. */
#define ROW_GAPS 4

/* Approximate number of instructions for 16 bytes when pixels whose size is a power of two are assembled. */
#define MERGE_COST 6

/* Factor by which the ways for few rows or columns cost more than their squares and copies account for. On a
 * Zen 3, for data in the cache, 16 bytes of a panel of bytes, whose cost is 6, take 0.8 ns. With 3 to 15 rows
 * they take 12.3 to 3.2 ns, or 8.5 to 2.2 ns in long columns; with 6 to 15 columns they take 8.6 to 3.5
 * ns. */
#define FEW_TIMES 2.2

/* Rows of few columns that are transposed at a time. */
#define BLOCK_ROWS 64

static void begin_tables(struct tile_choice *choice)
{
	struct tile_fill *fill = choice->fill;
	fill->rows = fill->cols = 1;
	fill->shift = 0;
	fill->image[0] = fill->src[0] = 0;
	choice->used = 1;
}

/* Returns the dimension that continues the rows where they end in the source, or, if may_skip, across a gap;
 * -1 if there is none. */
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

/* Extends the rows by dimensions that continue them in the source, across gaps if may_skip, until there are
 * `enough` rows, but at most `most`. The dimension along which the image is contiguous is left for the
 * columns. A row in a gap has the image offset of the next row after the gap, which is written later and
 * overwrites it. */
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
		/* The dimension runs backwards, so it is taken from its end. */
		int64_t back = dim->packed < 0 ? dim->n - 1 : 0;
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

/* Extends the columns in the same way by dimensions that continue them in the image. */
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

/* Takes rows first, as many as a square of short elements or a line of long ones has, then columns, then
 * whatever rows are left. Thus a dimension that could belong to either goes to the one that has too few
 * indices. */
static void choose_tables(struct tile_choice *choice)
{
	struct tile_fill *fill = choice->fill;
	begin_tables(choice);
	extend_rows(choice, (fill->unit <= 2 ? 16 : CPU_LINE) / fill->unit, TILE_TABLE, false);
	extend_cols(choice, TILE_TABLE, TILE_TABLE);
	extend_rows(choice, TILE_TABLE, TILE_TABLE, false);
}

/* Takes columns first, as many as a square has, then rows, also across gaps in the source. What lies in such
 * a gap is cropped, or belongs to the columns. */
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

/* Returns the approximate number of instructions for 16 bytes: reading and writing them, and the rounds of
 * interleaving. */
static double panel_cost(int64_t unit)
{
	return 6 - __builtin_ctzll((uint64_t)unit);
}

/* Makes a panel of the rows and columns in the tables. Returns false if the panel would not have a whole
 * square, or would be too small. */
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

/* If so much of the squares overlaps or lies in gaps that the cost rises by this factor, another way may be
 * faster. */
#define PANEL_WASTE 1.5

static bool choose_panel(struct tile_choice *choice)
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

/* Returns whether the panel wastes so little that hardly any other way can be faster. */
static bool panel_is_full(const struct tile_fill *fill)
{
	return fill->cost <= PANEL_WASTE * panel_cost(fill->unit);
}

static bool choose_few(struct tile_choice *choice)
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
	/* The few rows or columns cost as much as a whole square, plus their copy. */
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

static bool choose_pixels(struct tile_choice *choice)
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

/* Transposes whole squares into a block, and copies from there the rows that exist. */
static void few_rows_run(const struct tile_fill *fill, char *image, const char *src, struct cpu_fetch *fetch)
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

/* Defines a copy of the n existing bytes of each row of a block, by two moves of one size that may
 * overlap. */
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

static void few_cols_run(const struct tile_fill *fill, char *image, const char *src, struct cpu_fetch *fetch)
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

/* ---- Tables ----------------------------------------------------------------------------------------- */

/* If a dense table would have fewer units than this, its calls cost more than the second table that
 * TILE_SPARSE needs. */
#define DENSE_LEAST 32

/* Shuffles of fewer bytes than this are not used either, because of the cost of their calls. */
#define SHUFFLE_LEAST 64

/* Takes dimensions, innermost first, and lists the offsets of their units, at most `most`, in a table. If
 * dense, takes only dimensions over which the image is contiguous. Returns the number of units. */
static int64_t take_units(struct tile_choice *choice, bool dense, int64_t most)
{
	struct tile_fill *fill = choice->fill;
	int64_t n = 1;
	fill->shift = 0;
	fill->at[0] = 0;
	fill->image[0] = 0;
	for (int d = 0; d < choice->n; d++) {
		if (choice_is_taken(choice, d))
			continue;
		if ((dense && choice->dim[d].image != n * fill->unit) || !choice_shorten(choice, d, most / n))
			break;
		const struct tile_dim *dim = &choice->dim[d];
		int64_t back = dim->packed < 0 ? (dim->n - 1) * -dim->packed : 0;
		fill->shift -= back;
		for (int64_t i = 0; i < n; i++)
			fill->at[i] += (uint32_t)back;
		for (int64_t i = 1; i < dim->n; i++)
			for (int64_t j = 0; j < n; j++)
				fill->at[i * n + j] = (uint32_t)(fill->at[j] + i * dim->packed);
		if (!dense)
			choice_extend(fill->image, n, dim->n, dim->image);
		n *= dim->n;
		choice_take(choice, d);
	}
	return n;
}

/* ---- Shuffles --------------------------------------------------------------------------------------- */

int64_t shuffle_windows(const uint32_t *at, int64_t unit, int64_t from, int64_t most,
                        struct cpu_shuffle_step *step)
{
	int64_t n = 0;
	uint32_t place[16], open = 0;
	for (int64_t b = 0; b < 16; b++) {
		uint32_t start = at[(from + b) / unit];
		place[b] = start + (uint32_t)((from + b) % unit);
		open |= (uint32_t)(start != SHUFFLE_FILL) << b;
	}
	for (; open && n < most; n++) {
		uint32_t low = UINT32_MAX;
		for (int b = 0; b < 16; b++)
			if (open >> b & 1 && place[b] < low)
				low = place[b];
		step[n].offset = low;
		for (int b = 0; b < 16; b++) {
			bool is_in = open >> b & 1 && place[b] - low < 16;
			step[n].mask[b] = is_in ? (uint8_t)(place[b] - low) : 0x80;
			open &= ~((uint32_t)is_in << b);
		}
	}
	return open ? most + 1 : n;
}

void shuffle_add_windows(struct cpu_shuffle_step *step, int64_t n, int64_t windows)
{
	for (; n < windows; n++) {
		step[n].offset = n ? step->offset : 0;
		memset(step[n].mask, 0x80, sizeof(step[n].mask));
	}
}

/* Returns the number of windows for each 16 bytes with which a shuffle takes about as long as moving unit by
 * unit. */
static int64_t most_windows(int64_t unit)
{
	return unit == 1 ? 9 : unit == 2 ? 6 : unit < 8 ? 4 : 2;
}

/* Returns the cost of a shuffle. On a Zen 3, for data in the cache, 16 bytes take 0.7 ns with one window, 1.4
 * with two, 2.4 with four and 4.8 with eight; panels of bytes, whose cost is 6, take 0.8 ns. */
static double shuffle_cost(int64_t windows)
{
	return 5 * (double)windows;
}

static bool try_shuffle(struct tile_choice *choice, int64_t most_units, double most_cost)
{
	struct tile_fill *fill = choice->fill;
	struct tile_choice before = *choice;
	struct cpu_shuffle_step step[16];
	int64_t bytes = take_units(choice, true, most_units) * fill->unit;
	int64_t most = most_windows(fill->unit), windows = 1, n = divide_up_i64(bytes, 16);
	while (most > 0 && shuffle_cost(most) > most_cost)
		most--;
	for (int64_t i = 0; bytes >= SHUFFLE_LEAST && i < n && windows <= most && windows * n <= TILE_STEPS;
	     i++)
		windows = max_i64(
		    windows, shuffle_windows(fill->at, fill->unit, min_i64(i * 16, bytes - 16), most, step));
	if (bytes < SHUFFLE_LEAST || windows > most || windows * n > TILE_STEPS) {
		*choice = before;
		return false;
	}
	for (int64_t i = 0; i < n; i++) {
		struct cpu_shuffle_step *to = fill->step + i * windows;
		shuffle_add_windows(
		    to, shuffle_windows(fill->at, fill->unit, min_i64(i * 16, bytes - 16), most, to),
		    windows);
	}
	fill->way = TILE_SHUFFLE;
	fill->windows = windows;
	fill->cost = shuffle_cost(windows);
	fill->cols = bytes / fill->unit;
	return true;
}

/* Chooses a shuffle unless it costs more than `most`. */
static bool choose_shuffle(struct tile_choice *choice, double most)
{
	int64_t unit = choice->fill->unit;
	return unit < 16 &&
	       (try_shuffle(choice, TILE_TABLE, most) || try_shuffle(choice, TILE_TABLE / 2 / unit, most));
}

/* ---- Unit by unit ----------------------------------------------------------------------------------- */

static void choose_table(struct tile_choice *choice)
{
	struct tile_fill *fill = choice->fill;
	struct tile_choice before = *choice;
	fill->way = TILE_DENSE;
	fill->cost = TILE_UNITS_COST / (double)fill->unit;
	fill->cols = take_units(choice, true, TILE_TABLE);
	if (fill->cols >= DENSE_LEAST)
		return;
	*choice = before;
	fill->way = TILE_SPARSE;
	fill->cost = 1.5 * TILE_UNITS_COST / (double)fill->unit;
	fill->cols = take_units(choice, false, TILE_TABLE);
}

/* Defines moving by a table of units. size is the number of bytes moved for each unit, which may be more than
 * a unit has: the excess is overwritten by the next unit, or lies between the rows of the image. */
#define DEFINE_TABLE(name, unit, size)                                                        \
	static void dense_##name(const struct tile_fill *fill, char *image, const char *src)  \
	{                                                                                     \
		const uint32_t *at = fill->at;                                                \
		int64_t n = fill->cols, step = unit;                                          \
		for (int64_t i = 0; i < n; i++, image += step)                                \
			memcpy(image, src + at[i], size);                                     \
	}                                                                                     \
	static void sparse_##name(const struct tile_fill *fill, char *image, const char *src) \
	{                                                                                     \
		const uint32_t *at = fill->at;                                                \
		const int64_t *to = fill->image;                                              \
		int64_t n = fill->cols;                                                       \
		for (int64_t i = 0; i < n; i++)                                               \
			memcpy(image + to[i], src + at[i], size);                             \
	}
DEFINE_TABLE(1, 1, 1)
DEFINE_TABLE(2, 2, 2)
DEFINE_TABLE(4, 4, 4)
DEFINE_TABLE(8, 8, 8)
DEFINE_TABLE(16, 16, 16)
DEFINE_TABLE(most_16, fill->unit, 16)
DEFINE_TABLE(most_32, fill->unit, 32)
DEFINE_TABLE(most_64, fill->unit, 64)

static void dense_exact(const struct tile_fill *fill, char *image, const char *src)
{
	for (int64_t i = 0; i < fill->cols; i++)
		copy_short(image + i * fill->unit, src + fill->at[i], (uint32_t)fill->unit);
}

static void sparse_exact(const struct tile_fill *fill, char *image, const char *src)
{
	for (int64_t i = 0; i < fill->cols; i++)
		copy_short(image + fill->image[i], src + fill->at[i], (uint32_t)fill->unit);
}

typedef void table_fn(const struct tile_fill *fill, char *image, const char *src);

static table_fn *table_of(const struct tile_fill *fill)
{
#define EITHER(name) (fill->way == TILE_DENSE ? dense_##name : sparse_##name)
	switch (fill->unit) {
	case 1:
		return EITHER(1);
	case 2:
		return EITHER(2);
	case 4:
		return EITHER(4);
	case 8:
		return EITHER(8);
	case 16:
		return EITHER(16);
	default:
		break;
	}
	if (fill->exact)
		return EITHER(exact);
	return fill->unit < 16 ? EITHER(most_16) : fill->unit <= 32 ? EITHER(most_32) : EITHER(most_64);
#undef EITHER
}

static void table_run(const struct tile_fill *fill, char *image, const char *src)
{
	if (fill->way == TILE_SHUFFLE)
		fill->isa->shuffle(
		    image, src,
		    &(struct cpu_shuffle){ fill->cols * fill->unit, fill->windows, fill->step, NULL });
	else
		table_of(fill)(fill, image, src);
}

/* ---- The choice ------------------------------------------------------------------------------------- */

/* Joins dimensions that are contiguous on both sides into larger units. */
static void join_units(struct tile_choice *choice)
{
	struct tile_fill *fill = choice->fill;
	int d;
	while ((d = choice_find_image(choice, fill->unit)) >= 0 && choice->dim[d].packed == fill->unit) {
		fill->unit *= choice->dim[d].n;
		choice_take(choice, d);
	}
}

static bool choose(struct tile_choice *choice)
{
	struct tile_fill *fill = choice->fill;
	join_units(choice);
	if (fill->unit > CPU_LINE) {
		fill->way = TILE_RUNS;
		fill->cost = 2;
		return true;
	}
	int row = choice_find_src(choice, fill->unit), col = choice_find_image(choice, fill->unit);
	bool is_element = fill->unit <= 16 && !(fill->unit & (fill->unit - 1));
	bool is_crossed = is_element && row >= 0 && col >= 0 && row != col;
	if (is_crossed && choose_pixels(choice))
		return true;
	if (choice->direct)
		return is_crossed && fill->unit >= DIRECT_UNIT && choose_panel(choice) &&
		       fill->rows * fill->unit >= DIRECT_ROW;
	struct tile_choice before = *choice;
	double panel = HUGE_VAL, few = HUGE_VAL, units = TILE_UNITS_COST / (double)fill->unit;
	if (is_crossed && choose_panel(choice)) {
		panel = fill->cost;
		if (panel_is_full(fill))
			return true;
		*choice = before;
	}
	if (is_crossed && choose_few(choice)) {
		few = fill->cost;
		*choice = before;
	}
	double most = panel < few ? panel : few;
	most = units < most ? units : most;
	if (choose_shuffle(choice, most))
		return true;
	if (most == units)
		choose_table(choice);
	else if (most == panel)
		choose_panel(choice);
	else
		choose_few(choice);
	return true;
}

bool tile_fill_init(struct tile_fill *ret, const struct tile_shape *shape)
{
	struct tile_choice choice = { .fill = ret, .direct = shape->direct, .n = shape->n };
	memcpy(choice.dim, shape->dim, (size_t)shape->n * sizeof(shape->dim[0]));
	ret->isa = shape->isa;
	ret->unit = shape->element;
	ret->exact = shape->exact;
	ret->shift = 0;
	ret->n_outer = 0;
	if (!choose(&choice))
		return false;
	for (int d = 0; d < choice.n; d++)
		if (!choice_is_taken(&choice, d))
			ret->outer[ret->n_outer++] = choice.dim[d];
	return true;
}

/* ---- The loops -------------------------------------------------------------------------------------- */

static void run_way(const struct tile_fill *fill, char *image, const char *src, const char *next,
                    struct cpu_fetch *fetch)
{
	int shift = __builtin_ctzll((uint64_t)fill->unit);
	switch (fill->way) {
	case TILE_PANEL:
		if (fetch)
			fill->isa->panel[shift](image, fill->image, src, fill->src, fill->rows, fill->cols,
			                        fetch);
		else
			fill->isa->far_panel[shift](image, fill->image, src, fill->src, fill->rows,
			                            fill->cols, next);
		return;
	case TILE_FEW_ROWS:
		few_rows_run(fill, image, src, fetch);
		return;
	case TILE_FEW_COLS:
		few_cols_run(fill, image, src, fetch);
		return;
	case TILE_SPLIT:
		fill->isa->split[shift](image, fill->image, src, fill->rows, fill->cols);
		return;
	case TILE_MERGE:
		fill->isa->merge[shift](image, src, fill->src, fill->cols, fill->rows);
		return;
	case TILE_RUNS:
		memcpy(image, src, (size_t)fill->unit);
		return;
	default:
		table_run(fill, image, src);
		return;
	}
}

void tile_fill_run(const struct tile_fill *fill, char *image, const char *src, const char *next,
                   struct cpu_fetch *fetch)
{
	int64_t at[TILE_DIMS];
	for (int d = 0; d < fill->n_outer; d++)
		at[d] = 0;
	src += fill->shift;
	if (next)
		next += fill->shift;
	for (;;) {
		bool more = fill->n_outer > 0 && at[0] + 1 < fill->outer[0].n;
		run_way(fill, image, src, more ? src + fill->outer[0].packed : next, fetch);
		int d = 0;
		for (; d < fill->n_outer; d++) {
			const struct tile_dim *dim = &fill->outer[d];
			image += dim->image;
			src += dim->packed;
			if (++at[d] < dim->n)
				break;
			at[d] = 0;
			image -= dim->n * dim->image;
			src -= dim->n * dim->packed;
		}
		if (d == fill->n_outer)
			return;
	}
}
