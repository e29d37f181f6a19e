/* SPDX-License-Identifier: Apache-2.0 */
/* Written from "Conversion" in proto/protocol.md and from the definitions of the formats. */
#include "element.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

/* A floating-point type of 8 or 16 bits. */
struct format {
	int exponent_bits, fraction_bits;
	bool has_infinity;
};

/* A decoded element: an integer or a floating-point number. */
struct number {
	bool is_integer;
	__int128 i;
	double f;
};

static const struct format *format_of(enum dtype dtype)
{
	static const struct format half = { 5, 10, true }, brain = { 8, 7, true }, e4m3 = { 4, 3, false },
				   e5m2 = { 5, 2, true };

	switch (dtype) {
	case DTYPE_FLOAT16:
		return &half;
	case DTYPE_BFLOAT16:
		return &brain;
	case DTYPE_FLOAT8_E4M3FN:
		return &e4m3;
	case DTYPE_FLOAT8_E5M2:
		return &e5m2;
	default:
		return NULL;
	}
}

static bool is_integer(enum dtype dtype)
{
	return dtype_class(dtype) != DTYPE_CLASS_FLOATING;
}

static bool is_wide(enum dtype dtype)
{
	return dtype == DTYPE_FLOAT64 || (is_integer(dtype) && dtype_size(dtype) >= 4);
}

static bool has_infinity(enum dtype dtype)
{
	return !is_integer(dtype) && (!format_of(dtype) || format_of(dtype)->has_infinity);
}

static uint64_t bits_of(enum dtype dtype, const uint8_t *element)
{
	uint64_t bits = 0;

	for (uint32_t i = 0; i < dtype_size(dtype); i++)
		bits |= (uint64_t)element[i] << 8 * i;
	return bits;
}

static void put_bits(enum dtype dtype, uint64_t bits, uint8_t *element)
{
	for (uint32_t i = 0; i < dtype_size(dtype); i++)
		element[i] = (uint8_t)(bits >> 8 * i);
}

static uint64_t sign_of(enum dtype dtype)
{
	return UINT64_C(1) << (8 * dtype_size(dtype) - 1);
}

uint64_t element_magnitude(enum dtype dtype, const uint8_t *element)
{
	return bits_of(dtype, element) & ~sign_of(dtype);
}

bool element_has_one_nan(enum dtype dtype)
{
	return format_of(dtype) && dtype != DTYPE_FLOAT16;
}

/* ---- Formats ------------------------------------------------------------------------------------------ */

static double power(int exponent)
{
	double p = 1;

	for (; exponent > 0; exponent--)
		p *= 2;
	for (; exponent < 0; exponent++)
		p /= 2;
	return p;
}

static int least_exponent(const struct format *format)
{
	return 2 - (1 << (format->exponent_bits - 1));
}

static double decode(const struct format *format, uint64_t bits)
{
	const uint64_t fraction = bits & ((UINT64_C(1) << format->fraction_bits) - 1);
	const uint64_t most = (UINT64_C(1) << format->exponent_bits) - 1;
	const uint64_t exponent = bits >> format->fraction_bits & most;
	const double one = power(format->fraction_bits);
	double value = ((exponent ? one : 0) + (double)fraction) / one *
	               power(least_exponent(format) + (exponent ? (int)exponent - 1 : 0));

	if (exponent == most && format->has_infinity)
		value = fraction ? __builtin_nan("") : __builtin_inf();
	else if (exponent == most && fraction + 1 == (UINT64_C(1) << format->fraction_bits))
		value = __builtin_nan("");
	return bits >> (format->exponent_bits + format->fraction_bits) & 1 ? -value : value;
}

/* Returns the largest exponent with 2^exponent <= value, but at least `least`. value is positive. */
static int exponent_of(double value, int least)
{
	int exponent = least;

	for (double next = power(least + 1); next <= value && exponent < 1024; next *= 2)
		exponent++;
	return exponent;
}

