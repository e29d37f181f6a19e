/* A transpose past the cache by way of scratch: rows of dst are made there, a part of each at a time, and
 * flushed as whole lines, whatever their place in a line (isa.h).
 *
 *   scratch   | room | part of row 0 | room | part of row 1 | ...
 *
 * A part is a stretch of the dimensions that are contiguous in dst: columns of the leaf, or where those are
 * short a few steps of the outermost of them. Rows that follow each other in dst without a gap are one row
 * here, and a part is a stretch of them.
 */
#include "transpose.h"

#define ROOM CPU_LINE /* before a part; and after the last for stores of 16 bytes that reach past it */

/* Bytes of a run read from one row of src before the next row, and rows of dst that are made side by side, at
 * most. */
#define STAGE_RUN  2048
#define STAGE_ROWS 512

/* Bytes of a part of a row; more where rows are few, up to as many in all. */
#define PART_BYTES  256
#define PARTS_BYTES (16 << 10)
#define PART_MOST   4096

/* Rows of dst that are shorter than this, and follow each other without a gap, are made as one. */
#define PACKED_BYTES 512

/* How rows are cut: parts of `step` of the outermost contiguous dimension, of which each takes `bytes`. */
struct cut {
	struct leaf_dim outer;
	int64_t step, bytes;
	int64_t pitch;
};

static struct cut cut_rows(const struct leaf *leaf);
static void stage_packed(const struct leaf *leaf);
static void stage_rows(const struct leaf *leaf, const struct cut *cut, int64_t row, int64_t rows);

static int64_t min(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t max(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static bool is_packed(const struct leaf *leaf)
{
	int64_t row_bytes = leaf->cols * leaf->unit;
	return leaf->n_row == 0 && leaf->n_run == 0 && leaf->dst_row == row_bytes &&
	       row_bytes < PACKED_BYTES && leaf->rows * row_bytes >= 4 * CPU_LINE;
}

static int64_t run_bytes(const struct leaf *leaf)
{
	int64_t bytes = leaf->cols * leaf->unit;
	for (int d = 0; d < leaf->n_run; d++)
		bytes *= leaf->run[d].n;
	return bytes;
}

bool stage_takes(const struct leaf *leaf)
{
	if (is_packed(leaf))
		return true;
	if (run_bytes(leaf) < 4 * CPU_LINE)
		return false;
	bool same_place = leaf->dst_row % CPU_LINE == 0 && leaf_to_line(leaf->dst) % leaf->unit == 0;
	return !same_place || leaf->n_run || leaf->n_row || leaf->rows < 16 / leaf->unit;
}

void stage_transpose(const struct leaf *leaf)
{
	if (is_packed(leaf)) {
		stage_packed(leaf);
		return;
	}
	struct cut cut = cut_rows(leaf);
	int64_t most = min(min(STAGE_RUN / leaf->unit, STAGE_ROWS), (CPU_SCRATCH - 2 * ROOM) / cut.pitch);
	for (int64_t row = 0; row < leaf->rows; row += most)
		stage_rows(leaf, &cut, row, min(most, leaf->rows - row));
}

/* ---- Rows without gaps ------------------------------------------------------------------------------ */

static void stage_packed(const struct leaf *leaf)
{
	int64_t row_bytes = leaf->cols * leaf->unit;
	int64_t most = (32 << 10) / row_bytes;
	struct leaf part = *leaf;
	part.dst = leaf->scratch + ROOM;
	for (int64_t row = 0; row < leaf->rows; row += most) {
		part.rows = min(most, leaf->rows - row);
		part.src = leaf->src + row * leaf->src_row;
		transpose_cached(&part, NULL);
		unsigned ends =
		    (row == 0 ? CPU_PART_FIRST : 0) | (row + most >= leaf->rows ? CPU_PART_LAST : 0);
		leaf->isa->flush(leaf->dst + row * row_bytes, 0, part.dst, 0, 1, part.rows * row_bytes, ends);
	}
}

/* ---- Parts of rows ---------------------------------------------------------------------------------- */

static struct cut cut_rows(const struct leaf *leaf)
{
	struct cut cut = { .outer = { leaf->cols, leaf->unit, leaf->src_col }, .bytes = leaf->unit };
	if (leaf->n_run) {
		cut.outer = leaf->run[leaf->n_run - 1];
		cut.bytes = run_bytes(leaf) / cut.outer.n;
	}
	int64_t part = min(max(PART_BYTES, PARTS_BYTES / leaf->rows), PART_MOST);
	cut.step = max(part / cut.bytes, max(1, CPU_LINE / cut.bytes));
	cut.pitch = (cut.step * cut.bytes + ROOM + CPU_LINE - 1) / CPU_LINE * CPU_LINE;
	return cut;
}

/* One part of all rows into scratch; from: of the outermost contiguous dimension. */
static void fill(const struct leaf *leaf, const struct cut *cut, int64_t row, int64_t rows, int64_t from,
                 int64_t steps)
{
	int64_t at[LEAF_DIMS] = { 0 };
	struct leaf part = *leaf;
	part.n_row = part.n_run = 0;
	part.rows = rows;
	part.dst = leaf->scratch + ROOM;
	part.dst_row = cut->pitch;
	part.src = leaf->src + row * leaf->src_row + from * cut->outer.src;
	if (!leaf->n_run) {
		const char *next = part.src + steps * leaf->src_col;
		part.cols = steps;
		transpose_cached(&part, from + steps < leaf->cols ? next : NULL);
		return;
	}
	for (;;) {
		transpose_cached(&part, part.src + leaf->run[0].src);
		int d = 0;
		for (; d < leaf->n_run; d++) {
			const struct leaf_dim *dim = &leaf->run[d];
			int64_t n = d == leaf->n_run - 1 ? steps : dim->n;
			part.dst += dim->dst;
			part.src += dim->src;
			if (++at[d] < n)
				break;
			at[d] = 0;
			part.dst -= n * dim->dst;
			part.src -= n * dim->src;
		}
		if (d == leaf->n_run)
			return;
	}
}

static void stage_rows(const struct leaf *leaf, const struct cut *cut, int64_t row, int64_t rows)
{
	for (int64_t from = 0; from < cut->outer.n; from += cut->step) {
		int64_t steps = min(cut->step, cut->outer.n - from);
		unsigned ends =
		    (from == 0 ? CPU_PART_FIRST : 0) | (from + cut->step >= cut->outer.n ? CPU_PART_LAST : 0);
		fill(leaf, cut, row, rows, from, steps);
		int64_t n;
		for (int64_t r = 0; r < rows; r += n) {
			n = min(rows - r, leaf->row_block - (row + r) % leaf->row_block);
			leaf->isa->flush(leaf_row(leaf, row + r) + from * cut->outer.dst, leaf->dst_row,
			                 leaf->scratch + ROOM + r * cut->pitch, cut->pitch, n,
			                 steps * cut->bytes, ends);
		}
	}
}
