/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which conversions exist, in which type they compute, and how operands relate to axes. */
#include <criterion/criterion.h>
#include <limits.h>
#include <string.h>

#include "kernels/transform/transform.h"

#define NONE                         \
	{                            \
		.kind = OPERAND_NONE \
	}
#define NUMBER                         \
	{                              \
		.kind = OPERAND_NUMBER \
	}
#define TENSOR(type, rank_, ...)                                                                         \
	{                                                                                                \
		.kind = OPERAND_TENSOR, .layout = {.dtype = DTYPE_##type, .rank = (rank_), __VA_ARGS__ } \
	}

static const int64_t shape[] = { 4, 6, 8 }, cropped[] = { 0, 2, 1 };

/* ---- What is refused -------------------------------------------------------------------------------- */

static const struct refused {
	struct conversion_spec spec;
	enum dtype to, from;
	const char *message;
} refused[] = {
	{ { .scale = NUMBER }, DTYPE_FLOAT32, DTYPE_FLOAT32, "scale: only with cast" },
	{ { .bias = NUMBER }, DTYPE_FLOAT32, DTYPE_FLOAT32, "bias: only with cast" },
	{ { .is_given = true },
	  DTYPE_FLOAT32,
	  DTYPE_COMPLEX64,
	  "cast: complex64 to float32; complex types are not converted, because a real type has no imaginary part" },
	{ { .is_given = true },
	  DTYPE_COMPLEX128,
	  DTYPE_COMPLEX128,
	  "cast: complex128 to complex128; complex types are not converted, because a real type has no imaginary part" },
	{ { .is_given = true, .scale = TENSOR(FLOAT16, 0) },
	  DTYPE_FLOAT32,
	  DTYPE_FLOAT16,
	  "scale.dtype: float16, but it must be float32 or float64" },
	{ { .is_given = true, .bias = TENSOR(FLOAT32, 4, .shape = { 1, 1, 1, 1 }) },
	  DTYPE_FLOAT32,
	  DTYPE_FLOAT16,
	  "bias.shape: rank 4, but the permuted source has rank 3; it does not broadcast" },
	{ { .is_given = true, .scale = TENSOR(FLOAT32, 2, .shape = { 6, 4 }) },
	  DTYPE_FLOAT32,
	  DTYPE_FLOAT16,
	  "scale.shape: dimension 1 is 4, but dimension 2 of the permuted source is 8; it does not broadcast" },
};

Test(conversion, refusals)
{
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		const struct refused *row = &refused[i];
		struct conversion conversion = { 0 };
		struct error err = { 0 };

		cr_expect_eq(
		    conversion_init(&conversion, &row->spec, row->to, row->from, 3, shape, cropped, &err),
		    STATUS_INVALID_ARGUMENT, "%s", row->message);
		cr_expect_str_eq(err.message, row->message);
	}
}

/* ---- What is calculated in -------------------------------------------------------------------------- */

static const struct chosen {
	enum dtype to, from;
	struct operand_spec scale;
	enum cast cast;
	bool is;
	enum arithmetic arithmetic;
	bool is_lossy, wraps;
} chosen[] = {
	{ DTYPE_BFLOAT16, DTYPE_FLOAT32, NONE, CAST_SATURATE, true, ARITHMETIC_FLOAT32 },
	{ DTYPE_FLOAT8_E5M2, DTYPE_UINT16, NONE, CAST_SATURATE, true, ARITHMETIC_FLOAT32 },
	{ DTYPE_FLOAT32, DTYPE_INT32, NONE, CAST_SATURATE, true, ARITHMETIC_FLOAT64 },
	{ DTYPE_UINT32, DTYPE_FLOAT16, NONE, CAST_SATURATE, true, ARITHMETIC_FLOAT64 },
	{ DTYPE_FLOAT64, DTYPE_UINT8, NONE, CAST_SATURATE, true, ARITHMETIC_FLOAT64 },
	{ DTYPE_INT8, DTYPE_INT64, NONE, CAST_SATURATE, true, ARITHMETIC_NONE },
	{ DTYPE_FLOAT32, DTYPE_INT64, NONE, CAST_SATURATE, true, ARITHMETIC_FLOAT64, .is_lossy = true },
	{ DTYPE_BFLOAT16, DTYPE_UINT64, NONE, CAST_EXACT, true, ARITHMETIC_FLOAT64, .is_lossy = true },
	{ DTYPE_FLOAT32, DTYPE_INT64, NUMBER, CAST_SATURATE, true, ARITHMETIC_FLOAT64 },
	{ DTYPE_FLOAT64, DTYPE_INT64, NONE, CAST_SATURATE, true, ARITHMETIC_FLOAT64 },
	{ DTYPE_FLOAT16, DTYPE_BFLOAT16, NONE, CAST_SATURATE, true, ARITHMETIC_FLOAT32, .is_lossy = true },
	{ DTYPE_BOOL, DTYPE_UINT8, NONE, CAST_EXACT, true, ARITHMETIC_NONE },
	{ DTYPE_INT8, DTYPE_INT64, NUMBER, CAST_SATURATE, true, ARITHMETIC_FLOAT64 },
	{ DTYPE_INT8, DTYPE_INT16, NUMBER, CAST_SATURATE, true, ARITHMETIC_FLOAT32 },
	/* These change nothing, so elements are moved as they are. */
	{ DTYPE_INT64, DTYPE_INT64, NONE, CAST_SATURATE, false, ARITHMETIC_NONE },
	{ DTYPE_FLOAT32, DTYPE_FLOAT32, NONE, CAST_EXACT, false, ARITHMETIC_FLOAT32 },
	{ DTYPE_FLOAT8_E4M3FN, DTYPE_FLOAT8_E4M3FN, NONE, CAST_SATURATE, false, ARITHMETIC_FLOAT32 },
	{ DTYPE_FLOAT32, DTYPE_FLOAT32, NONE, CAST_IEEE, false, ARITHMETIC_FLOAT32 },
	{ DTYPE_INT8, DTYPE_UINT64, NONE, CAST_IEEE, true, ARITHMETIC_NONE, .wraps = true },
	{ DTYPE_INT8, DTYPE_UINT64, NUMBER, CAST_IEEE, true, ARITHMETIC_FLOAT64 },
	/* This clamps infinities. */
	{ DTYPE_FLOAT32, DTYPE_FLOAT32, NONE, CAST_SATURATE, true, ARITHMETIC_FLOAT32 },
};

