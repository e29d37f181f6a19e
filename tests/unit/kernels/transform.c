/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what transform_init and transform_check_sides refuse with which message, and what transforms are
 * reduced to. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/transform/transform.h"

/* A list of a request; n 0: it is absent, unless the rank is 0 too. */
struct list {
	int n;
	int64_t at[4];
};

#define LIST(...)                                                     \
	{                                                             \
		sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t), \
		{                                                     \
			__VA_ARGS__                                   \
		}                                                     \
	}

struct request {
	enum dtype dtype, dst_dtype; /* dst_dtype BOOL: the same as dtype */
	struct list src, src_strides, dst, dst_strides, perm, before, after;
	enum pad_mode mode;
	struct scalar value;
};

static void request_spec(const struct request *r, struct transform_spec *ret)
{
	struct error err;

	*ret = (struct transform_spec){
		.n_perm = r->perm.n ?: -1,
		.n_before = r->before.n ?: -1,
		.n_after = r->after.n ?: -1,
		.mode = r->mode,
		.value = r->value,
	};
	for (int d = 0; d < 4; d++) {
		ret->perm[d] = r->perm.at[d];
		ret->before[d] = r->before.at[d];
		ret->after[d] = r->after.at[d];
	}
	cr_assert_eq(tensor_layout_init(&ret->src, r->dtype, r->src.n, r->src.at,
	                                r->src_strides.n ? r->src_strides.at : NULL, "src", &err),
	             0, "%s", err.message);
	cr_assert_eq(tensor_layout_init(&ret->dst, r->dst_dtype ?: r->dtype, r->dst.n, r->dst.at,
	                                r->dst_strides.n ? r->dst_strides.at : NULL, "dst", &err),
	             0, "%s", err.message);
}

/* ---- Refusals ---------------------------------------------------------------------------------------- */

struct refusal_row {
	char name[64];
	struct request request;
	int status;
	char message[200];
};

