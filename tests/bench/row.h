/* SPDX-License-Identifier: Apache-2.0 */
/* A row of a benchmark: a tensor, the operation on it, and the least acceptable ratio. This is pure data and
 * arithmetic, shared by the CPU's and the GPU's program, each of which has its own table. */
#ifndef TESTS_BENCH_ROW_H
#define TESTS_BENCH_ROW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/transform/transform.h"

#define BENCH_MAX_RANK 8

struct bench_row {
	const char *what; /* names the row together with dtype and shape */
	enum dtype dtype;
	int rank;
	int64_t shape[BENCH_MAX_RANK]; /* shape of the source */
	int64_t perm[BENCH_MAX_RANK];  /* absent: the identity */
	int64_t before[BENCH_MAX_RANK];
	int64_t after[BENCH_MAX_RANK];
	enum pad_mode mode;
	uint64_t value;
	int64_t gap;       /* elements between the source's rows */
	int64_t offset;    /* elements before both tensors' first elements */
	bool repeated;     /* the source's outermost stride is 0 */
	unsigned reversed; /* mask of the source's axes with negative strides; bit 0 is the innermost axis */
	/* Blocks of that shape in C order that a list names; 0: the tensor is moved once. */
	int64_t blocks;
	bool scatter; /* the list names blocks of the destination; else of the source */
	/* Converts elements to the type `to` with saturation, multiplied by scale unless that is 0. */
	bool converts;
	enum dtype to;
	double scale;
	/* Extents of the blocks whose computed scales multiply the elements instead of scale; absent: none.
	 * The source is then bfloat16 and not permuted. */
	int64_t amax[BENCH_MAX_RANK];
	/* Rows, or the data in them, do not start at multiples of 16 bytes, so the bar is lower. */
	bool ragged;
};

/* A row: operation, element type, rank, the source's shape in DIMS, other members. */
#define ROW(what_, type, rank_, shape_, ...)                                                          \
	{                                                                                             \
		.what = what_, .dtype = DTYPE_##type, .rank = rank_, .shape = { shape_ }, __VA_ARGS__ \
	}
#define DIMS(...) __VA_ARGS__
#define SAME(...) .before = { __VA_ARGS__ }, .after = { __VA_ARGS__ } /* equal margins */
#define RAGGED    .ragged = true

/* A row of rank 2; further members, such as a permutation, may follow. */
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

/* Sets *ret_first to the elements from the start of the source's memory to its element [0, ..., 0]. The
 * destination's is row->offset elements from the start of its memory. */
int bench_row_spec(const struct bench_row *row, struct transform_spec *ret, int64_t *ret_first,
                   struct error *err);

/* Checks random elements, every fourth of them near the ends where borders are, against the oracle. dst and
 * src point to element [0, ..., 0]. The error names the first difference. */
int bench_row_check(const struct bench_row *row, const struct transform_spec *spec, const uint8_t *dst,
                    const uint8_t *src, struct error *err);

#endif
