/* SPDX-License-Identifier: Apache-2.0 */
/* Random rows: row i of a seed is the same on every machine, and no kernel can be tuned to it. Most are
 * permutations; a third are pads, crops, gaps between rows and reversed axes. They have 2 to 8 axes and
 * elements of every size. Extents come from a family: powers of two, primes, extents of images and networks,
 * or each axis from any of these. */
#ifndef TESTS_BENCH_RANDOM_ROWS_H
#define TESTS_BENCH_RANDOM_ROWS_H

#include "row.h"

struct random_rows {
	uint64_t seed;
	uint64_t least; /* least bytes of the source; at most half of `most` */
	uint64_t most;
};

struct random_row {
	struct bench_row row;
	char what[64];
};

/* *ret must not be copied, because its row points into it. */
void random_row_draw(const struct random_rows *rows, uint64_t i, struct random_row *ret);

#endif