static struct refusal_row refusal_rows[] = {
	{ .name = "dtypes differ",
	  .request = { .dtype = DTYPE_FLOAT16, .dst_dtype = DTYPE_FLOAT32, .src = LIST(2), .dst = LIST(2) },
	  .status = STATUS_INVALID_ARGUMENT,
	  .message = "dst.dtype: float32, but src is float16; elements are converted only with cast" },
	{ .name = "ranks differ",
	  .request = { .dtype = DTYPE_INT8, .src = LIST(2, 3), .dst = LIST(6) },
	  .status = STATUS_INVALID_ARGUMENT,
	  .message = "dst.shape: rank 1, but src has rank 2; a transform does not change the rank" },
	{ .name = "perm too short",
	  .request = { .dtype = DTYPE_INT8, .src = LIST(2, 3), .dst = LIST(2, 3), .perm = LIST(0) },
	  .status = STATUS_INVALID_ARGUMENT,
	  .message = "perm: length 1, but src has rank 2; each dimension needs one entry" },
	{ .name = "perm repeats",
	  .request = { .dtype = DTYPE_INT8,
	               .src = LIST(2, 3, 4, 5),
	               .dst = LIST(2, 5, 5, 3),
	               .perm = LIST(0, 3, 3, 1) },
	  .status = STATUS_INVALID_ARGUMENT,
	  .message = "perm: 3 appears twice; a permutation of 4 dimensions names each of 0..3 once" },
	{ .name = "perm out of range",
	  .request = { .dtype = DTYPE_INT8, .src = LIST(2, 3), .dst = LIST(2, 3), .perm = LIST(0, 2) },
	  .status = STATUS_INVALID_ARGUMENT,
	  .message = "perm: 2 is not a dimension; a permutation of 2 dimensions names each of 0..1 once" },
	{ .name = "perm negative",
	  .request = { .dtype = DTYPE_INT8, .src = LIST(2, 3), .dst = LIST(2, 3), .perm = LIST(0, -1) },
	  .status = STATUS_INVALID_ARGUMENT,
	  .message = "perm: -1 is not a dimension; a permutation of 2 dimensions names each of 0..1 once" },
	{ .name = "perm huge",
	  .request = { .dtype = DTYPE_INT8,
	               .src = LIST(2, 3),
	               .dst = LIST(2, 3),
	               .perm = LIST(0, INT64_MAX) },
	  .status = STATUS_INVALID_ARGUMENT,
	  .message =
	      "perm: 9223372036854775807 is not a dimension; a permutation of 2 dimensions names each of "
	      "0..1 once" },
	{ .name = "before too long",
	  .request = { .dtype = DTYPE_INT8, .src = LIST(2), .dst = LIST(2), .before = LIST(0, 0) },
	  .status = STATUS_INVALID_ARGUMENT,
	  .message = "before: length 2, but src has rank 1; each dimension needs one entry" },
	{ .name = "after too short",
	  .request = { .dtype = DTYPE_INT8, .src = LIST(2, 2), .dst = LIST(2, 2), .after = LIST(0) },
	  .status = STATUS_INVALID_ARGUMENT,
	  .message = "after: length 1, but src has rank 2; each dimension needs one entry" },
	{ .name = "shapes differ",
	  .request = { .dtype = DTYPE_INT8, .src = LIST(4, 98), .dst = LIST(4, 99), .after = LIST(0, 2) },
	  .status = STATUS_INVALID_ARGUMENT,
	  .message = "dst.shape: dimension 1 is 99, but the transform produces 100" },
	{ .name = "shapes differ after perm",
	  .request = { .dtype = DTYPE_INT8, .src = LIST(4, 5), .dst = LIST(4, 5), .perm = LIST(1, 0) },
	  .status = STATUS_INVALID_ARGUMENT,
	  .message = "dst.shape: dimension 0 is 4, but the transform produces 5" },
	{ .name = "crop leaves nothing",
	  .request = { .dtype = DTYPE_INT8,
	               .src = LIST(7),
	               .dst = LIST(0),
	               .before = LIST(-3),
	               .after = LIST(-4) },
	  .status = STATUS_INVALID_ARGUMENT,
	  .message = "before: dimension 0 is 7, and cropping it by before -3 and after -4 leaves nothing" },
	{ .name = "crop then pad leaves nothing between",
	  .request = { .dtype = DTYPE_INT8,
	               .src = LIST(7),
	               .dst = LIST(9),
	               .before = LIST(9),
	               .after = LIST(-7) },
	  .status = STATUS_INVALID_ARGUMENT,
	  .message = "after: dimension 0 is 7, and cropping it by before 0 and after -7 leaves nothing" },
	{ .name = "crop of an empty dimension",
	  .request = { .dtype = DTYPE_INT8, .src = LIST(0), .dst = LIST(0), .before = LIST(-1) },
	  .status = STATUS_INVALID_ARGUMENT,
	  .message = "before: dimension 0 is 0, and cropping it by before -1 and after 0 leaves nothing" },
	{ .name = "crop overflows",
	  .request = { .dtype = DTYPE_INT8,
	               .src = LIST(7),
	               .dst = LIST(0),
	               .before = LIST(INT64_MIN),
	               .after = LIST(INT64_MIN) },
	  .status = STATUS_INVALID_ARGUMENT,
	  .message =
	      "before: dimension 0 is 7, and cropping it by before -9223372036854775808 and after -9223372036854775808 "
	      "leaves nothing" },
	{ .name = "pad overflows",
	  .request = { .dtype = DTYPE_INT8,
	               .src = LIST(7),
	               .dst = LIST(7),
	               .before = LIST(1),
	               .after = LIST(INT64_MAX) },
	  .status = STATUS_INVALID_ARGUMENT,
	  .message =
	      "after: dimension 0 of 7 overflows 63 bits with before 1 and after 9223372036854775807" },
	{ .name = "edge of an empty dimension",
	  .request = { .dtype = DTYPE_INT8,
	               .src = LIST(2, 0),
	               .dst = LIST(2, 1),
	               .before = LIST(0, 1),
	               .mode = PAD_MODE_EDGE },
	  .status = STATUS_INVALID_ARGUMENT,
	  .message = "mode: edge cannot pad dimension 1, which is empty; only constant can" },
	{ .name = "value with wrap",
	  .request = { .dtype = DTYPE_INT8,
	               .src = LIST(2),
	               .dst = LIST(2),
	               .mode = PAD_MODE_WRAP,
	               .value = { .u = 1 } },
	  .status = STATUS_INVALID_ARGUMENT,
	  .message = "value: mode wrap takes no value; only constant does" },
	{ .name = "value out of range",
	  .request = { .dtype = DTYPE_INT8, .src = LIST(2), .dst = LIST(2), .value = { .u = 200 } },
	  .status = STATUS_INVALID_ARGUMENT,
	  .message = "value: 200 is not in the range of int8, -128 to 127" },
	{ .name = "destination repeats",
	  .request = { .dtype = DTYPE_INT8, .src = LIST(5, 2), .dst = LIST(5, 2), .dst_strides = LIST(0, 1) },
	  .status = STATUS_OVERLAP,
	  .message =
	      "dst.strides: dimension 0 has stride 0, so its 5 elements overlap; only src may repeat" },
	{ .name = "destination overlaps itself",
	  .request = { .dtype = DTYPE_INT8, .src = LIST(5, 4), .dst = LIST(5, 4), .dst_strides = LIST(3, 1) },
	  .status = STATUS_OVERLAP,
	  .message = "dst.strides: two elements share bytes" },
};

