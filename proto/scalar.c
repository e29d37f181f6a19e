/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes a number as an element, with at most one rounding: integers and doubles are split into sign, 64-bit
 * significand and exponent, and rounded directly to the target format. */
#include "scalar.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct number_text {
	char s[80];
};

static int encode_integer(const struct scalar *value, enum dtype dtype, uint8_t *bytes, const char *name,
                          struct error *err);
static uint64_t float_bits(const struct scalar *value, double part, enum dtype dtype);
static struct number_text number_text(const struct scalar *value);
static void put_little_endian(uint8_t *bytes, uint64_t bits, uint32_t size);

int scalar_encode(const struct scalar *value, enum dtype dtype, uint8_t bytes[TENSOR_MAX_ELEMENT],
                  const char *name, struct error *err)
{
	struct scalar real = *value;
	uint32_t size = dtype_size(dtype);

	if (value->kind == SCALAR_COMPLEX && dtype_class(dtype) != DTYPE_CLASS_COMPLEX) {
		if (value->im != 0)
			return error_set(err, STATUS_INVALID_ARGUMENT,
			                 "%s: %s has an imaginary part, but %s is a real type", name,
			                 number_text(value).s, dtype_names[dtype]);
		real.kind = SCALAR_FLOATING;
	}
	switch (dtype_class(dtype)) {
	case DTYPE_CLASS_FLOATING:
		put_little_endian(bytes, float_bits(&real, real.re, dtype), size);
		return 0;
	case DTYPE_CLASS_COMPLEX: {
		enum dtype part = dtype == DTYPE_COMPLEX64 ? DTYPE_FLOAT32 : DTYPE_FLOAT64;
		struct scalar im = { .kind = SCALAR_FLOATING,
			             .re = value->kind == SCALAR_COMPLEX ? value->im : 0 };

		put_little_endian(bytes, float_bits(&real, real.re, part), size / 2);
		put_little_endian(bytes + size / 2, float_bits(&im, im.re, part), size / 2);
		return 0;
	}
	default:
		return encode_integer(&real, dtype, bytes, name, err);
	}
}

/* ---- Integers -------------------------------------------------------------------------------------- */

/* Sets the range of an integer type, [-*ret_below, *ret_above]. */
static void integer_range(enum dtype dtype, uint64_t *ret_below, uint64_t *ret_above)
{
	uint32_t bits = 8 * dtype_size(dtype);

	switch (dtype_class(dtype)) {
	case DTYPE_CLASS_BOOLEAN:
		*ret_below = 0;
		*ret_above = 1;
		break;
	case DTYPE_CLASS_SIGNED:
		*ret_below = UINT64_C(1) << (bits - 1);
		*ret_above = *ret_below - 1;
		break;
	default:
		*ret_below = 0;
		*ret_above = UINT64_MAX >> (64 - bits);
		break;
	}
}

static int encode_integer(const struct scalar *value, enum dtype dtype, uint8_t *bytes, const char *name,
                          struct error *err)
{
	uint64_t below, above, magnitude;
	bool negative, huge = false;

	switch (value->kind) {
	case SCALAR_UNSIGNED:
		negative = false;
		magnitude = value->u;
		break;
	case SCALAR_SIGNED:
		negative = value->i < 0;
		magnitude = negative ? -(uint64_t)value->i : (uint64_t)value->i;
		break;
	default:
		if (isinf(value->re) || trunc(value->re) != value->re)
			return error_set(err, STATUS_INVALID_ARGUMENT,
			                 "%s: %s is not an integer, but %s holds integers only", name,
			                 number_text(value).s, dtype_names[dtype]);
		negative = value->re < 0;
		huge = fabs(value->re) >= 0x1p64;
		magnitude = huge ? 0 : (uint64_t)fabs(value->re);
		break;
	}
	integer_range(dtype, &below, &above);
	if (huge || magnitude > (negative ? below : above))
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s: %s is not in the range of %s, %s%" PRIu64 " to %" PRIu64, name,
		                 number_text(value).s, dtype_names[dtype], below ? "-" : "", below, above);
	put_little_endian(bytes, negative ? -magnitude : magnitude, dtype_size(dtype));
	return 0;
}

/* ---- Floating types --------------------------------------------------------------------------------- */

struct float_format {
	int exponent_bits;
	int fraction_bits;
	/* false: only the pattern of all ones is NaN, and every pattern below it is a number */
	bool infinity;
};