static uint64_t round_even(double value)
{
	uint64_t n = (uint64_t)value;
	double rest = value - (double)n;

	return n + (rest > 0.5 || (rest == 0.5 && n % 2));
}

/* Encodes a magnitude. */
static uint64_t encode(const struct format *format, double value, bool saturates)
{
	const int m = format->fraction_bits, least = least_exponent(format);
	const uint64_t past = format->has_infinity ? ((UINT64_C(1) << format->exponent_bits) - 1) << m
	                                           : (UINT64_C(1) << (format->exponent_bits + m)) - 1;
	const double most = decode(format, past - 1);
	int exponent;
	uint64_t n;

	if (value != value)
		return format->has_infinity ? past | UINT64_C(1) << (m - 1) : past;
	if (value > most && saturates)
		return past - 1;
	if (value > 2 * most)
		return past;
	exponent = exponent_of(value, least);
	n = round_even(value / power(exponent - m)) + ((uint64_t)(exponent - least) << m);
	return n < past ? n : past;
}

/* Rounds an integer of any width once; the steps that follow are exact. */
static uint64_t encode_integer(const struct format *format, unsigned __int128 value, bool saturates)
{
	const int m = format->fraction_bits;
	int exponent = 0;

	while (value >> exponent > 1)
		exponent++;
	if (exponent <= m)
		return encode(format, (double)value, saturates);
	const unsigned __int128 one = (unsigned __int128)1 << (exponent - m), rest = value % one;
	unsigned __int128 n = value / one;

	n += rest > one / 2 || (rest == one / 2 && n % 2);
	return encode(format, (double)n * power(exponent - m), saturates);
}

/* ---- Numbers ------------------------------------------------------------------------------------------ */

static struct number load(enum dtype dtype, const uint8_t *element)
{
	struct number number = { .is_integer = is_integer(dtype) };
	uint64_t bits = bits_of(dtype, element);
	float single;

	if (dtype == DTYPE_BOOL) {
		number.i = bits != 0;
	} else if (number.is_integer) {
		number.i = bits;
		if (dtype_class(dtype) == DTYPE_CLASS_SIGNED && bits & sign_of(dtype))
			number.i -= (__int128)sign_of(dtype) * 2;
	} else if (format_of(dtype)) {
		number.f = decode(format_of(dtype), bits);
	} else if (dtype == DTYPE_FLOAT32) {
		memcpy(&single, element, sizeof single);
		number.f = (double)single;
	} else {
		memcpy(&number.f, element, sizeof number.f);
	}
	return number;
}

static void store_integer(enum dtype dtype, __int128 value, bool wraps, uint8_t *element)
{
	const bool is_signed = dtype_class(dtype) == DTYPE_CLASS_SIGNED;
	const __int128 least = is_signed ? -(__int128)sign_of(dtype) : 0;
	const __int128 most = dtype == DTYPE_BOOL ? 1 : least + 2 * (__int128)sign_of(dtype) - 1;

	if (dtype == DTYPE_BOOL)
		value = value != 0;
	else if (wraps)
		value =
		    (__int128)((unsigned __int128)(value - least) % (2 * (unsigned __int128)sign_of(dtype))) +
		    least;
	put_bits(dtype, (uint64_t)(value < least ? least : value > most ? most : value), element);
}

/* Drops the fraction. Beyond 65 bits, more than any type has, the result does not matter. */
static __int128 truncated(double value)
{
	if (value != value)
		return 0;
	return value > 0x1p65 ? (__int128)1 << 65 : value < -0x1p65 ? -((__int128)1 << 65) : (__int128)value;
}

