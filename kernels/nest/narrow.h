/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a transform that are transforms of their own, and the range of bytes that a transform touches.
 * Pure. */
#ifndef KERNELS_NEST_NARROW_H
#define KERNELS_NEST_NARROW_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/transform/transform.h"

/* Bytes that are written, from the destination's element [0, ..., 0]; and that are read, from the source's,
 * which leaves out what is cropped. Gaps between elements count; both are 0 when there is none. */
struct tensor_extent transform_writes(const struct transform *t);
struct tensor_extent transform_reads(const struct transform *t);

/* Distinct bytes of the source that are read: a broadcast dimension counts once. */
uint64_t transform_read_bytes(const struct transform *t);

/* Whether a part of the axis can be taken: always, but when it is padded by a mode other than constant, whose
 * border depends on where the whole ends. */
bool transform_can_narrow(const struct transform *t, int axis);

/* Leaves output indices [first, first + n) of the axis, which must be within its extent. Returns how many
 * bytes further the destination's element [0, ..., 0] is now; the source's is where it was. dst_layout
 * follows, src_layout stays as the request gave it. */
int64_t transform_narrow(struct transform *t, int axis, int64_t first, int64_t n);

#endif