static struct float_format float_format(enum dtype dtype)
{
	switch (dtype) {
	case DTYPE_FLOAT8_E4M3FN:
		return (struct float_format){ 4, 3, false };
	case DTYPE_FLOAT8_E5M2:
		return (struct float_format){ 5, 2, true };
	case DTYPE_FLOAT16:
		return (struct float_format){ 5, 10, true };
	case DTYPE_BFLOAT16:
		return (struct float_format){ 8, 7, true };
	case DTYPE_FLOAT32:
		return (struct float_format){ 8, 23, true };
	default:
		return (struct float_format){ 11, 52, true };
	}
}

/* Returns significand / 2^shift, rounded to nearest even. Only the 53-bit significands of doubles are ever
 * shifted by 64 or more; their quotient rounds to 0. */
static uint64_t shift_round(uint64_t significand, int shift)
{
	uint64_t kept, lost, half;

	if (shift <= 0)
		return significand << -shift;
	if (shift > 63)
		return 0;
	kept = significand >> shift;
	lost = significand - (kept << shift);
	half = UINT64_C(1) << (shift - 1);
	return kept + (lost > half || (lost == half && (kept & 1)));
}

/* Returns the bits of significand * 2^exponent, without a sign. The rounded significand is added to the
 * exponent field, so that a carry out of the fraction leads to the next binade, or to the first normal
 * number. */
static uint64_t magnitude_bits(struct float_format f, uint64_t significand, int exponent)
{
	uint64_t top = f.infinity ? ((UINT64_C(1) << f.exponent_bits) - 1) << f.fraction_bits
	                          : (UINT64_C(1) << (f.exponent_bits + f.fraction_bits)) - 1;
	int smallest = 2 - (1 << (f.exponent_bits - 1)); /* exponent of the first normal number */
	int binade;
	uint64_t bits;

	if (!significand)
		return 0;
	binade = 63 - __builtin_clzll(significand) + exponent;
	if (binade < smallest)
		binade = smallest;
	bits = ((uint64_t)(binade - smallest) << f.fraction_bits) +
	       shift_round(significand, binade - f.fraction_bits - exponent);
	return bits < top ? bits : top;
}

/* Returns the bits of an integer scalar, or of the double `part` of a floating or complex one. */
static uint64_t float_bits(const struct scalar *value, double part, enum dtype dtype)
{
	struct float_format f = float_format(dtype);
	uint64_t sign = UINT64_C(1) << (f.exponent_bits + f.fraction_bits);
	uint64_t quiet_nan, bits;
	int exponent;

	if (value->kind == SCALAR_UNSIGNED)
		return magnitude_bits(f, value->u, 0);
	if (value->kind == SCALAR_SIGNED)
		return value->i < 0 ? sign | magnitude_bits(f, -(uint64_t)value->i, 0)
		                    : magnitude_bits(f, (uint64_t)value->i, 0);
	if (dtype == DTYPE_FLOAT64) {
		memcpy(&bits, &part, sizeof bits);
		return bits;
	}
	quiet_nan = f.infinity ? (sign - 1) & ~((UINT64_C(1) << (f.fraction_bits - 1)) - 1) : sign - 1;
	if (isnan(part))
		bits = quiet_nan;
	else if (isinf(part))
		bits = f.infinity ? (sign - 1) & ~((UINT64_C(1) << f.fraction_bits) - 1) : quiet_nan;
	else {
		uint64_t significand = (uint64_t)ldexp(frexp(fabs(part), &exponent), 53);

		bits = magnitude_bits(f, significand, exponent - 53);
	}
	return signbit(part) ? sign | bits : bits;
}

/* ---- Text and bytes --------------------------------------------------------------------------------- */

static struct number_text number_text(const struct scalar *value)
{
	struct number_text text;

	switch (value->kind) {
	case SCALAR_UNSIGNED:
		snprintf(text.s, sizeof text.s, "%" PRIu64, value->u);
		break;
	case SCALAR_SIGNED:
		snprintf(text.s, sizeof text.s, "%" PRId64, value->i);
		break;
	case SCALAR_FLOATING:
		snprintf(text.s, sizeof text.s, "%.15g", value->re);
		break;
	case SCALAR_COMPLEX:
		snprintf(text.s, sizeof text.s, "[%.15g, %.15g]", value->re, value->im);
		break;
	}
	return text;
}

static void put_little_endian(uint8_t *bytes, uint64_t bits, uint32_t size)
{
	for (uint32_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)(bits >> 8 * i);
}
