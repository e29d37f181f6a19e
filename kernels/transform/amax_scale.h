/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the scale of a block and its inverse from the block's largest magnitude. Used on the host and on
 * the device.
 *
 * Without its sign bit, a floating-point number read as an integer is ordered as its magnitude is, with
 * infinity above all numbers and NaN above infinity. The largest magnitude of a block is therefore the same
 * in whichever order it is found, and is NaN if any element is NaN.
 */
#ifndef KERNELS_TRANSFORM_AMAX_SCALE_H
#define KERNELS_TRANSFORM_AMAX_SCALE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define AMAX_FN static __device__ __forceinline__
#else
#define AMAX_FN static inline
#endif

struct amax_scale {
	float scale, inverse;
};

/* The rule by which scales are made. */
struct amax_rule {
	uint32_t least; /* float32 bits of the least magnitude; smaller magnitudes count as this one */
	float largest;  /* largest finite value of the destination's type */
	bool power_of_two;
};

#define AMAX_NAN      UINT32_C(0x7fc00000)
#define AMAX_INFINITY UINT32_C(0x7f800000)
#define AMAX_NORMAL   UINT32_C(0x00800000) /* 2^-126, the smallest number whose inverse is finite */
#define AMAX_ONE      UINT32_C(0x3f800000)

AMAX_FN float amax_float_of(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

AMAX_FN uint32_t amax_bits_of(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

/* Returns the bits of a scale. magnitude holds the float32 bits of the largest magnitude of a block. */
AMAX_FN uint32_t amax_scale_bits(const struct amax_rule *rule, uint32_t magnitude)
{
	uint32_t bits;

	if (magnitude < rule->least)
		magnitude = rule->least;
	if (magnitude > AMAX_INFINITY)
		return AMAX_NAN;
	if (magnitude == 0)
		return AMAX_ONE;
	bits = amax_bits_of(amax_float_of(magnitude) / rule->largest);
	if (rule->power_of_two) /* round up to the next power of two */
		bits = (bits + (AMAX_NORMAL - 1)) & AMAX_INFINITY;
	return bits < AMAX_NORMAL ? AMAX_NORMAL : bits;
}

AMAX_FN struct amax_scale amax_scale_of(const struct amax_rule *rule, uint32_t magnitude)
{
	const uint32_t bits = amax_scale_bits(rule, magnitude);
	struct amax_scale scale;

	scale.scale = amax_float_of(bits);
	scale.inverse = bits == AMAX_NAN ? scale.scale : 1 / scale.scale;
	return scale;
}

/* Returns the biased exponent of a power of two, as in the format E8M0. Its 0, which means 2^-127, is never
 * returned because no scale is that small. */
AMAX_FN uint8_t amax_exponent_of(float value)
{
	const uint32_t exponent = amax_bits_of(value) >> 23;

	return (uint8_t)(exponent < 1 ? 1 : exponent);
}

#endif
