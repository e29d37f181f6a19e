/* SPDX-License-Identifier: Apache-2.0 */
/* A size is drawn first, then extents that make about that size, then the operation on the axes. */
#include "random_rows.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/oracle.h"

#define STEPS      1024 /* sizes drawn between two powers of two */
#define MAX_MARGIN 16   /* most elements of a margin on one side of an axis */
#define GAP_SHARE  8    /* A gap is at most this fraction of a row, because it is partly read. */

/* ---- Shapes ----------------------------------------------------------------------------------------- */

/* In ascending order, ended by 0. */
static const int64_t powers_of_two[] = { 2,       4,       8,       16,     32,     64,      128,
	                                 256,     512,     1024,    2048,   4096,   8192,    16384,
	                                 32768,   65536,   131072,  262144, 524288, 1 << 20, 1 << 21,
	                                 1 << 22, 1 << 23, 1 << 24, 0 };
static const int64_t primes[] = { 2,     3,     5,      7,      11,     13,      17,      19,       31,
	                          61,    127,   257,    509,    1021,   2039,    4093,    8191,     16381,
	                          32749, 65521, 131071, 262139, 524287, 1048573, 4194301, 16777213, 0 };
static const int64_t usual[] = { 3,     6,      7,      10,      12,       14,   15,   20,    24,    28,
	                         40,    48,     49,     56,      80,       96,   100,  112,   120,   144,
	                         160,   192,    196,    200,     224,      320,  384,  400,   640,   768,
	                         1000,  1280,   1536,   2560,    3072,     5120, 7168, 10000, 11008, 28672,
	                         50257, 100000, 151936, 1000000, 10000000, 0 };

static const int64_t *const families[] = { powers_of_two, primes, usual };
#define N_FAMILIES 3

static const enum dtype dtypes[] = { DTYPE_UINT8,   DTYPE_UINT8,    DTYPE_INT8,    DTYPE_FLOAT16,
	                             DTYPE_FLOAT16, DTYPE_BFLOAT16, DTYPE_FLOAT32, DTYPE_FLOAT32,
	                             DTYPE_INT32,   DTYPE_FLOAT64,  DTYPE_INT64,   DTYPE_COMPLEX128 };

static bool one_in(uint64_t *state, int n)
{
	return oracle_between(state, 1, n) == 1;
}

/* Draws one of the family's extents up to `most`, all with equal probability; the smallest if there is
 * none. */
static int64_t draw_extent(uint64_t *state, const int64_t *family, int64_t most)
{
	int64_t n = 0;

	while (family[n] && family[n] <= most)
		n++;
	return family[oracle_between(state, 0, n ? n - 1 : 0)];
}

static int64_t largest_extent(const int64_t *family, int64_t most)
{
	int64_t ret = family[0];

	for (int i = 0; family[i] && family[i] <= most; i++)
		ret = family[i];
	return ret;
}

static void shuffle(uint64_t *state, int n, int64_t *order)
{
	for (int i = 0; i < n; i++) {
		const int64_t other = oracle_between(state, 0, i);

		order[i] = order[other];
		order[other] = i;
	}
}

/* Returns a size in bytes; each power of two is equally likely. */
static uint64_t draw_size(uint64_t *state, const struct random_rows *rows)
{
	int octaves = 1;

	while (rows->least << (octaves + 1) <= rows->most)
		octaves++;
	const uint64_t low = rows->least << oracle_between(state, 0, octaves - 1);
	return low + low * (uint64_t)oracle_between(state, 0, STEPS) / STEPS;
}

/* The axes get their extents in random order: each leaves room for those that follow, and the last takes what
 * is left. Returns false if the result does not have the requested size. */
static bool draw_shape(uint64_t *state, const struct random_rows *rows, struct bench_row *row)
{
	const int64_t *family = one_in(state, 2) ? NULL : families[oracle_between(state, 0, N_FAMILIES - 1)];
	int64_t order[BENCH_MAX_RANK], left = (int64_t)(draw_size(state, rows) / dtype_size(row->dtype));
	uint64_t bytes = dtype_size(row->dtype);

	shuffle(state, row->rank, order);
	for (int i = 0; i < row->rank; i++) {
		const int64_t *of = family ? family : families[oracle_between(state, 0, N_FAMILIES - 1)];
		int64_t *extent = &row->shape[order[i]];

		*extent = i < row->rank - 1 ? draw_extent(state, of, left >> (row->rank - 1 - i))
		                            : largest_extent(of, left);
		left /= *extent;
		bytes *= (uint64_t)*extent;
	}
	return bytes >= rows->least && bytes <= rows->most;
}

/* ---- What is done to it ----------------------------------------------------------------------------- */

