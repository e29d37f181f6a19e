/* SPDX-License-Identifier: Apache-2.0 */
/* Puts a source's axes in order of their strides, and joins those that make one. */
#include "source_box.h"

#include "narrow.h"

/* The axes that have more than one index of their own in the source, nearest first. */
static int sort_axes(const struct transform *t, int8_t ret[TENSOR_MAX_RANK])
{
	int n = 0;

	for (int d = 0; d < t->rank; d++) {
		int i = n;

		if (t->axis[d].source < 2 || t->axis[d].src_stride == 0)
			continue;
		for (n++; i > 0 && t->axis[ret[i - 1]].src_stride > t->axis[d].src_stride; i--)
			ret[i] = ret[i - 1];
		ret[i] = (int8_t)d;
	}
	return n;
}

static void add_axis(struct source_box *box, uint64_t n, uint64_t stride)
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

bool source_box_init(struct source_box *ret, const struct transform *t)
{
	int8_t order[TENSOR_MAX_RANK];
	const int n = sort_axes(t, order);
	uint64_t end = t->element; /* of what the nearer axes reach */

	*ret = (struct source_box){ .row_bytes = t->element };
	if (transform_read_bytes(t) == 0)
		return false;
	for (int i = 0; i < n; i++) {
		const struct transform_axis *axis = &t->axis[order[i]];

		if (axis->src_stride < 0 || (uint64_t)axis->src_stride < end)
			return false;
		add_axis(ret, (uint64_t)axis->source, (uint64_t)axis->src_stride);
		end += (uint64_t)(axis->source - 1) * (uint64_t)axis->src_stride;
	}
	return true;
}

uint64_t source_box_bytes(const struct source_box *box)
{
	uint64_t bytes = box->row_bytes;

	for (int d = 0; d < box->rank; d++)
		bytes *= box->axis[d].n;
	return bytes;
}

void source_box_pack(struct transform *t)
{
	int8_t order[TENSOR_MAX_RANK];
	const int n = sort_axes(t, order);
	int64_t stride = t->element;

	for (int i = 0; i < n; i++) {
		t->axis[order[i]].src_stride = stride;
		stride *= t->axis[order[i]].source;
	}
	t->src_shift = 0;
	t->src_extent = transform_reads(t);
}