ParameterizedTestParameters(transform, refusals)
{
	return cr_make_param_array(struct refusal_row, refusal_rows,
	                           sizeof refusal_rows / sizeof *refusal_rows);
}

ParameterizedTest(struct refusal_row *row, transform, refusals)
{
	struct transform_spec spec;
	struct transform t;
	struct error err = { 0 };

	request_spec(&row->request, &spec);
	cr_assert_eq(transform_init(&t, &spec, &err), row->status, "%s: %d %s", row->name, err.status,
	             err.message);
	cr_assert_str_eq(err.message, row->message, "%s: %s", row->name, err.message);
	cr_assert_eq(err.status, row->status, "%s", row->name);
}

/* ---- What is accepted -------------------------------------------------------------------------------- */

struct accepted_row {
	char name[64];
	struct request request;
	struct transform_axis axis[4];
	int64_t shift, count;
	uint64_t bytes;
};

static struct accepted_row accepted_rows[] = {
	{ .name = "rank 0", .request = { .dtype = DTYPE_FLOAT64 }, .count = 1, .bytes = 16 },
	{ .name = "transpose",
	  .request = { .dtype = DTYPE_FLOAT32, .src = LIST(3, 5), .dst = LIST(5, 3), .perm = LIST(1, 0) },
	  .axis = { { 5, 0, 5, 12, 4 }, { 3, 0, 3, 4, 20 } },
	  .count = 15,
	  .bytes = 120 },
	{ .name = "pad counts the interior's reads",
	  .request = { .dtype = DTYPE_INT16,
	               .src = LIST(4),
	               .dst = LIST(10),
	               .before = LIST(5),
	               .after = LIST(1),
	               .mode = PAD_MODE_WRAP },
	  .axis = { { 10, 5, 4, 2, 2 } },
	  .count = 10,
	  .bytes = 28 },
	{ .name = "crop shifts the source",
	  .request = { .dtype = DTYPE_INT16,
	               .src = LIST(9, 4),
	               .dst = LIST(6, 4),
	               .before = LIST(-2, 0),
	               .after = LIST(-1, 0) },
	  .axis = { { 6, 0, 6, 8, 8 }, { 4, 0, 4, 2, 2 } },
	  .shift = 16,
	  .count = 24,
	  .bytes = 96 },
	{ .name = "crop of a reversed source",
	  .request = { .dtype = DTYPE_INT16,
	               .src = LIST(9),
	               .src_strides = LIST(-1),
	               .dst = LIST(7),
	               .before = LIST(-2) },
	  .axis = { { 7, 0, 7, 2, -2 } },
	  .shift = -4,
	  .count = 7,
	  .bytes = 28 },
	{ .name = "crop to one keeps the shift",
	  .request = { .dtype = DTYPE_INT8, .src = LIST(9), .dst = LIST(1), .before = LIST(-8) },
	  .axis = { { 1, 0, 1, 0, 1 } },
	  .shift = 8,
	  .count = 1,
	  .bytes = 2 },
	{ .name = "crop one side, pad the other",
	  .request = { .dtype = DTYPE_INT8,
	               .src = LIST(9),
	               .dst = LIST(10),
	               .before = LIST(-2),
	               .after = LIST(3),
	               .mode = PAD_MODE_EDGE },
	  .axis = { { 10, 0, 7, 1, 1 } },
	  .shift = 2,
	  .count = 10,
	  .bytes = 17 },
	{ .name = "broadcast",
	  .request = { .dtype = DTYPE_INT8, .src = LIST(9, 2), .src_strides = LIST(0, 1), .dst = LIST(9, 2) },
	  .axis = { { 9, 0, 9, 2, 0 }, { 2, 0, 2, 1, 1 } },
	  .count = 18,
	  .bytes = 36 },
	{ .name = "empty",
	  .request = { .dtype = DTYPE_FLOAT32, .src = LIST(3, 0), .dst = LIST(3, 0) },
	  .axis = { { 3, 0, 3, 0, 0 }, { 0 } } },
	{ .name = "empty, padded beside",
	  .request = { .dtype = DTYPE_FLOAT32,
	               .src = LIST(3, 0),
	               .dst = LIST(4, 0),
	               .before = LIST(1, 0),
	               .mode = PAD_MODE_EDGE },
	  .axis = { { 4, 1, 3, 0, 0 }, { 0 } } },
	{ .name = "empty, filled",
	  .request = { .dtype = DTYPE_FLOAT32,
	               .src = LIST(0),
	               .dst = LIST(3),
	               .before = LIST(1),
	               .after = LIST(2) },
	  .axis = { { 3, 1, 0, 4, 0 } },
	  .count = 3,
	  .bytes = 12 },
	{ .name = "strides of an empty source are free",
	  .request = { .dtype = DTYPE_FLOAT32,
	               .src = LIST(0, 4),
	               .src_strides = LIST(1, INT64_MAX),
	               .dst = LIST(1, 3),
	               .before = LIST(1, -1) },
	  .axis = { { 1, 1, 0, 0, 0 }, { 3, 0, 3, 4, 0 } },
	  .count = 3,
	  .bytes = 12 },
	{ .name = "destination of one element has any stride",
	  .request = { .dtype = DTYPE_INT8, .src = LIST(1), .dst = LIST(1), .dst_strides = LIST(INT64_MIN) },
	  .axis = { { 1, 0, 1, 0, 0 } },
	  .count = 1,
	  .bytes = 2 },
	{ .name = "value that is zero with wrap",
	  .request = { .dtype = DTYPE_INT8,
	               .src = LIST(2),
	               .dst = LIST(2),
	               .mode = PAD_MODE_WRAP,
	               .value = { .kind = SCALAR_FLOATING } },
	  .axis = { { 2, 0, 2, 1, 1 } },
	  .count = 2,
	  .bytes = 4 },
	{ .name = "gapped destination that interleaves with itself",
	  .request = { .dtype = DTYPE_INT8, .src = LIST(2, 3), .dst = LIST(2, 3), .dst_strides = LIST(3, 2) },
	  .axis = { { 2, 0, 2, 3, 3 }, { 3, 0, 3, 2, 1 } },
	  .count = 6,
	  .bytes = 12 },
};