static bool is_ordered(const struct bench_row *row)
{
	for (int d = 0; d < row->rank; d++)
		if (row->perm[d] != d)
			return false;
	return true;
}

static void draw_perm(uint64_t *state, struct bench_row *row, bool may_be_ordered)
{
	do
		shuffle(state, row->rank, row->perm);
	while (!may_be_ordered && is_ordered(row));
	if (may_be_ordered && !one_in(state, 3))
		for (int d = 0; d < row->rank; d++)
			row->perm[d] = d;
}

/* Returns the destination's axis that is the source's longest. */
static int longest(const struct bench_row *row)
{
	int ret = 0;

	for (int d = 1; d < row->rank; d++)
		if (row->shape[row->perm[d]] > row->shape[row->perm[ret]])
			ret = d;
	return ret;
}

/* Draws margins of one or two axes, on either side: at most a quarter of the axis, or one element of a short
 * axis. A short axis is not cropped if there is another one, since more of the cropped elements than of the
 * kept ones would be read. */
static void draw_margins(uint64_t *state, struct bench_row *row, int sign)
{
	const int64_t n = oracle_between(state, 1, 2);

	for (int64_t i = 0; i < n; i++) {
		const int64_t drawn = oracle_between(state, 0, row->rank - 1);
		const int64_t d = sign < 0 && row->shape[row->perm[drawn]] < 4 ? longest(row) : drawn;
		const int64_t extent = row->shape[row->perm[d]];
		const int64_t most = extent / 4 < MAX_MARGIN ? extent / 4 : MAX_MARGIN;

		row->before[d] = sign * oracle_between(state, most ? 0 : 1, most ? most : 1);
		row->after[d] = sign * oracle_between(state, row->before[d] || !most ? 0 : 1, most);
	}
}

static void draw_mode(uint64_t *state, struct bench_row *row)
{
	if (one_in(state, 4))
		row->mode = (enum pad_mode)oracle_between(state, PAD_MODE_EDGE, PAD_MODE_WRAP);
	else if (one_in(state, 3))
		row->value = 7;
}

/* ---- A row ------------------------------------------------------------------------------------------ */

static void append(struct random_row *ret, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void append(struct random_row *ret, const char *format, ...)
{
	size_t len = strlen(ret->what);
	va_list args;

	va_start(args, format);
	vsnprintf(ret->what + len, sizeof(ret->what) - len, format, args);
	va_end(args);
}

static void draw_kind(uint64_t *state, struct random_row *ret)
{
	const int64_t kind = oracle_between(state, 0, 99);
	struct bench_row *row = &ret->row;

	draw_perm(state, row, kind >= 64);
	if (kind < 64) {
		append(ret, "permute");
	} else if (kind < 78) {
		draw_margins(state, row, 1);
		draw_mode(state, row);
		append(ret, "%s pad", row->mode || row->value ? pad_mode_names[row->mode] : "zero");
	} else if (kind < 88) {
		draw_margins(state, row, -1);
		append(ret, "crop");
	} else if (kind < 94 && row->shape[row->rank - 1] >= GAP_SHARE) {
		row->gap = oracle_between(state, 1, row->shape[row->rank - 1] / GAP_SHARE);
		append(ret, "gap %d", (int)row->gap);
	} else {
		row->reversed =
		    one_in(state, 3) ? (unsigned)oracle_between(state, 1, (1 << row->rank) - 1) : 1;
		append(ret, "reversed");
	}
}

/* Appends for each axis of the destination the source's axis, after a minus if that is reversed, and how it
 * is padded or cropped. */
static void append_axes(struct random_row *ret)
{
	const struct bench_row *row = &ret->row;

	for (int d = 0; d < row->rank; d++) {
		const int from = (int)row->perm[d];

		append(ret, "%c%s%d", d ? ',' : ' ', row->reversed >> (row->rank - 1 - from) & 1 ? "-" : "",
		       from);
		if (row->before[d] || row->after[d])
			append(ret, "(%d:%d)", (int)row->before[d], (int)row->after[d]);
	}
	ret->row.what = ret->what;
}

void random_row_draw(const struct random_rows *rows, uint64_t i, struct random_row *ret)
{
	uint64_t state = rows->seed;
	struct bench_row *row = &ret->row;

	state = oracle_random(&state) + i;
	state = oracle_random(&state);
	do {
		*ret = (struct random_row){ 0 };
		row->dtype =
		    dtypes[oracle_between(&state, 0, (int64_t)(sizeof(dtypes) / sizeof(*dtypes)) - 1)];
		row->rank = (int)(oracle_between(&state, 2, 4) +
		                  oracle_between(&state, 0, 2) * oracle_between(&state, 0, 2));
	} while (!draw_shape(&state, rows, row));
	draw_kind(&state, ret);
	append_axes(ret);
}
