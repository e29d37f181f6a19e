/* SPDX-License-Identifier: Apache-2.0 */
/* Tests layouts: what is refused with which message, extents, ranges, and texts of shapes. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <string.h>

#include "proto/tensor.h"

struct layout_row {
	char name[40];
	enum dtype dtype;
	int64_t rank;
	int64_t shape[4];
	bool strided;
	int64_t strides[4];
	char refusal[160]; /* "": the layout is accepted, with the values below */
	int64_t want_strides[4];
	int64_t count, low, high;
};

static struct layout_row layout_rows[] = {
	{ .name = "scalar", .dtype = DTYPE_FLOAT64, .count = 1, .high = 8 },
	{ .name = "C order",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 3,
	  .shape = { 2, 3, 5 },
	  .want_strides = { 15, 5, 1 },
	  .count = 30,
	  .high = 120 },
	{ .name = "reversed",
	  .dtype = DTYPE_INT16,
	  .rank = 2,
	  .shape = { 4, 3 },
	  .strided = true,
	  .strides = { -3, 1 },
	  .want_strides = { -3, 1 },
	  .count = 12,
	  .low = -18,
	  .high = 6 },
	{ .name = "broadcast",
	  .dtype = DTYPE_UINT8,
	  .rank = 2,
	  .shape = { 1000, 3 },
	  .strided = true,
	  .strides = { 0, 1 },
	  .want_strides = { 0, 1 },
	  .count = 3000,
	  .high = 3 },
	{ .name = "empty, C order counts it as 1",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 3,
	  .shape = { 7, 0, 5 },
	  .want_strides = { 5, 5, 1 } },
	{ .name = "strides of one element are free",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .shape = { 1, 2 },
	  .strided = true,
	  .strides = { INT64_MIN, 1 },
	  .want_strides = { INT64_MIN, 1 },
	  .count = 2,
	  .high = 8 },
	{ .name = "strides of no element are free",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 2,
	  .shape = { 0, 5 },
	  .strided = true,
	  .strides = { 1, INT64_MAX },
	  .want_strides = { 1, INT64_MAX } },
	{ .name = "largest",
	  .dtype = DTYPE_UINT8,
	  .rank = 1,
	  .shape = { INT64_MAX },
	  .want_strides = { 1 },
	  .count = INT64_MAX,
	  .high = INT64_MAX },
	{ .name = "rank 33", .rank = 33, .refusal = "t.shape: rank 33, but a tensor has 0 to 32 dimensions" },
	{ .name = "rank -1", .rank = -1, .refusal = "t.shape: rank -1, but a tensor has 0 to 32 dimensions" },
	{ .name = "huge rank",
	  .rank = INT64_MAX,
	  .refusal = "t.shape: rank 9223372036854775807, but a tensor has 0 to 32 dimensions" },
	{ .name = "negative",
	  .rank = 2,
	  .shape = { 3, -4 },
	  .refusal = "t.shape: dimension 1 is -4, but no dimension can be negative" },
	{ .name = "count overflows",
	  .dtype = DTYPE_UINT8,
	  .rank = 2,
	  .shape = { INT64_C(1) << 32, INT64_C(1) << 31 },
	  .refusal = "t.shape: dimension 1, 2147483648, makes the number of elements overflow 63 bits" },
	{ .name = "count overflows beside an empty one",
	  .dtype = DTYPE_UINT8,
	  .rank = 3,
	  .shape = { 0, INT64_C(1) << 62, 4 },
	  .refusal = "t.shape: dimension 2, 4, makes the number of elements overflow 63 bits" },
	{ .name = "bytes overflow",
	  .dtype = DTYPE_FLOAT32,
	  .rank = 1,
	  .shape = { INT64_C(1) << 61 },
	  .refusal =
	      "t.strides: dimension 0, 2305843009213693952 times a stride of 1, makes the byte offsets "
	      "overflow 63 bits" },
	{ .name = "stride overflows",
	  .dtype = DTYPE_UINT8,
	  .rank = 1,
	  .shape = { 3 },
	  .strided = true,
	  .strides = { INT64_MIN },
	  .refusal =
	      "t.strides: dimension 0, 3 times a stride of -9223372036854775808, makes the byte offsets "
	      "overflow 63 bits" },
	{ .name = "stride of -2^63",
	  .dtype = DTYPE_UINT8,
	  .rank = 1,
	  .shape = { 2 },
	  .strided = true,
	  .strides = { INT64_MIN },
	  .refusal =
	      "t.strides: dimension 0, 2 times a stride of -9223372036854775808, makes the byte offsets "
	      "overflow 63 bits" },
	{ .name = "span overflows in the sum",
	  .dtype = DTYPE_UINT8,
	  .rank = 2,
	  .shape = { 2, 2 },
	  .strided = true,
	  .strides = { INT64_C(1) << 62, -(INT64_C(1) << 62) },
	  .refusal =
	      "t.strides: dimension 1, 2 times a stride of -4611686018427387904, makes the byte offsets "
	      "overflow 63 bits" },
};

