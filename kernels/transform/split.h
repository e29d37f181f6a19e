/* SPDX-License-Identifier: Apache-2.0 */
/* A transform may be between views whose dimensions are split, as in blocked layouts: [M] seen as [M/128, 4,
 * 32].
 *
 * A split replaces dimension d, of extent E, by two: ceil(E/n) blocks and the n elements of a block. If n
 * does not divide E, the last block is incomplete: in the source, the elements that it lacks read as the
 * transform's value; in the destination, what would go there is dropped. The shape stays that of what exists,
 * and so do all checks of memory.
 *
 * split_init divides a transform between such views into parts: ordinary transforms over boxes, which write
 * every element that exists once. If all blocks are complete, there is one part. The functions have no side
 * effects and allocate nothing.
 *
 * Words: a view is a tensor after its splits; a ragged dimension is one of the tensor's whose last block is
 * incomplete (a rest, in names). Its position in the view is a number in mixed radix, whose digits are the
 * dimensions that the splits made of it; what exists are the numbers below the dimension's extent.
 */
#ifndef KERNELS_TRANSFORM_SPLIT_H
#define KERNELS_TRANSFORM_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

#include "transform.h"

#define SPLIT_MAX       (TENSOR_MAX_RANK / 2) /* splits of one tensor */
#define SPLIT_MAX_PARTS 64

/* A tensor is split by these in turn: the dimensions that one split makes are counted by the next. */
struct split_list {
	int n;
	int64_t dim[SPLIT_MAX];
	int64_t by[SPLIT_MAX]; /* extent of the inner dimension */
};

/* A ragged dimension of one side, and how it lies in the result. */
struct split_rest {
	bool is_src;
	int rank;                     /* number of digits */
	int last;                     /* the last digit that is not 0 */
	int8_t dim[SPLIT_MAX + 1];    /* dimensions of the result, outermost digit first */
	int64_t digit[SPLIT_MAX + 1]; /* digits of the extent */
};

struct split {
	struct transform_spec spec;    /* the transform between the views */
	struct tensor_layout dst, src; /* as the request gave them; for sides */
	struct tensor_extent dst_extent, src_extent;
	int n_rests;
	struct split_rest rest[2 * SPLIT_MAX]; /* the destination's first */
	int n_parts;
	int largest;                                   /* the part with the most elements */
	uint8_t piece[SPLIT_MAX_PARTS][2 * SPLIT_MAX]; /* a part's piece of each ragged dimension */
};

/* A part is an ordinary transform. Its tensors lie dst_offset and src_offset bytes past the request's. */
struct split_part {
	struct transform_spec spec;
	int64_t dst_offset;
	int64_t src_offset;
};

/* Divides a transform into parts. spec has the tensors as they are, and the perm, before and after of the
 * views. Refuses what transform_init refuses, a split of no dimension or into nothing, incomplete blocks
 * within blocks, pads of dimensions that a split made, an incomplete last block of the source with a mode
 * that has no value, and more than SPLIT_MAX_PARTS parts. */
int split_init(struct split *ret, const struct transform_spec *spec, const struct split_list *dst,
               const struct split_list *src, struct error *err);

/* Makes a transform without splits its own only part, which remains to be checked. */
void split_none(struct split *ret, const struct transform_spec *spec);

/* Sets *ret to part i. */
void split_get(const struct split *split, int i, struct split_part *ret);

/* Returns the tensors as the request gave them, for the checks against regions. They point into split. */
struct transform_sides split_sides(const struct split *split);

#endif
