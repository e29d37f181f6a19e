/* SPDX-License-Identifier: Apache-2.0 */
/* Transforms between views whose dimensions are split, as in blocked layouts: [M] seen as [M/128, 4, 32].
 *
 * A split replaces dimension d, of extent E, by two: ceil(E/n) blocks and the n elements of a block. If n
 * does not divide E, the last block is incomplete: in the source, the elements that it lacks read as the
 * transform's value; in the destination, what would go there is dropped. The shape stays that of what exists,
 * and so do all checks of memory.
 *
 * split_init divides a transform between such views into parts: ordinary transforms over boxes, which write
 * every element that exists once. If all blocks are complete, there is one part. Pure, no memory.
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

/* The splits of one tensor, in turn: the dimensions that one makes are counted by the next. */
struct split_list {
	int n;
	int64_t dim[SPLIT_MAX];
	int64_t by[SPLIT_MAX]; /* extent of the inner dimension */
};

/* A ragged dimension of one side, and how it lies in the result. */
struct split_rest {
	bool is_src;
	int rank;                     /* digits */
	int last;                     /* the last digit that is not 0 */
	int8_t dim[SPLIT_MAX + 1];    /* of the result, outermost digit first */
	int64_t digit[SPLIT_MAX + 1]; /* of the extent */
};

struct split {
	struct transform_spec spec;    /* between the views */
	struct tensor_layout dst, src; /* as the request gave them; for sides */
	struct tensor_extent dst_extent, src_extent;
	int n_rests;
	struct split_rest rest[2 * SPLIT_MAX]; /* the destination's first */
	int n_parts;
	int largest;                                   /* the part with the most elements */
	uint8_t piece[SPLIT_MAX_PARTS][2 * SPLIT_MAX]; /* of each ragged dimension, that a part is made of */
};

/* A part: an ordinary transform, its tensors so many bytes from the request's. */
struct split_part {
	struct transform_spec spec;
	int64_t dst_offset;
	int64_t src_offset;
};

/* spec: the tensors as they are; perm, before and after of the views. Refuses what transform_init refuses, a
 * split of no dimension or into nothing, incomplete blocks within blocks, pads of dimensions that a split
 * made, an incomplete last block of the source with a mode that has no value, and more than SPLIT_MAX_PARTS
 * parts. */
int split_init(struct split *ret, const struct transform_spec *spec, const struct split_list *dst,
               const struct split_list *src, struct error *err);

/* A transform without splits: its only part, which remains to be checked. */
void split_none(struct split *ret, const struct transform_spec *spec);

void split_get(const struct split *split, int i, struct split_part *ret);

/* For the checks against regions: the tensors as the request gave them. They point into split. */
struct transform_sides split_sides(const struct split *split);

#endif
