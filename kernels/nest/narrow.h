/* SPDX-License-Identifier: Apache-2.0 */
/* Makes transforms of parts of a transform. Also determines which bytes a transform touches, as a range and
 * as rows of contiguous bytes, for callers that copy exactly what it reads or writes, and makes the transform
 * of what they have copied. The transforms must not convert elements. The functions have no side effects. */
#ifndef KERNELS_NEST_NARROW_H
#define KERNELS_NEST_NARROW_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/transform/transform.h"

/* Return the range of bytes that are written, relative to the destination's element [0, ..., 0], and of those
 * that are read, relative to the source's, without what is cropped. Gaps between elements are included. Both
 * fields are 0 if there are no bytes. */
struct tensor_extent transform_writes(const struct transform *t);
struct tensor_extent transform_reads(const struct transform *t);

/* Returns the number of distinct bytes of the source that are read: a broadcast dimension counts once. */
uint64_t transform_read_bytes(const struct transform *t);

/* Returns whether transform_narrow can restrict the axis. It can unless the axis is padded by a mode other
 * than constant, with a border that depends on where the whole axis ends. */
bool transform_can_narrow(const struct transform *t, int axis);

/* Restricts the axis to output indices [first, first + n), which must be within its extent. Returns the bytes
 * by which the destination's element [0, ..., 0] moves; the source's stays where it is. dst_layout is
 * updated, src_layout stays as requested. */
int64_t transform_narrow(struct transform *t, int axis, int64_t first, int64_t n);

/* A box of rows of contiguous bytes. Axes are ordered by stride, smallest first. Each repeats what the axes
 * before it span: n times, stride bytes apart. */
struct row_box {
	uint64_t row_bytes;
	int rank;
	struct {
		uint64_t n;
		uint64_t stride;
	} axis[TENSOR_MAX_RANK];
};

/* Set *ret to the rows that the transform reads of the source, or writes of the destination. The first row
 * begins at the first byte that is read or written. Return false if no byte is read or written, or if rows
 * run backwards or overlap. */
bool row_box_init_src(struct row_box *ret, const struct transform *t);
bool row_box_init_dst(struct row_box *ret, const struct transform *t);

/* Returns the bytes of all rows. */
uint64_t row_box_bytes(const struct row_box *box);

/* Change the transform to one whose source, or destination, has its rows one after the other without gaps,
 * the first at element [0, ..., 0]. The row box of that side must exist. Layouts stay as requested. */
void row_box_pack_src(struct transform *t);
void row_box_pack_dst(struct transform *t);

#endif