ParameterizedTestParameters(transform, accepted)
{
	return cr_make_param_array(struct accepted_row, accepted_rows,
	                           sizeof accepted_rows / sizeof *accepted_rows);
}

ParameterizedTest(struct accepted_row *row, transform, accepted)
{
	struct transform_spec spec;
	struct transform t;
	struct error err = { 0 };

	request_spec(&row->request, &spec);
	cr_assert_eq(transform_init(&t, &spec, &err), 0, "%s: %s", row->name, err.message);
	cr_assert_eq(t.element, dtype_size(row->request.dtype), "%s", row->name);
	for (int d = 0; d < t.rank; d++) {
		cr_assert_eq(t.axis[d].extent, row->axis[d].extent, "%s: extent %d", row->name, d);
		cr_assert_eq(t.axis[d].before, row->axis[d].before, "%s: before %d", row->name, d);
		cr_assert_eq(t.axis[d].source, row->axis[d].source, "%s: source %d", row->name, d);
		cr_assert_eq(t.axis[d].dst_stride, row->axis[d].dst_stride, "%s: dst_stride %d", row->name,
		             d);
		cr_assert_eq(t.axis[d].src_stride, row->axis[d].src_stride, "%s: src_stride %d", row->name,
		             d);
	}
	cr_assert_eq(t.src_shift, row->shift, "%s: shift %ld", row->name, (long)t.src_shift);
	cr_assert_eq(t.count, row->count, "%s: count %ld", row->name, (long)t.count);
	cr_assert_eq(t.bytes, row->bytes, "%s: bytes %ld", row->name, (long)t.bytes);
}

/* ---- Places ------------------------------------------------------------------------------------------ */

struct place_row {
	char name[64];
	struct request request;
	struct tensor_place dst, src;
	int status;
	char message[160];
};

#define PLACE(memory, base, offset, size)               \
	{                                               \
		{ memory, 0 }, base, offset, size, NULL \
	}
#define COPY_100                                                           \
	{                                                                  \
		.dtype = DTYPE_FLOAT32, .src = LIST(100), .dst = LIST(100) \
	}