static void store_floating(enum dtype dtype, double value, bool saturates, uint8_t *element)
{
	const double most = dtype == DTYPE_FLOAT32 ? (double)FLT_MAX : DBL_MAX;
	const bool is_negative = __builtin_signbit(value) != 0;
	double magnitude = is_negative ? -value : value;
	float single;

	if (format_of(dtype)) {
		put_bits(dtype,
		         encode(format_of(dtype), magnitude, saturates) | (is_negative ? sign_of(dtype) : 0),
		         element);
		return;
	}
	if (saturates && magnitude > most)
		magnitude = most;
	value = is_negative ? -magnitude : magnitude;
	single = (float)value;
	if (dtype == DTYPE_FLOAT32)
		memcpy(element, &single, sizeof single);
	else
		memcpy(element, &value, sizeof value);
}

static void store_whole(enum dtype dtype, __int128 value, bool saturates, uint8_t *element)
{
	const bool is_negative = value < 0;
	const double wide = (double)value;
	const float narrow = (float)value;

	if (format_of(dtype))
		put_bits(dtype,
		         encode_integer(format_of(dtype), (unsigned __int128)(is_negative ? -value : value),
		                        saturates) |
		             (is_negative ? sign_of(dtype) : 0),
		         element);
	else if (dtype == DTYPE_FLOAT32)
		memcpy(element, &narrow, sizeof narrow);
	else
		memcpy(element, &wide, sizeof wide);
}

static void store(enum dtype dtype, const struct number *number, enum cast cast, uint8_t *element)
{
	const bool saturates = cast == CAST_SATURATE;

	if (!is_integer(dtype) && number->is_integer)
		store_whole(dtype, number->i, saturates, element);
	else if (!is_integer(dtype))
		store_floating(dtype, number->f, saturates, element);
	else if (number->is_integer)
		store_integer(dtype, number->i, cast == CAST_IEEE, element);
	else if (dtype == DTYPE_BOOL)
		*element = number->f != 0;
	else
		store_integer(dtype, truncated(number->f), false, element);
}

static bool is_same(const struct number *a, const struct number *b)
{
	if (a->is_integer && b->is_integer)
		return a->i == b->i;
	if (a->is_integer)
		return is_same(b, a);
	if (b->is_integer)
		return a->f == a->f && (double)(__int128)truncated(a->f) == a->f && truncated(a->f) == b->i;
	return a->f == b->f || (a->f != a->f && b->f != b->f);
}

bool element_is_nan(enum dtype dtype, const uint8_t *element)
{
	const struct number number = load(dtype, element);

	return number.f != number.f;
}

/* ---- Conversion --------------------------------------------------------------------------------------- */

/* volatile makes the compiler round every step and fuse none with another. */
static double calculate(const struct conversion_spec *spec, const struct number *number, bool is_double,
                        double scale, double bias)
{
	volatile double wide = number->is_integer ? (double)number->i : number->f;
	volatile float narrow = (float)wide;

	if (is_double) {
		if (spec->scale.kind)
			wide = wide * scale;
		if (spec->bias.kind)
			wide = wide + bias;
		return wide;
	}
	if (spec->scale.kind)
		narrow = narrow * (float)scale;
	if (spec->bias.kind)
		narrow = narrow + (float)bias;
	return (double)narrow;
}

bool element_convert(const struct conversion_spec *spec, enum dtype to, uint8_t *dst, enum dtype from,
                     const uint8_t *src, double scale, double bias)
{
	const struct number loaded = load(from, src);
	const bool is_plain = !spec->scale.kind && !spec->bias.kind;
	struct number value = loaded, stored;

	if (to == from && is_plain && !(spec->cast == CAST_SATURATE && has_infinity(to))) {
		memcpy(dst, src, dtype_size(to)); /* Without anything to compute, the bits are copied. */
		return true;
	}
	if (!is_plain || !is_integer(from))
		value = (struct number){ .f = calculate(spec, &loaded, is_wide(from) || is_wide(to), scale,
			                                bias) };
	store(to, &value, spec->cast, dst);
	stored = load(to, dst);
	return is_same(&value, &stored) && (!is_plain || is_same(&value, &loaded));
}
