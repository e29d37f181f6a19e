/* SPDX-License-Identifier: Apache-2.0 */
/* Element types and layouts. Every product and sum over a shape is checked for overflow here; functions that
 * take a struct tensor_layout rely on tensor_layout_init having accepted it. */
#include "tensor.h"

#include <inttypes.h>
#include <stdio.h>

const char *const dtype_names[DTYPE_COUNT] = {
#define DTYPE(NAME, name, size, class) [DTYPE_##NAME] = name,
#include "dtype.def"
};

const char *const pad_mode_names[PAD_MODE_COUNT] = {
	[PAD_MODE_CONSTANT] = "constant",   [PAD_MODE_EDGE] = "edge", [PAD_MODE_REFLECT] = "reflect",
	[PAD_MODE_SYMMETRIC] = "symmetric", [PAD_MODE_WRAP] = "wrap",
};

const char *const cast_names[CAST_COUNT] = {
	[CAST_SATURATE] = "saturate",
	[CAST_EXACT] = "exact",
	[CAST_IEEE] = "ieee",
};

uint32_t dtype_size(enum dtype dtype)
{
	static const uint8_t sizes[DTYPE_COUNT] = {
#define DTYPE(NAME, name, size, class) [DTYPE_##NAME] = size,
#include "dtype.def"
	};

	return sizes[dtype];
}

enum dtype_class dtype_class(enum dtype dtype)
{
	static const uint8_t classes[DTYPE_COUNT] = {
#define DTYPE(NAME, name, size, class) [DTYPE_##NAME] = DTYPE_CLASS_##class,
#include "dtype.def"
	};

	return classes[dtype];
}

static int check_shape(int64_t rank, const int64_t *shape, const char *name, struct error *err)
{
	int64_t count = 1;

	if (rank < 0 || rank > TENSOR_MAX_RANK)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s.shape: rank %" PRId64 ", but a tensor has 0 to %d dimensions", name,
		                 rank, TENSOR_MAX_RANK);
	for (int d = 0; d < rank; d++) {
		if (shape[d] < 0)
			return error_set(err, STATUS_INVALID_ARGUMENT,
			                 "%s.shape: dimension %d is %" PRId64
			                 ", but no dimension can be negative",
			                 name, d, shape[d]);
		/* Empty dimensions count as 1, so that C-order strides always exist. */
		if (__builtin_mul_overflow(count, shape[d] ? shape[d] : 1, &count))
			return error_set(err, STATUS_INVALID_ARGUMENT,
			                 "%s.shape: dimension %d, %" PRId64
			                 ", makes the number of elements overflow 63 bits",
			                 name, d, shape[d]);
	}
	return 0;
}

/* Checks the span in bytes: one element plus the sum of (n - 1) * |stride| over the dimensions. If it fits
 * into 63 bits, so do every offset and every difference of two offsets. */
static int check_span(const struct tensor_layout *layout, const char *name, struct error *err)
{
	int64_t size = dtype_size(layout->dtype);
	int64_t span = size;

	for (int d = 0; d < layout->rank; d++) {
		int64_t reach;

		if (layout->shape[d] <= 1)
			continue;
		if (__builtin_mul_overflow(layout->shape[d] - 1, layout->stride[d], &reach) ||
		    __builtin_mul_overflow(reach, layout->stride[d] < 0 ? -size : size, &reach) ||
		    __builtin_add_overflow(span, reach, &span))
			return error_set(err, STATUS_INVALID_ARGUMENT,
			                 "%s.strides: dimension %d, %" PRId64 " times a stride of %" PRId64
			                 ", makes the byte offsets overflow 63 bits",
			                 name, d, layout->shape[d], layout->stride[d]);
	}
	return 0;
}

int tensor_layout_init(struct tensor_layout *ret, enum dtype dtype, int64_t rank, const int64_t *shape,
                       const int64_t *strides, const char *name, struct error *err)
{
	struct tensor_layout layout = { .dtype = dtype };
	int64_t stride = 1;
	int status = check_shape(rank, shape, name, err);

	if (status)
		return status;
	layout.rank = (int)rank;
	for (int d = layout.rank - 1; d >= 0; d--) {
		layout.shape[d] = shape[d];
		layout.stride[d] = strides ? strides[d] : stride;
		stride *= shape[d] ? shape[d] : 1;
	}
	if (tensor_count(&layout)) {
		status = check_span(&layout, name, err);
		if (status)
			return status;
	}
	*ret = layout;
	return 0;
}

int64_t tensor_count(const struct tensor_layout *layout)
{
	int64_t count = 1;

	for (int d = 0; d < layout->rank; d++) {
		if (!layout->shape[d])
			return 0;
		count *= layout->shape[d];
	}
	return count;
}

struct tensor_extent tensor_extent(const struct tensor_layout *layout)
{
	int64_t size = dtype_size(layout->dtype);
	struct tensor_extent extent = { 0, size };

	if (!tensor_count(layout))
		return (struct tensor_extent){ 0, 0 };
	for (int d = 0; d < layout->rank; d++) {
		int64_t reach;

		if (layout->shape[d] == 1)
			continue;
		reach = (layout->shape[d] - 1) * layout->stride[d] * size;
		if (reach < 0)
			extent.low += reach;
		else
			extent.high += reach;
	}
	return extent;
}

int tensor_check_range(struct tensor_extent extent, uint64_t offset, uint64_t size, const char *name,
                       struct error *err)
{
	uint64_t below = -(uint64_t)extent.low;

	if (offset > size)
		return error_set(err, STATUS_OUT_OF_RANGE,
		                 "%s: offset %" PRIu64 " is past the end of a region of %" PRIu64 " bytes",
		                 name, offset, size);
	if (below > offset)
		return error_set(err, STATUS_OUT_OF_RANGE,
		                 "%s: strides reach %" PRIu64 " bytes below offset %" PRIu64
		                 ", before the region starts",
		                 name, below, offset);
	if ((uint64_t)extent.high > size - offset)
		return error_set(err, STATUS_OUT_OF_RANGE,
		                 "%s: bytes [%" PRIu64 ", %" PRIu64 ") exceed a region of %" PRIu64 " bytes",
		                 name, offset - below, offset + (uint64_t)extent.high, size);
	return 0;
}

char *tensor_shape_text(int rank, const int64_t *shape, char *text, size_t text_size)
{
	size_t len = snprintf(text, text_size, "[");

	for (int d = 0; d < rank && len < text_size; d++)
		len += snprintf(text + len, text_size - len, "%s%" PRId64, d ? ", " : "", shape[d]);
	if (len < text_size)
		len += snprintf(text + len, text_size - len, "]");
	if (len >= text_size && text_size >= 4)
		snprintf(text + text_size - 4, 4, "...");
	return text;
}