Test(conversion, arithmetic)
{
	for (size_t i = 0; i < sizeof(chosen) / sizeof(chosen[0]); i++) {
		const struct chosen *row = &chosen[i];
		const struct conversion_spec spec = { .is_given = true,
			                              .cast = row->cast,
			                              .scale = row->scale };
		struct conversion conversion = { 0 };
		struct error err = { 0 };

		cr_assert_eq(conversion_init(&conversion, &spec, row->to, row->from, 3, shape, cropped, &err),
		             0, "%s", err.message);
		cr_expect_eq(conversion.is, row->is, "%s to %s", dtype_names[row->from],
		             dtype_names[row->to]);
		cr_expect_eq(conversion.arithmetic, row->arithmetic, "%s to %s", dtype_names[row->from],
		             dtype_names[row->to]);
		cr_expect_eq(conversion_wraps(&conversion), row->wraps, "%s to %s", dtype_names[row->from],
		             dtype_names[row->to]);
		cr_expect_eq(conversion.is_lossy, row->is_lossy, "%s to %s", dtype_names[row->from],
		             dtype_names[row->to]);
	}
}

/* ---- How operands lie ------------------------------------------------------------------------------- */

static const struct lying {
	const char *name;
	struct operand_spec scale;
	int64_t stride[3], shift;
} lying[] = {
	{ "a number", NUMBER, { 0, 0, 0 }, 0 },
	{ "a tensor of rank 0", TENSOR(FLOAT32, 0), { 0, 0, 0 }, 0 },
	{ "by the last axis", TENSOR(FLOAT32, 1, .shape = { 8 }, .stride = { 1 }), { 0, 0, 4 }, 4 },
	{ "by the one before", TENSOR(FLOAT64, 2, .shape = { 6, 1 }, .stride = { 1, 1 }), { 0, 8, 0 }, 16 },
	{ "by all, backwards",
	  TENSOR(FLOAT32, 3, .shape = { 4, 6, 8 }, .stride = { 48, 8, -1 }),
	  { 192, 32, -4 },
	  64 - 4 },
	{ "by strides of 0",
	  TENSOR(FLOAT32, 3, .shape = { 4, 6, 8 }, .stride = { 1, 0, 0 }),
	  { 4, 0, 0 },
	  0 },
};

Test(conversion, operands)
{
	for (size_t i = 0; i < sizeof(lying) / sizeof(lying[0]); i++) {
		const struct lying *row = &lying[i];
		const struct conversion_spec spec = { .is_given = true, .scale = row->scale };
		struct conversion conversion = { 0 };
		struct error err = { 0 };

		cr_assert_eq(conversion_init(&conversion, &spec, DTYPE_FLOAT16, DTYPE_FLOAT32, 3, shape,
		                             cropped, &err),
		             0, "%s: %s", row->name, err.message);
		cr_expect_eq(conversion.scale.kind, row->scale.kind, "%s", row->name);
		cr_expect_eq(conversion.scale.shift, row->shift, "%s: shift %lld", row->name,
		             (long long)conversion.scale.shift);
		for (int d = 0; d < 3; d++)
			cr_expect_eq(conversion.scale.stride[d], row->stride[d], "%s: stride %d", row->name,
			             d);
	}
}

/* Callers do not set the layouts of such operands; a sanitizer reports if they are read. */
Test(conversion, operands_without_a_layout)
{
	static const enum operand_kind kinds[] = { OPERAND_NONE, OPERAND_NUMBER };

	for (int i = 0; i < 2; i++) {
		struct conversion_spec spec;
		struct conversion conversion;
		struct error err = { 0 };

		memset(&spec, 0x80, sizeof spec);
		spec.scale.layout.rank = spec.bias.layout.rank =
		    INT_MIN; /* overflows if anything is subtracted */
		spec.is_given = true;
		spec.cast = CAST_SATURATE;
		spec.scale.kind = kinds[i];
		spec.bias.kind = OPERAND_NONE;
		spec.amax.is_given = false;
		cr_assert_eq(conversion_init(&conversion, &spec, DTYPE_FLOAT16, DTYPE_FLOAT32, 3, shape,
		                             cropped, &err),
		             0, "%s", err.message);
		cr_expect_eq(conversion.scale.kind, kinds[i]);
		cr_expect_eq(conversion.bias.kind, OPERAND_NONE);
	}
}
