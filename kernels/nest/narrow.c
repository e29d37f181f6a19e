/* SPDX-License-Identifier: Apache-2.0 */
/* Narrows a transform: the window of an axis moves, and with it what is before, what is read and what is
 * after. */
#include "narrow.h"

#include <assert.h>

/* Nothing here overflows: every span is within one that tensor_layout_init has checked. */
static void span(struct tensor_extent *extent, int64_t n, int64_t stride)
{
	int64_t reach = (n - 1) * stride;
	if (reach < 0)
		extent->low += reach;
	else
		extent->high += reach;
}

struct tensor_extent transform_writes(const struct transform *t)
{
	struct tensor_extent extent = { .low = 0, .high = t->element };
	if (t->count == 0)
		return (struct tensor_extent){ 0, 0 };
	for (int d = 0; d < t->rank; d++)
		span(&extent, t->axis[d].extent, t->axis[d].dst_stride);
	return extent;
}

struct tensor_extent transform_reads(const struct transform *t)
{
	struct tensor_extent extent = { .low = t->src_shift, .high = t->src_shift + t->element };
	if (transform_read_bytes(t) == 0)
		return (struct tensor_extent){ 0, 0 };
	for (int d = 0; d < t->rank; d++)
		span(&extent, t->axis[d].source, t->axis[d].src_stride);
	return extent;
}

uint64_t transform_read_bytes(const struct transform *t)
{
	uint64_t bytes = t->count ? t->element : 0;
	for (int d = 0; d < t->rank; d++)
		if (t->axis[d].src_stride != 0 || t->axis[d].source == 0)
			bytes *= (uint64_t)t->axis[d].source;
	return bytes;
}

bool transform_can_narrow(const struct transform *t, int axis)
{
	return t->mode == PAD_MODE_CONSTANT || t->axis[axis].extent == t->axis[axis].source;
}

int64_t transform_narrow(struct transform *t, int d, int64_t first, int64_t n)
{
	struct transform_axis *axis = &t->axis[d];
	int64_t low = first - axis->before, high = low + n;
	uint64_t read = 1;

	assert(transform_can_narrow(t, d) && first >= 0 && n > 0 && n <= axis->extent - first);
	axis->before = low < 0 ? -low : 0;
	if (low < 0)
		low = 0;
	if (high > axis->source)
		high = axis->source;
	if (high > low) {
		t->src_shift += low * axis->src_stride;
		axis->source = high - low;
	} else {
		axis->before = axis->source = 0;
	}

	t->count = t->count / axis->extent * n;
	axis->extent = n;
	for (int i = 0; i < t->rank; i++)
		read *= (uint64_t)t->axis[i].source;
	t->bytes = ((uint64_t)t->count + read) * t->element;
	t->dst_layout.shape[d] = n;
	t->dst_extent = transform_writes(t);
	t->src_extent = transform_reads(t);
	return first * axis->dst_stride;
}