#define INTERLEAVED                                                                               \
	{                                                                                         \
		.dtype = DTYPE_FLOAT32, .src = LIST(50), .src_strides = LIST(2), .dst = LIST(50), \
		.dst_strides = LIST(2)                                                            \
	}

static struct place_row place_rows[] = {
	{ .name = "two memories",
	  .request = COPY_100,
	  .dst = PLACE(1, 0, 0, 400),
	  .src = PLACE(2, 0, 0, 400) },
	{ .name = "one memory, side by side",
	  .request = COPY_100,
	  .dst = PLACE(1, 0, 0, 400),
	  .src = PLACE(1, 400, 0, 400) },
	{ .name = "one memory, before",
	  .request = COPY_100,
	  .dst = PLACE(1, 400, 8, 408),
	  .src = PLACE(1, 0, 8, 408) },
	{ .name = "interleaved",
	  .request = INTERLEAVED,
	  .dst = PLACE(1, 0, 0, 400),
	  .src = PLACE(1, 0, 4, 400) },
	{ .name = "source leaves",
	  .request = COPY_100,
	  .dst = PLACE(1, 0, 0, 400),
	  .src = PLACE(2, 0, 0, 256),
	  .status = STATUS_OUT_OF_RANGE,
	  .message = "src: bytes [0, 400) exceed a region of 256 bytes" },
	{ .name = "destination leaves",
	  .request = COPY_100,
	  .dst = PLACE(1, 0, 1, 400),
	  .src = PLACE(2, 0, 0, 256),
	  .status = STATUS_OUT_OF_RANGE,
	  .message = "dst: bytes [1, 401) exceed a region of 400 bytes" },
	{ "offset near 2^64", COPY_100, PLACE(1, 0, UINT64_MAX - 3, 400), PLACE(2, 0, 0, 400),
	  STATUS_OUT_OF_RANGE, "dst: offset 18446744073709551612 is past the end of a region of 400 bytes" },
	{ .name = "itself",
	  .request = COPY_100,
	  .dst = PLACE(1, 0, 0, 400),
	  .src = PLACE(1, 0, 0, 400),
	  .status = STATUS_OVERLAP,
	  .message = "dst: it shares bytes with src, which starts 0 bytes after it in the same memory" },
	{ .name = "by one byte",
	  .request = COPY_100,
	  .dst = PLACE(1, 0, 0, 1000),
	  .src = PLACE(1, 300, 99, 1000),
	  .status = STATUS_OVERLAP,
	  .message = "dst: it shares bytes with src, which starts 399 bytes after it in the same memory" },
	{ .name = "interleaved and misaligned",
	  .request = INTERLEAVED,
	  .dst = PLACE(1, 8, 0, 400),
	  .src = PLACE(1, 0, 3, 400),
	  .status = STATUS_OVERLAP,
	  .message = "dst: it shares bytes with src, which starts 5 bytes before it in the same memory" },
	{ .name = "empty, anywhere within",
	  .request = { .dtype = DTYPE_INT8, .src = LIST(0), .dst = LIST(0) },
	  .dst = PLACE(1, 0, 8, 8),
	  .src = PLACE(1, 0, 8, 8) },
};

ParameterizedTestParameters(transform, places)
{
	return cr_make_param_array(struct place_row, place_rows, sizeof place_rows / sizeof *place_rows);
}

ParameterizedTest(struct place_row *row, transform, places)
{
	struct transform_spec spec;
	struct transform t;
	struct error err = { 0 };

	request_spec(&row->request, &spec);
	cr_assert_eq(transform_init(&t, &spec, &err), 0, "%s: %s", row->name, err.message);
	const struct transform_sides sides = transform_sides(&t);

	cr_assert_eq(transform_check_sides(&sides, &row->dst, &row->src, &err), row->status, "%s: %s",
	             row->name, err.message);
	cr_assert_str_eq(err.message, row->message, "%s: %s", row->name, err.message);
}

Test(transform, perm_of_rank_0)
{
	struct transform_spec spec = { .src = { .dtype = DTYPE_INT8 }, .dst = { .dtype = DTYPE_INT8 } };
	struct transform t;
	struct error err;

	cr_assert_eq(transform_init(&t, &spec, &err), 0, "empty lists");
	spec.n_perm = 1;
	cr_assert_eq(transform_init(&t, &spec, &err), STATUS_INVALID_ARGUMENT);
	cr_assert_str_eq(err.message, "perm: length 1, but src has rank 0; each dimension needs one entry");
}
