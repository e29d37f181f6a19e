/* SPDX-License-Identifier: Apache-2.0 */
/* Tests pad values: every 8- and 16-bit pattern, and every midpoint between neighbours, is compared with a
 * decoder that goes the other way. Also tests the ranges of integers, and the messages for values outside of
 * them. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <string.h>

#include "proto/scalar.h"

/* ---- Small floating types, exhaustively ---------------------------------------------------------------- */

struct format_row {
	enum dtype dtype;
	int exponent_bits, fraction_bits;
	uint32_t largest;  /* bit pattern of the largest number */
	uint32_t overflow; /* bit pattern of what rounds to beyond the largest */
	uint32_t nan;
};

static struct format_row format_rows[] = {
	{ .dtype = DTYPE_FLOAT8_E4M3FN,
	  .exponent_bits = 4,
	  .fraction_bits = 3,
	  .largest = 0x7e,
	  .overflow = 0x7f,
	  .nan = 0x7f },
	{ .dtype = DTYPE_FLOAT8_E5M2,
	  .exponent_bits = 5,
	  .fraction_bits = 2,
	  .largest = 0x7b,
	  .overflow = 0x7c,
	  .nan = 0x7e },
	{ .dtype = DTYPE_FLOAT16,
	  .exponent_bits = 5,
	  .fraction_bits = 10,
	  .largest = 0x7bff,
	  .overflow = 0x7c00,
	  .nan = 0x7e00 },
	{ .dtype = DTYPE_BFLOAT16,
	  .exponent_bits = 8,
	  .fraction_bits = 7,
	  .largest = 0x7f7f,
	  .overflow = 0x7f80,
	  .nan = 0x7fc0 },
};

/* Returns the positive number of a finite pattern, and of the pattern one past the largest as if that were
 * finite. */
static double decode(const struct format_row *f, uint32_t pattern)
{
	uint32_t exponent = pattern >> f->fraction_bits;
	double fraction = pattern & ((1u << f->fraction_bits) - 1);
	int bias = (1 << (f->exponent_bits - 1)) - 1;

	fraction /= 1 << f->fraction_bits;
	return exponent ? ldexp(1 + fraction, (int)exponent - bias) : ldexp(fraction, 1 - bias);
}

static uint32_t encode(const struct format_row *f, double re)
{
	struct scalar value = { .kind = SCALAR_FLOATING, .re = re };
	uint8_t bytes[TENSOR_MAX_ELEMENT] = { 0 };
	struct error err;

	cr_assert_eq(scalar_encode(&value, f->dtype, bytes, "value", &err), 0);
	return dtype_size(f->dtype) == 1 ? bytes[0] : bytes[0] | (uint32_t)bytes[1] << 8;
}

ParameterizedTestParameters(scalar, small_floats)
{
	return cr_make_param_array(struct format_row, format_rows, sizeof format_rows / sizeof *format_rows);
}

ParameterizedTest(struct format_row *row, scalar, small_floats)
{
	const char *name = dtype_names[row->dtype];
	uint32_t sign = 1u << (row->exponent_bits + row->fraction_bits);

	for (uint32_t p = 0; p <= row->largest; p++) {
		double at = decode(row, p), next = decode(row, p + 1), middle = (at + next) / 2;
		uint32_t after = p == row->largest ? row->overflow : p + 1;

		cr_assert_eq(encode(row, at), p, "%s: 0x%x", name, p);
		cr_assert_eq(encode(row, -at), p | sign, "%s: -0x%x", name, p);
		cr_assert_eq(encode(row, middle), p & 1 ? after : p, "%s: midpoint above 0x%x", name, p);
		cr_assert_eq(encode(row, -middle), (p & 1 ? after : p) | sign, "%s: midpoint below -0x%x",
		             name, p);
		/* The last bit of a double next to the midpoint decides; rounding to a float first would lose
		 * it. */
		cr_assert_eq(encode(row, nextafter(middle, 0)), p, "%s: just below the midpoint above 0x%x",
		             name, p);
		cr_assert_eq(encode(row, nextafter(middle, INFINITY)), after,
		             "%s: just above the midpoint above 0x%x", name, p);
	}
	cr_assert_eq(encode(row, 1e300), row->overflow, "%s: 1e300", name);
	cr_assert_eq(encode(row, -1e300), row->overflow | sign, "%s: -1e300", name);
	cr_assert_eq(encode(row, INFINITY), row->overflow, "%s: infinity", name);
	cr_assert_eq(encode(row, -INFINITY), row->overflow | sign, "%s: -infinity", name);
	cr_assert_eq(encode(row, NAN), row->nan, "%s: nan", name);
	cr_assert_eq(encode(row, copysign(NAN, -1)), row->nan | sign, "%s: -nan", name);
	cr_assert_eq(encode(row, 4.9e-324), 0, "%s: the smallest double", name);
	cr_assert_eq(encode(row, -0.0), sign, "%s: -0", name);
}

/* ---- One value at a time ---------------------------------------------------------------------------------
 */

