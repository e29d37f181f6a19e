/* SPDX-License-Identifier: Apache-2.0 */
/* Makes transforms of parts of a transform; tells which bytes a transform touches, as a range and as rows of
 * contiguous bytes, for callers that copy what it reads or writes and no more than that; and makes the
 * transform of what has been copied. Pure. */
#ifndef KERNELS_NEST_NARROW_H
#define KERNELS_NEST_NARROW_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/transform/transform.h"

/* These return the bytes that are written, from the destination's element [0, ..., 0], and those that are
 * read, from the source's, which leaves out what is cropped. Gaps between elements count. Both fields are 0
 * if there are no bytes. */
struct tensor_extent transform_writes(const struct transform *t);
struct tensor_extent transform_reads(const struct transform *t);

/* Returns how many distinct bytes of the source are read: a broadcast dimension counts once. */
uint64_t transform_read_bytes(const struct transform *t);

/* Returns whether a part of the axis can be taken: always, but when it is padded by a mode other than
 * constant, whose border depends on where the whole ends. */
bool transform_can_narrow(const struct transform *t, int axis);

/* Restricts the axis to output indices [first, first + n), which must be within its extent. Returns how many
 * bytes further the destination's element [0, ..., 0] is now; the source's is where it was. dst_layout
 * follows, src_layout stays as the request gave it. */
int64_t transform_narrow(struct transform *t, int axis, int64_t first, int64_t n);

/* A box of rows of contiguous bytes. The axes, nearest first, say where the rows lie: n steps of stride bytes
 * each. */
struct row_box {
	uint64_t row_bytes;
	int rank;
	struct {
		uint64_t n;
		uint64_t stride;
	} axis[TENSOR_MAX_RANK];
};

/* These set *ret to the rows of the source that the transform reads, or of the destination that it writes.
 * The first row begins at the first such byte. They return false if there is none, or if rows run backwards
 * or overlap. */
bool row_box_init_src(struct row_box *ret, const struct transform *t);
bool row_box_init_dst(struct row_box *ret, const struct transform *t);

/* Returns the bytes of all rows. */
uint64_t row_box_bytes(const struct row_box *box);

/* These change the transform to one whose source, or destination, has its rows one after the other without
 * gaps, the first at element [0, ..., 0]. The row box of that side must exist. Layouts stay as the request
 * gave them. */
void row_box_pack_src(struct transform *t);
void row_box_pack_dst(struct transform *t);

#endif
