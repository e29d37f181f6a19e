/* SPDX-License-Identifier: Apache-2.0 */
/* A size is drawn first, and then extents until they make about that size. */
#include "random_rows.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/oracle.h"

static const int64_t extents[] = {
	2,    3,    4,    5,    6,    7,    8,     10,    12,    13,    14,    15,    16,     17,
	20,   24,   28,   31,   32,   40,   48,    49,    56,    61,    64,    80,    96,     100,
	112,  120,  127,  128,  144,  160,  192,   196,   200,   224,   255,   256,   257,    320,
	384,  400,  509,  512,  640,  768,  1000,  1021,  1024,  1280,  1536,  2048,  2560,   3072,
	4093, 4096, 5120, 7168, 8191, 8192, 10000, 11008, 16384, 28672, 32768, 65521, 131072,
};
#define N_EXTENTS ((int64_t)(sizeof extents / sizeof *extents))

static const enum dtype dtypes[] = { DTYPE_UINT8,   DTYPE_INT8,    DTYPE_FLOAT16, DTYPE_BFLOAT16,
	                             DTYPE_FLOAT32, DTYPE_INT32,   DTYPE_FLOAT64, DTYPE_INT64,
	                             DTYPE_UINT8,   DTYPE_FLOAT16, DTYPE_FLOAT32, DTYPE_COMPLEX128 };

/* Up to `most`, all the same likely. */
static int64_t draw_extent(uint64_t *state, int64_t most)
{
	int64_t n = 0;

	while (n < N_EXTENTS && extents[n] <= most)
		n++;
	return n ? extents[oracle_between(state, 0, n - 1)] : 1;
}

/* false: the sizes do not work out. */
static bool draw_shape(uint64_t *state, const struct random_rows *rows, struct bench_row *row)
{
	const double low = log2((double)rows->least), high = log2((double)rows->most);
	const double size = exp2(low + (high - low) * (double)oracle_between(state, 0, 1 << 20) / (1 << 20));
	int64_t left = (int64_t)(size / dtype_size(row->dtype)), elements = 1;
	const int largest = (int)oracle_between(state, 0, row->rank - 1);

	for (int d = 0; d < row->rank; d++) {
		if (d == largest)
			continue;
		row->shape[d] = draw_extent(state, left / 2);
		left /= row->shape[d];
		elements *= row->shape[d];
	}
	row->shape[largest] = 1;
	for (int64_t i = 0; i < N_EXTENTS && extents[i] <= left; i++)
		row->shape[largest] = extents[i];
	elements *= row->shape[largest];
	return row->shape[largest] > 1 && (uint64_t)elements * dtype_size(row->dtype) >= rows->least &&
	       (uint64_t)elements * dtype_size(row->dtype) <= rows->most;
}

static void shuffle(uint64_t *state, struct bench_row *row)
{
	for (int d = 0; d < row->rank; d++)
		row->perm[d] = d;
	for (int d = row->rank - 1; d > 0; d--) {
		const int64_t other = oracle_between(state, 0, d), kept = row->perm[d];

		row->perm[d] = row->perm[other];
		row->perm[other] = kept;
	}
}

static bool is_ordered(const struct bench_row *row)
{
	for (int d = 0; d < row->rank; d++)
		if (row->perm[d] != d)
			return false;
	return true;
}

/* Of one or two axes, on either side. */
static void draw_margins(uint64_t *state, struct bench_row *row, int sign)
{
	const int64_t n = oracle_between(state, 1, 2);

	for (int64_t i = 0; i < n; i++) {
		const int64_t d = oracle_between(state, 0, row->rank - 1);
		const int64_t most = row->shape[row->perm[d]] / 4 < 16 ? row->shape[row->perm[d]] / 4 : 16;

		row->before[d] = sign * oracle_between(state, 0, most);
		row->after[d] = sign * oracle_between(state, 0, most);
	}
	if (sign > 0 && oracle_between(state, 0, 2) == 0)
		row->value = 7;
	if (sign > 0 && oracle_between(state, 0, 3) == 0)
		row->mode = oracle_between(state, 0, 1) ? PAD_MODE_EDGE : PAD_MODE_REFLECT;
	if (row->mode != PAD_MODE_CONSTANT)
		row->value = 0;
}

static const char *draw_kind(uint64_t *state, struct bench_row *row)
{
	const int64_t kind = oracle_between(state, 0, 99);

	shuffle(state, row);
	if (kind < 64) {
		while (is_ordered(row))
			shuffle(state, row);
		return "permute";
	}
	if (kind < 92 && oracle_between(state, 0, 2))
		for (int d = 0; d < row->rank; d++)
			row->perm[d] = d;
	if (kind < 78) {
		draw_margins(state, row, 1);
		return row->mode == PAD_MODE_EDGE      ? "edge pad"
		       : row->mode == PAD_MODE_REFLECT ? "reflect pad"
		                                       : "pad";
	}
	if (kind < 88) {
		draw_margins(state, row, -1);
		return "crop";
	}
	if (kind < 94 && row->shape[row->rank - 1] >= 16) {
		row->gap = oracle_between(state, 1, row->shape[row->rank - 1] / 8);
		return "gaps";
	}
	row->reversed = true;
	return "reversed";
}

/* What is done to each axis of the destination: the source's it is, and what is added to or cut from it. */
static void name(struct random_row *ret, const char *kind)
{
	const struct bench_row *row = &ret->row;
	size_t len = (size_t)snprintf(ret->what, sizeof ret->what, "%s ", kind);

	for (int d = 0; d < row->rank && len < sizeof ret->what; d++) {
		len += (size_t)snprintf(ret->what + len, sizeof ret->what - len, "%s%d", d ? "," : "",
		                        (int)row->perm[d]);
		if (len < sizeof ret->what && (row->before[d] || row->after[d]))
			len += (size_t)snprintf(ret->what + len, sizeof ret->what - len, "(%d:%d)",
			                        (int)row->before[d], (int)row->after[d]);
	}
	ret->row.what = ret->what;
}

void random_row_draw(const struct random_rows *rows, uint64_t i, struct random_row *ret)
{
	uint64_t state = rows->seed * UINT64_C(0x9e3779b97f4a7c15) + i * UINT64_C(0xd1342543de82ef95) + 1;
	struct bench_row *row = &ret->row;

	oracle_random(&state);
	do {
		*ret = (struct random_row){ 0 };
		row->dtype = dtypes[oracle_between(&state, 0, (int64_t)(sizeof dtypes / sizeof *dtypes) - 1)];
		row->rank = (int)oracle_between(&state, 2, 4) +
		            (int)oracle_between(&state, 0, 2) * (int)oracle_between(&state, 0, 2);
	} while (!draw_shape(&state, rows, row));
	name(ret, draw_kind(&state, row));
	row->ragged = true;
}