ParameterizedTestParameters(tensor, layout)
{
	return cr_make_param_array(struct layout_row, layout_rows, sizeof layout_rows / sizeof *layout_rows);
}

ParameterizedTest(struct layout_row *row, tensor, layout)
{
	struct tensor_layout layout = { .rank = 77 };
	struct tensor_extent extent;
	struct error err = { 0 };
	int status = tensor_layout_init(&layout, row->dtype, row->rank, row->shape,
	                                row->strided ? row->strides : NULL, "t", &err);

	if (row->refusal[0]) {
		cr_assert_eq(status, STATUS_INVALID_ARGUMENT, "%s: %d", row->name, status);
		cr_assert_str_eq(err.message, row->refusal, "%s: %s", row->name, err.message);
		cr_assert_eq(layout.rank, 77, "%s: touched", row->name);
		return;
	}
	cr_assert_eq(status, 0, "%s: %s", row->name, err.message);
	cr_assert_eq(layout.dtype, row->dtype, "%s", row->name);
	for (int d = 0; d < row->rank; d++) {
		cr_assert_eq(layout.shape[d], row->shape[d], "%s: dimension %d", row->name, d);
		cr_assert_eq(layout.stride[d], row->want_strides[d], "%s: stride %d", row->name, d);
	}
	extent = tensor_extent(&layout);
	cr_assert_eq(tensor_count(&layout), row->count, "%s: count %ld", row->name,
	             (long)tensor_count(&layout));
	cr_assert_eq(extent.low, row->low, "%s: low %ld", row->name, (long)extent.low);
	cr_assert_eq(extent.high, row->high, "%s: high %ld", row->name, (long)extent.high);
}

struct range_row {
	char name[24];
	struct tensor_extent extent;
	uint64_t offset, size;
	char refusal[120];
};

static struct range_row range_rows[] = {
	{ .name = "fits", .extent = { 0, 256 }, .offset = 0, .size = 256 },
	{ .name = "fits at its offset", .extent = { 0, 200 }, .offset = 56, .size = 256 },
	{ .name = "fits reversed", .extent = { -56, 200 }, .offset = 56, .size = 256 },
	{ .name = "empty at the end", .extent = { 0, 0 }, .offset = 256, .size = 256 },
	{ .name = "too long",
	  .extent = { 0, 400 },
	  .offset = 0,
	  .size = 256,
	  .refusal = "t: bytes [0, 400) exceed a region of 256 bytes" },
	{ .name = "one byte over",
	  .extent = { 0, 200 },
	  .offset = 57,
	  .size = 256,
	  .refusal = "t: bytes [57, 257) exceed a region of 256 bytes" },
	{ .name = "below",
	  .extent = { -57, 4 },
	  .offset = 56,
	  .size = 256,
	  .refusal = "t: strides reach 57 bytes below offset 56, before the region starts" },
	{ .name = "offset past",
	  .extent = { 0, 0 },
	  .offset = 257,
	  .size = 256,
	  .refusal = "t: offset 257 is past the end of a region of 256 bytes" },
	{ .name = "offset huge",
	  .extent = { 0, 4 },
	  .offset = UINT64_MAX,
	  .size = 256,
	  .refusal = "t: offset 18446744073709551615 is past the end of a region of 256 bytes" },
	{ .name = "extent huge",
	  .extent = { 0, INT64_MAX },
	  .offset = 8,
	  .size = UINT64_C(1) << 40,
	  .refusal = "t: bytes [8, 9223372036854775815) exceed a region of 1099511627776 bytes" },
	{ .name = "lowest",
	  .extent = { -INT64_MAX, 1 },
	  .offset = 9,
	  .size = 16,
	  .refusal = "t: strides reach 9223372036854775807 bytes below offset 9, before the region starts" },
	{ .name = "empty region",
	  .extent = { 0, 1 },
	  .offset = 0,
	  .size = 0,
	  .refusal = "t: bytes [0, 1) exceed a region of 0 bytes" },
};

