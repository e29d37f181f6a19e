/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of the CPU benchmark, one a line. Tensors have about 256 MB (powers of two with 2 and 8 bytes have
 * 128 MiB, so that they can be square), except for rows that are meant to be small. */
#ifndef TESTS_BENCH_ROWS_H
#define TESTS_BENCH_ROWS_H

#include "row.h"

#define PERMUTE_3D(name, ...) ROW("permute " name, FLOAT32, 3, DIMS(320, 512, 400), .perm = { __VA_ARGS__ })

/* One image batch with a border of one pixel: channels last, then channels first, whose rows are 58
 * floats. */
#define PADS(name, ...)                                                                                  \
	ROW(name " pad NHWC 1:1,1:1", FLOAT32, 4, DIMS(64, 56, 56, 256), SAME(0, 1, 1, 0), __VA_ARGS__), \
	    ROW(name " pad NCHW 1:1,1:1", FLOAT32, 4, DIMS(64, 256, 56, 56), SAME(0, 0, 1, 1), RAGGED,   \
	        __VA_ARGS__)

static const struct bench_row bench_rows[] = {
	/* Powers of two: square, 16:1 and 1:16. */
	TRANSPOSE(UINT8, 16384, 16384),
	TRANSPOSE(UINT8, 65536, 4096),
	TRANSPOSE(UINT8, 4096, 65536),
	TRANSPOSE(FLOAT16, 8192, 8192),
	TRANSPOSE(FLOAT16, 32768, 2048),
	TRANSPOSE(FLOAT16, 2048, 32768),
	TRANSPOSE(FLOAT32, 8192, 8192),
	TRANSPOSE(FLOAT32, 32768, 2048),
	TRANSPOSE(FLOAT32, 2048, 32768),
	TRANSPOSE(FLOAT64, 4096, 4096),
	TRANSPOSE(FLOAT64, 16384, 1024),
	TRANSPOSE(FLOAT64, 1024, 16384),
	TRANSPOSE(COMPLEX128, 4096, 4096),
	TRANSPOSE(COMPLEX128, 16384, 1024),
	TRANSPOSE(COMPLEX128, 1024, 16384),
	/* Other extents, whose rows are multiples of 16 bytes but not of a cache line of 64. */
	TRANSPOSE(UINT8, 16400, 16368),
	TRANSPOSE(UINT8, 65584, 4080),
	TRANSPOSE(UINT8, 4080, 65584),
	TRANSPOSE(FLOAT16, 11592, 11576),
	TRANSPOSE(FLOAT16, 46408, 2888),
	TRANSPOSE(FLOAT16, 2888, 46408),
	TRANSPOSE(FLOAT32, 8200, 8184),
	TRANSPOSE(FLOAT32, 32804, 2044),
	TRANSPOSE(FLOAT32, 2044, 32804),
	TRANSPOSE(FLOAT64, 5802, 5790),
	TRANSPOSE(FLOAT64, 23206, 1446),
	TRANSPOSE(FLOAT64, 1446, 23206),
	TRANSPOSE(COMPLEX128, 4101, 4093),
	TRANSPOSE(COMPLEX128, 16402, 1023),
	TRANSPOSE(COMPLEX128, 1023, 16402),
	/* Ragged rows. */
	TRANSPOSE(UINT8, 16383, 16385, RAGGED),
	TRANSPOSE(FLOAT16, 11583, 11585, RAGGED),
	TRANSPOSE(FLOAT32, 8191, 8193, RAGGED),
	TRANSPOSE(FLOAT64, 5791, 5793, RAGGED),
	TRANSPOSE(COMPLEX128, 4095, 4097, RAGGED),
	TRANSPOSE(FLOAT32, 3, 22369621, RAGGED),
	TRANSPOSE(FLOAT32, 22369621, 3, RAGGED),

	NHWC(FLOAT32, 64, 56, 56, 256),
	NCHW(FLOAT32, 64, 256, 56, 56),
	NHWC(FLOAT16, 64, 56, 56, 256),
	NCHW(FLOAT16, 64, 256, 56, 56),
	NHWC(UINT8, 64, 56, 56, 256),
	NCHW(UINT8, 64, 256, 56, 56),
	NHWC(UINT8, 256, 224, 224, 3, RAGGED),
	NCHW(UINT8, 256, 3, 224, 224, RAGGED),
	ROW("permute 0,2,1,3", BFLOAT16, 4, DIMS(8, 2048, 32, 128), .perm = { 0, 2, 1, 3 }),
	ROW("permute 0,2,1,3", FLOAT32, 4, DIMS(8, 2048, 32, 128), .perm = { 0, 2, 1, 3 }),
	ROW("permute 1,0,2,3", FLOAT16, 4, DIMS(512, 64, 16, 128), .perm = { 1, 0, 2, 3 }),
	PERMUTE_3D("0,1,2", 0, 1, 2),
	PERMUTE_3D("0,2,1", 0, 2, 1),
	PERMUTE_3D("1,0,2", 1, 0, 2),
	PERMUTE_3D("1,2,0", 1, 2, 0),
	PERMUTE_3D("2,0,1", 2, 0, 1),
	PERMUTE_3D("2,1,0", 2, 1, 0),
	ROW("reversal of 5 axes", FLOAT32, 5, DIMS(32, 64, 32, 32, 32), .perm = { 4, 3, 2, 1, 0 }),
	ROW("reversal of 6 axes", FLOAT32, 6, DIMS(16, 16, 32, 16, 16, 32), .perm = { 5, 4, 3, 2, 1, 0 }),

	PADS("zero", .mode = PAD_MODE_CONSTANT),
	PADS("constant", .value = 7),
	PADS("edge", .mode = PAD_MODE_EDGE),
	PADS("reflect", .mode = PAD_MODE_REFLECT),
	ROW("zero pad 100:100,100:100", FLOAT32, 2, DIMS(8000, 8000), SAME(100, 100)),
	ROW("constant pad 4000:4000,4000:4000", FLOAT32, 2, DIMS(1, 1), SAME(4000, 4000), .value = 7),
	ROW("crop 4:4,4:4", FLOAT32, 2, DIMS(8192, 8192), SAME(-4, -4)),
	ROW("crop 1:3,1:3", FLOAT32, 2, DIMS(8192, 8192), .before = { -1, -1 }, .after = { -3, -3 }, RAGGED),
	ROW("crop NHWC 16:16,16:16", FLOAT16, 4, DIMS(32, 256, 256, 64), SAME(0, -16, -16, 0)),
	ROW("broadcast of a row", FLOAT32, 2, DIMS(8192, 8192), .repeated = true),
	ROW("broadcast of a column", FLOAT32, 2, DIMS(8192, 8192), .perm = { 1, 0 }, .repeated = true),
	ROW("reversed rows", FLOAT32, 2, DIMS(8192, 8192), .reversed = 1),
	ROW("reversed rows", UINT8, 2, DIMS(16384, 16384), .reversed = 1),
	ROW("reversed rows, transpose", FLOAT32, 2, DIMS(8192, 8192), .perm = { 1, 0 }, .reversed = 1),
	COPY(FLOAT32, 8192, 8192),

	/* Sizes of 4 KiB, 64 KiB, 1 MiB and 4 MB. */
	COPY(FLOAT32, 32, 32),
	TRANSPOSE(UINT8, 64, 64),
	TRANSPOSE(FLOAT32, 32, 32),
	ROW("zero pad 1:1,1:1", FLOAT32, 2, DIMS(30, 30), SAME(1, 1), RAGGED),
	COPY(FLOAT32, 128, 128),
	TRANSPOSE(UINT8, 256, 256),
	TRANSPOSE(FLOAT32, 128, 128),
	ROW("zero pad 1:1,1:1", FLOAT32, 2, DIMS(126, 126), SAME(1, 1), RAGGED),
	COPY(FLOAT32, 512, 512),
	TRANSPOSE(UINT8, 1024, 1024),
	TRANSPOSE(FLOAT32, 512, 512),
	ROW("zero pad 1:1,1:1", FLOAT32, 2, DIMS(510, 510), SAME(1, 1), RAGGED),
	TRANSPOSE(FLOAT32, 1000, 1000),

	/* Weights for serving, and images for a network. */
	CONVERT(FLOAT32, BFLOAT16, "bfloat16", 8192, 8192),
	CONVERT(BFLOAT16, FLOAT8_E4M3FN, "float8_e4m3fn", 16384, 8192, .scale = 0.5),
	AMAX("128x128", 128, 128, 16384, 8192),
	AMAX("1x128", 1, 128, 16384, 8192),
	AMAX("128x1", 128, 1, 16384, 8192),
	CONVERT(UINT8, FLOAT32, "float32", 8192, 8192),
	CONVERT(INT64, FLOAT32, "float32", 8192, 4096),
	CONVERT(FLOAT32, BFLOAT16, "bfloat16, transposed", 8192, 8192, .perm = { 1, 0 }),
	ROW("to float16, NHWC->NCHW", UINT8, 4, DIMS(128, 512, 512, 3), .perm = { 0, 3, 1, 2 },
	    .converts = true, .to = DTYPE_FLOAT16, .scale = 1.0 / 255),

	/* Blocks of 4, 16, 32 and 64 KiB: as many as the name says, from or to twice as many. */
	ROW("gather 8192", FLOAT16, 1, DIMS(2048), .blocks = 8192),
	ROW("gather 8192", FLOAT16, 1, DIMS(8192), .blocks = 8192),
	ROW("gather 8192", FLOAT16, 1, DIMS(16384), .blocks = 8192),
	ROW("gather 4096", FLOAT16, 1, DIMS(32768), .blocks = 4096),
	ROW("gather 8192, permute 1,0,2", FLOAT16, 3, DIMS(16, 8, 128), .blocks = 8192, .perm = { 1, 0, 2 }),
	ROW("scatter 8192", FLOAT16, 1, DIMS(2048), .blocks = 8192, .scatter = true),
	ROW("scatter 8192", FLOAT16, 1, DIMS(8192), .blocks = 8192, .scatter = true),
	ROW("scatter 8192", FLOAT16, 1, DIMS(16384), .blocks = 8192, .scatter = true),
	ROW("scatter 4096", FLOAT16, 1, DIMS(32768), .blocks = 4096, .scatter = true),
	ROW("scatter 8192, permute 1,0,2", FLOAT16, 3, DIMS(16, 8, 128), .blocks = 8192, .scatter = true,
	    .perm = { 1, 0, 2 }),
};

#endif