struct value_row {
	char name[32];
	enum dtype dtype;
	struct scalar value;
	uint8_t bytes[TENSOR_MAX_ELEMENT];
	char refusal[120];
};

#define UNSIGNED(x)                               \
	{                                         \
		.kind = SCALAR_UNSIGNED, .u = (x) \
	}
#define SIGNED(x)                               \
	{                                       \
		.kind = SCALAR_SIGNED, .i = (x) \
	}
#define FLOATING(x)                                \
	{                                          \
		.kind = SCALAR_FLOATING, .re = (x) \
	}
#define COMPLEX(x, y)                                        \
	{                                                    \
		.kind = SCALAR_COMPLEX, .re = (x), .im = (y) \
	}
#define B(...)        .bytes = { __VA_ARGS__ }
#define REFUSED(text) .refusal = text

static struct value_row value_rows[] = {
	{ .name = "default", .dtype = DTYPE_COMPLEX128, .value = { 0 }, B(0) },
	{ .name = "uint8 largest", .dtype = DTYPE_UINT8, .value = UNSIGNED(255), B(255) },
	{ .name = "uint8 by float", .dtype = DTYPE_UINT8, .value = FLOATING(7.0), B(7) },
	{ .name = "uint8 -0.0", .dtype = DTYPE_UINT8, .value = FLOATING(-0.0), B(0) },
	{ .name = "int8 smallest", .dtype = DTYPE_INT8, .value = SIGNED(-128), B(0x80) },
	{ .name = "int16", .dtype = DTYPE_INT16, .value = SIGNED(-2), B(0xfe, 0xff) },
	{ .name = "uint16", .dtype = DTYPE_UINT16, .value = UNSIGNED(0x1234), B(0x34, 0x12) },
	{ .name = "int32", .dtype = DTYPE_INT32, .value = FLOATING(-2147483648.0), B(0, 0, 0, 0x80) },
	{ .name = "uint32", .dtype = DTYPE_UINT32, .value = UNSIGNED(0xfffffffe), B(0xfe, 0xff, 0xff, 0xff) },
	{ .name = "int64 smallest",
	  .dtype = DTYPE_INT64,
	  .value = SIGNED(INT64_MIN),
	  B(0, 0, 0, 0, 0, 0, 0, 0x80) },
	{ .name = "int64 smallest by float",
	  .dtype = DTYPE_INT64,
	  .value = FLOATING(-0x1p63),
	  B(0, 0, 0, 0, 0, 0, 0, 0x80) },
	{ .name = "uint64 largest",
	  .dtype = DTYPE_UINT64,
	  .value = UNSIGNED(UINT64_MAX),
	  B(255, 255, 255, 255, 255, 255, 255, 255) },
	{ .name = "bool true", .dtype = DTYPE_BOOL, .value = UNSIGNED(1), B(1) },
	{ .name = "bool by complex", .dtype = DTYPE_BOOL, .value = COMPLEX(1, 0), B(1) },
	{ .name = "float32 1.5", .dtype = DTYPE_FLOAT32, .value = FLOATING(1.5), B(0, 0, 0xc0, 0x3f) },
	{ .name = "float32 0.1", .dtype = DTYPE_FLOAT32, .value = FLOATING(0.1), B(0xcd, 0xcc, 0xcc, 0x3d) },
	{ .name = "float32 subnormal", .dtype = DTYPE_FLOAT32, .value = FLOATING(0x1p-149), B(1) },
	{ .name = "float32 overflow", .dtype = DTYPE_FLOAT32, .value = FLOATING(-1e39), B(0, 0, 0x80, 0xff) },
	{ .name = "float32 integer", .dtype = DTYPE_FLOAT32, .value = SIGNED(-3), B(0, 0, 0x40, 0xc0) },
	{ .name = "float64 0.1",
	  .dtype = DTYPE_FLOAT64,
	  .value = FLOATING(0.1),
	  B(0x9a, 0x99, 0x99, 0x99, 0x99, 0x99, 0xb9, 0x3f) },
	{ .name = "float64 integer",
	  .dtype = DTYPE_FLOAT64,
	  .value = UNSIGNED(1),
	  B(0, 0, 0, 0, 0, 0, 0xf0, 0x3f) },
	/* 2^64 - 1 rounds up to 2^64. */
	{ .name = "float64 large integer",
	  .dtype = DTYPE_FLOAT64,
	  .value = UNSIGNED(UINT64_MAX),
	  B(0, 0, 0, 0, 0, 0, 0xf0, 0x43) },
	/* 2^63 + 2^55 + 1 lies above the midpoint of two bfloat16; rounded to a double first, it would tie to
	 * even. */
	{ .name = "bfloat16 rounds once",
	  .dtype = DTYPE_BFLOAT16,
	  .value = UNSIGNED(0x8080000000000001),
	  B(0x01, 0x5f) },
	{ .name = "float16 integer overflow", .dtype = DTYPE_FLOAT16, .value = UNSIGNED(65520), B(0, 0x7c) },
	{ .name = "float16 by complex", .dtype = DTYPE_FLOAT16, .value = COMPLEX(1, -0.0), B(0, 0x3c) },
	{ .name = "complex64",
	  .dtype = DTYPE_COMPLEX64,
	  .value = COMPLEX(1, -2),
	  B(0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0) },
	{ .name = "complex64 by real", .dtype = DTYPE_COMPLEX64, .value = FLOATING(1), B(0, 0, 0x80, 0x3f) },
	{ .name = "complex128",
	  .dtype = DTYPE_COMPLEX128,
	  .value = COMPLEX(1, 2),
	  B(0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0, 0, 0, 0, 0, 0, 0, 0x40) },
	{ .name = "uint8 over",
	  .dtype = DTYPE_UINT8,
	  .value = UNSIGNED(300),
	  REFUSED("v: 300 is not in the range of uint8, 0 to 255") },
	{ .name = "uint8 negative",
	  .dtype = DTYPE_UINT8,
	  .value = SIGNED(-1),
	  REFUSED("v: -1 is not in the range of uint8, 0 to 255") },
	{ .name = "int8 over",
	  .dtype = DTYPE_INT8,
	  .value = UNSIGNED(128),
	  REFUSED("v: 128 is not in the range of int8, -128 to 127") },
	{ .name = "int8 under",
	  .dtype = DTYPE_INT8,
	  .value = FLOATING(-129),
	  REFUSED("v: -129 is not in the range of int8, -128 to 127") },
	{ .name = "bool 2",
	  .dtype = DTYPE_BOOL,
	  .value = UNSIGNED(2),
	  REFUSED("v: 2 is not in the range of bool, 0 to 1") },
	{ .name = "int32 fraction",
	  .dtype = DTYPE_INT32,
	  .value = FLOATING(1.5),
	  REFUSED("v: 1.5 is not an integer, but int32 holds integers only") },
	{ .name = "int32 nan",
	  .dtype = DTYPE_INT32,
	  .value = FLOATING(NAN),
	  REFUSED("v: nan is not an integer, but int32 holds integers only") },
	{ .name = "uint64 infinity",
	  .dtype = DTYPE_UINT64,
	  .value = FLOATING(INFINITY),
	  REFUSED("v: inf is not an integer, but uint64 holds integers only") },
	{ .name = "uint64 2^64",
	  .dtype = DTYPE_UINT64,
	  .value = FLOATING(0x1p64),
	  REFUSED("v: 1.84467440737096e+19 is not in the range of uint64, 0 to 18446744073709551615") },
	{ .name = "int64 2^63",
	  .dtype = DTYPE_INT64,
	  .value = FLOATING(0x1p63),
	  REFUSED("v: 9.22337203685478e+18 is not in the range of int64, -9223372036854775808 to "
	          "9223372036854775807") },
	{ .name = "float32 complex",
	  .dtype = DTYPE_FLOAT32,
	  .value = COMPLEX(1, 2),
	  REFUSED("v: [1, 2] has an imaginary part, but float32 is a real type") },
	{ .name = "int8 complex nan",
	  .dtype = DTYPE_INT8,
	  .value = COMPLEX(1, NAN),
	  REFUSED("v: [1, nan] has an imaginary part, but int8 is a real type") },
};