ParameterizedTestParameters(tensor, range)
{
	return cr_make_param_array(struct range_row, range_rows, sizeof range_rows / sizeof *range_rows);
}

ParameterizedTest(struct range_row *row, tensor, range)
{
	struct error err = { 0 };
	int status = tensor_check_range(row->extent, row->offset, row->size, "t", &err);

	cr_assert_eq(status, row->refusal[0] ? STATUS_OUT_OF_RANGE : 0, "%s: %d", row->name, status);
	cr_assert_str_eq(err.message, row->refusal, "%s: %s", row->name, err.message);
}

Test(tensor, names_and_sizes)
{
	uint32_t total = 0;

	for (int i = 0; i < DTYPE_COUNT; i++) {
		cr_assert(dtype_names[i], "dtype %d", i);
		total += dtype_size(i);
	}
	cr_assert_eq(total, 1 + 2 + 4 + 8 + 16 + 2 + 4 + 12 + 24);
	cr_assert_str_eq(dtype_names[DTYPE_BFLOAT16], "bfloat16");
	cr_assert_eq(dtype_size(DTYPE_COMPLEX128), 16);
	cr_assert_eq(dtype_class(DTYPE_BOOL), DTYPE_CLASS_BOOLEAN);
	cr_assert_eq(dtype_class(DTYPE_FLOAT8_E5M2), DTYPE_CLASS_FLOATING);
	cr_assert_str_eq(pad_mode_names[PAD_MODE_CONSTANT], "constant");
	cr_assert_str_eq(pad_mode_names[PAD_MODE_WRAP], "wrap");
}

struct text_row {
	int rank;
	int64_t shape[4];
	size_t size;
	char want[40];
};

static struct text_row text_rows[] = {
	{ .rank = 0, .shape = { 0 }, .size = 40, .want = "[]" },
	{ .rank = 1, .shape = { 7 }, .size = 40, .want = "[7]" },
	{ .rank = 4, .shape = { 64, 56, 56, 256 }, .size = 40, .want = "[64, 56, 56, 256]" },
	{ .rank = 4, .shape = { 64, 56, 56, 256 }, .size = 18, .want = "[64, 56, 56, 256]" },
	{ .rank = 4, .shape = { 64, 56, 56, 256 }, .size = 17, .want = "[64, 56, 56, ..." },
	{ .rank = 4, .shape = { 64, 56, 56, 256 }, .size = 8, .want = "[64,..." },
	{ .rank = 4, .shape = { 64, 56, 56, 256 }, .size = 4, .want = "..." },
	{ .rank = 0, .shape = { 0 }, .size = 3, .want = "[]" },
};

ParameterizedTestParameters(tensor, shape_text)
{
	return cr_make_param_array(struct text_row, text_rows, sizeof text_rows / sizeof *text_rows);
}

ParameterizedTest(struct text_row *row, tensor, shape_text)
{
	char text[41];

	memset(text, '#', sizeof text);
	cr_assert_str_eq(tensor_shape_text(row->rank, row->shape, text, row->size), row->want,
	                 "%s in %zu: %s", row->want, row->size, text);
	cr_assert_eq(text[row->size], '#', "%s in %zu: wrote past the end", row->want, row->size);
}
