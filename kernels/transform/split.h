/* SPDX-License-Identifier: Apache-2.0 */
/* Transforms between views whose dimensions are split, as in blocked layouts: [M] seen as [M/128, 4, 32].
 *
 * A split replaces dimension d, of extent E, by two: ceil(E/n) blocks, and the n elements of a block. If n
 * does not divide E, the last block is incomplete: in the source, the elements that it lacks read as the
 * padding value; in the destination, what would be written to them is dropped. Such elements do not exist in
 * memory, so checks against regions use the tensors' own shapes.
 *
 * split_init divides a transform between such views into parts: ordinary transforms over boxes, which
 * together write every existing element once. If all blocks are complete, there is one part. The functions
 * have no side effects and allocate nothing.
 *
 * Terms: a view is a tensor after its splits. A ragged dimension is a dimension of the tensor whose last
 * block is incomplete (a rest, in names). A position along it is a number in mixed radix, whose digits are
 * the indices of the view's dimensions that the splits made of it; the existing positions are those below the
 * dimension's extent.
 */
#ifndef KERNELS_TRANSFORM_SPLIT_H
#define KERNELS_TRANSFORM_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

#include "transform.h"

#define SPLIT_MAX       (TENSOR_MAX_RANK / 2) /* maximum number of splits of one tensor */
#define SPLIT_MAX_PARTS 64

/* Splits of a tensor, applied in order: each one counts dimensions as the earlier splits have left them. */
struct split_list {
	int n;
	int64_t dim[SPLIT_MAX];
	int64_t by[SPLIT_MAX]; /* extent of the inner of the two dimensions that the split makes */
};

/* A ragged dimension of one side, and its digits among the dimensions of the result. */
struct split_rest {
	bool is_src;
	int rank;                     /* number of digits */
	int last;                     /* index of the last digit that is not 0 */
	int8_t dim[SPLIT_MAX + 1];    /* dimension of the result for each digit, the outermost first */
	int64_t digit[SPLIT_MAX + 1]; /* digits of the dimension's extent */
};

struct split {
	struct transform_spec spec;    /* the transform between the views, as if all blocks were complete */
	struct tensor_layout dst, src; /* layouts as requested, for split_sides */
	struct tensor_extent dst_extent, src_extent;
	int n_rests;
	struct split_rest rest[2 * SPLIT_MAX]; /* those of the destination come first */
	int n_parts;
	int largest; /* index of the part with the most elements */
	/* This tells which piece of each ragged dimension a part covers. */
	uint8_t piece[SPLIT_MAX_PARTS][2 * SPLIT_MAX];
};

/* A part as an ordinary transform. Its tensors start dst_offset and src_offset bytes after those of the
 * request. */
struct split_part {
	struct transform_spec spec;
	int64_t dst_offset;
	int64_t src_offset;
};

/* Divides a transform into parts. spec has the tensors as they are, but perm, before and after for the views.
 * Besides what transform_init refuses, it refuses a split of a dimension that does not exist or into blocks
 * of less than one element, incomplete blocks within blocks, pads of dimensions that a split made, an
 * incomplete last block of the source with a mode other than constant, and more than SPLIT_MAX_PARTS
 * parts. */
int split_init(struct split *ret, const struct transform_spec *spec, const struct split_list *dst,
               const struct split_list *src, struct error *err);

/* Sets *ret to a transform without splits as its own only part. transform_init has yet to check it. */
void split_none(struct split *ret, const struct transform_spec *spec);

/* Sets *ret to part i. */
void split_get(const struct split *split, int i, struct split_part *ret);

/* Returns the tensors as requested, for checks against regions. The result points into split. */
struct transform_sides split_sides(const struct split *split);

#endif