ParameterizedTestParameters(scalar, values)
{
	return cr_make_param_array(struct value_row, value_rows, sizeof value_rows / sizeof *value_rows);
}

ParameterizedTest(struct value_row *row, scalar, values)
{
	uint8_t bytes[TENSOR_MAX_ELEMENT];
	uint32_t size = dtype_size(row->dtype);
	struct error err = { 0 };
	int status;

	memset(bytes, 0x77, sizeof bytes);
	status = scalar_encode(&row->value, row->dtype, bytes, "v", &err);
	cr_assert_eq(status, row->refusal[0] ? STATUS_INVALID_ARGUMENT : 0, "%s: %s", row->name, err.message);
	cr_assert_str_eq(err.message, row->refusal, "%s: %s", row->name, err.message);
	if (status)
		return;
	for (uint32_t i = 0; i < TENSOR_MAX_ELEMENT; i++)
		cr_assert_eq(bytes[i], i < size ? row->bytes[i] : 0x77, "%s: byte %u is 0x%02x", row->name, i,
		             bytes[i]);
}

/* The compiler's own conversion gives the expected value. */
Test(scalar, float32_is_the_compilers)
{
	uint64_t bits = 1;

	for (int i = 0; i < 1000000; i++) {
		struct scalar value = { .kind = SCALAR_FLOATING };
		uint8_t bytes[TENSOR_MAX_ELEMENT];
		struct error err;
		float want, got;

		bits = bits * UINT64_C(6364136223846793005) + 1442695040888963407;
		/* Exponents are around float32's range, and mantissas often short so that ties occur. */
		value.re = ldexp((double)(bits >> (i & 1 ? 38 : 11)), (int)(bits % 320) - 200);
		want = (float)value.re;
		cr_assert_eq(scalar_encode(&value, DTYPE_FLOAT32, bytes, "v", &err), 0);
		memcpy(&got, bytes, sizeof got);
		cr_assert(!memcmp(&got, &want, sizeof got), "%a: %a, not %a", value.re, got, want);
	}
}
