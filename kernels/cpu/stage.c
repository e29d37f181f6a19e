/* SPDX-License-Identifier: Apache-2.0 */
/* A transpose past the cache by way of scratch: rows of dst are put together there, a part of each at a time,
 * and flushed as whole lines, wherever in a line they begin (isa.h).
 *
 *   scratch   | lines that rows keep | part of row 0 | part of row 1 | ...
 *
 * A part is a stretch of the dimensions that are contiguous in dst: columns of the microkernel, or, where
 * those are short, a few steps of the outermost of them. Rows that follow each other in dst without a gap are
 * treated as one row.
 */
#include "transpose.h"

#include "proto/arithmetic.h"

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

static struct row_split split_rows(const struct microkernel *microkernel);
static void stage_packed(const struct microkernel *microkernel);
static void stage_rows(const struct microkernel *microkernel, const struct row_split *split, int64_t row,
                       int64_t rows);

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

bool stage_takes(const struct microkernel *microkernel)
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

void stage_transpose(const struct microkernel *microkernel)
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

/* ---- Rows without gaps ------------------------------------------------------------------------------ */

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

/* ---- Parts of rows ---------------------------------------------------------------------------------- */

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
