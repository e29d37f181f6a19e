/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a few KiB and of every kind, to try a benchmark program itself. */
#ifndef TESTS_BENCH_QUICK_ROWS_H
#define TESTS_BENCH_QUICK_ROWS_H

#include "row.h"

static const struct bench_row bench_quick_rows[] = {
	TRANSPOSE(UINT8, 64, 48),
	TRANSPOSE(FLOAT32, 31, 33, RAGGED),
	NHWC(FLOAT16, 2, 8, 8, 16),
	ROW("edge pad 1:1,1:1", FLOAT32, 2, DIMS(30, 30), SAME(1, 1), .mode = PAD_MODE_EDGE),
	ROW("crop 1:3,1:3", FLOAT64, 2, DIMS(40, 40), .before = { -1, -1 }, .after = { -3, -3 }),
	ROW("broadcast of a row", FLOAT32, 2, DIMS(32, 32), .repeated = true),
	ROW("reversed rows", UINT8, 2, DIMS(32, 32), .reversed = 1),
	TRANSPOSE(FLOAT32, 512, 512),
	ROW("gather 40", FLOAT16, 3, DIMS(4, 8, 32), .blocks = 40, .perm = { 1, 0, 2 }),
	ROW("scatter 40", FLOAT32, 1, DIMS(200), .blocks = 40, .scatter = true),
};

#endif
