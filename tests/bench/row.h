/* SPDX-License-Identifier: Apache-2.0 */
/* A row of a benchmark: a tensor, what is done to it, and the least that is asked of it. Pure; shared by the
 * CPU's and the GPU's program, each of which has a table of its own.
 */
#ifndef TESTS_BENCH_ROW_H
#define TESTS_BENCH_ROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/transform/transform.h"

#define BENCH_MAX_RANK 8

struct bench_row {
	const char *what; /* with dtype and shape it names the row */
	enum dtype dtype;
	int rank;
	int64_t shape[BENCH_MAX_RANK]; /* of the source */
	int64_t perm[BENCH_MAX_RANK];  /* absent: as it is */
	int64_t before[BENCH_MAX_RANK];
	int64_t after[BENCH_MAX_RANK];
	enum pad_mode mode;
	uint64_t value;
	int64_t gap;       /* elements between the source's rows */
	int64_t offset;    /* of both tensors' first elements, elements */
	bool repeated;     /* the outermost stride of the source is 0 */
	unsigned reversed; /* axes of the source whose strides are negative; bit 0: the innermost */
	int64_t blocks;    /* of that shape and C order, that a list names; 0: the tensor once */
	bool scatter;      /* to where the list says; else from there */
	bool converts; /* elements become those of `to`, multiplied by scale unless that is 0; saturated */
	enum dtype to;
	double scale;
	int64_t amax[BENCH_MAX_RANK]; /* extents of blocks, by the scales of which they are multiplied
	                                 instead; absent: none. The source is bfloat16 and as it is */
	bool ragged; /* rows, or the data in them, do not start at multiples of 16 bytes: the bar is lower */
};

/* What is done, element type, rank, source shape in DIMS, the other fields. */
#define ROW(what_, type, rank_, shape_, ...)                                                          \
	{                                                                                             \
		.what = what_, .dtype = DTYPE_##type, .rank = rank_, .shape = { shape_ }, __VA_ARGS__ \
	}
#define DIMS(...) __VA_ARGS__
#define SAME(...) .before = { __VA_ARGS__ }, .after = { __VA_ARGS__ } /* on both sides */
#define RAGGED    .ragged = true

/* Of rank 2; further fields, such as a permutation, may follow. */
#define CONVERT(type, to_, name, a, b, ...) \
	ROW("to " name, type, 2, DIMS(a, b), .converts = true, .to = DTYPE_##to_, ##__VA_ARGS__)

#define AMAX(name, x, y, a, b) \
	CONVERT(BFLOAT16, FLOAT8_E4M3FN, "float8_e4m3fn, amax " name, a, b, .amax = { x, y })

#define COPY(type, a, b)           ROW("copy", type, 2, DIMS(a, b), .perm = { 0, 1 })
#define TRANSPOSE(type, a, b, ...) ROW("transpose", type, 2, DIMS(a, b), .perm = { 1, 0 }, ##__VA_ARGS__)
#define NHWC(type, n, h, w, c, ...) \
	ROW("NHWC->NCHW", type, 4, DIMS(n, h, w, c), .perm = { 0, 3, 1, 2 }, ##__VA_ARGS__)
#define NCHW(type, n, c, h, w, ...) \
	ROW("NCHW->NHWC", type, 4, DIMS(n, c, h, w), .perm = { 0, 2, 3, 1 }, ##__VA_ARGS__)

/* *ret_first: elements from the start of the source's memory to its element [0, ..., 0]; the destination's is
 * row->offset elements from the start of its own. */
int bench_row_spec(const struct bench_row *row, struct transform_spec *ret, int64_t *ret_first,
                   struct error *err);

/* Elements picked by chance, every fourth near the ends, where borders are: whether each is what the oracle
 * says. dst and src: where element [0, ..., 0] lies. The error names the first that is not. */
int bench_row_check(const struct bench_row *row, const struct transform_spec *spec, const uint8_t *dst,
                    const uint8_t *src, struct error *err);

#endif
