/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that nobody chose: row i of a seed is the same on every machine, and no kernel can be tuned to it. */
#ifndef TESTS_BENCH_RANDOM_ROWS_H
#define TESTS_BENCH_RANDOM_ROWS_H

#include "row.h"

struct random_rows {
	uint64_t seed;
	uint64_t least; /* bytes of the source */
	uint64_t most;
};

struct random_row {
	struct bench_row row;
	char what[64];
};

/* Permutations mostly; a few pads, crops, rows that run backwards and rows with gaps; 2 to 8 axes, whose
 * extents are those that tensors have (powers of two, image and window sizes) and primes; elements of every
 * size. *ret is not to be copied: its row points into it. */
void random_row_draw(const struct random_rows *rows, uint64_t i, struct random_row *ret);

#endif
