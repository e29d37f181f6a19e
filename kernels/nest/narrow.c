/* SPDX-License-Identifier: Apache-2.0 */
/* Narrowing an axis changes which of its indices are padded before, read, and padded after. For rows, the
 * axes of a side are sorted by stride, and those that are contiguous are joined. */
#include "narrow.h"

#include <assert.h>

/* Extends an extent by n - 1 steps of `stride` bytes, for an axis of n elements. Nothing here overflows:
 * every extent lies within one that tensor_layout_init has checked. */
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

/* ---- Rows ------------------------------------------------------------------------------------------- */

/* An axis of one side: its number of indices there, and a pointer to its stride. */
struct side_axis {
	int64_t n;
	int64_t *stride;
};

struct side {
	int rank;
	struct side_axis axis[TENSOR_MAX_RANK];
};

/* Inserts an axis so that strides ascend. */
static void insert(struct side *side, int64_t n, int64_t *stride)
{
	int i = side->rank++;

	for (; i > 0 && *side->axis[i - 1].stride > *stride; i--)
		side->axis[i] = side->axis[i - 1];
	side->axis[i] = (struct side_axis){ .n = n, .stride = stride };
}

/* Returns the axes along which more than one element is read from different bytes. */
static struct side src_side(struct transform *t)
{
	struct side side = { .rank = 0 };

	for (int d = 0; d < t->rank; d++)
		if (t->axis[d].source > 1 && t->axis[d].src_stride != 0)
			insert(&side, t->axis[d].source, &t->axis[d].src_stride);
	return side;
}

static struct side dst_side(struct transform *t)
{
	struct side side = { .rank = 0 };

	for (int d = 0; d < t->rank; d++)
		if (t->axis[d].extent > 1)
			insert(&side, t->axis[d].extent, &t->axis[d].dst_stride);
	return side;
}

static void add_axis(struct row_box *box, uint64_t n, uint64_t stride)
{
	const int last = box->rank - 1;

	if (box->rank == 0 && stride == box->row_bytes) {
		box->row_bytes *= n;
	} else if (box->rank > 0 && stride == box->axis[last].n * box->axis[last].stride) {
		box->axis[last].n *= n;
	} else {
		box->axis[box->rank].n = n;
		box->axis[box->rank++].stride = stride;
	}
}

static bool init(struct row_box *ret, const struct side *side, uint32_t element)
{
	uint64_t end = element; /* bytes that the axes so far span */

	*ret = (struct row_box){ .row_bytes = element };
	for (int i = 0; i < side->rank; i++) {
		const int64_t stride = *side->axis[i].stride;

		if (stride < 0 || (uint64_t)stride < end)
			return false;
		add_axis(ret, (uint64_t)side->axis[i].n, (uint64_t)stride);
		end += (uint64_t)(side->axis[i].n - 1) * (uint64_t)stride;
	}
	return true;
}

bool row_box_init_src(struct row_box *ret, const struct transform *t)
{
	struct transform copy = *t;
	const struct side side = src_side(&copy);

	return transform_read_bytes(t) > 0 && init(ret, &side, t->element);
}

bool row_box_init_dst(struct row_box *ret, const struct transform *t)
{
	struct transform copy = *t;
	const struct side side = dst_side(&copy);

	return t->count > 0 && init(ret, &side, t->element);
}

uint64_t row_box_bytes(const struct row_box *box)
{
	uint64_t bytes = box->row_bytes;

	for (int d = 0; d < box->rank; d++)
		bytes *= box->axis[d].n;
	return bytes;
}

static void pack(struct side *side, uint32_t element)
{
	int64_t stride = element;

	for (int i = 0; i < side->rank; i++) {
		*side->axis[i].stride = stride;
		stride *= side->axis[i].n;
	}
}

void row_box_pack_src(struct transform *t)
{
	struct side side = src_side(t);

	pack(&side, t->element);
	t->src_shift = 0;
	t->src_extent = transform_reads(t);
}

void row_box_pack_dst(struct transform *t)
{
	struct side side = dst_side(t);

	pack(&side, t->element);
	t->dst_extent = transform_writes(t);
}
