/* SPDX-License-Identifier: Apache-2.0 */
/* Scales that are computed on the way: for each block of the destination, the largest magnitude of its
 * source, and from that the scale by which a reader multiplies, and its inverse, by which elements are
 * multiplied before they are cast.
 *
 * The magnitude of a floating number, as an integer of the bits below its sign, is ordered as its value is,
 * with infinity above all numbers and NaN above infinity. So the largest of a block is the same in whichever
 * order it is found, and is NaN if an element is.
 */
#ifndef KERNELS_PLAN_AMAX_H
#define KERNELS_PLAN_AMAX_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "proto/status.h"
#include "proto/tensor.h"

/* One of scale and inverse, as requested. */
struct amax_result_spec {
	bool is_given;
	struct tensor_layout layout;
};

struct amax_spec {
	bool is_given;
	bool power_of_two;
	double least;
	int n_block;
	int64_t block[TENSOR_MAX_RANK];
	struct amax_result_spec scale, inverse;
};

/* Where one number of each block is written. */
struct amax_result {
	bool is;
	enum dtype dtype;                /* float32; or uint8, the biased exponent of a power of two */
	int64_t stride[TENSOR_MAX_RANK]; /* bytes from block to block, by axis of the destination */
	struct tensor_layout layout;     /* as requested, for checks against regions */
	struct tensor_extent extent;
};

struct amax {
	bool is; /* false: nothing else has a meaning */
	bool power_of_two;
	float least, largest;           /* that a block's is taken to have; of the destination's type */
	int64_t block[TENSOR_MAX_RANK]; /* extents by axis of the destination, of which they are at most */
	struct amax_result scale, inverse;
};

/* dst: the destination. Refuses types that are not floating or are float64, blocks of another rank or less
 * than 1, and results of another shape or type. */
int amax_init(struct amax *ret, const struct amax_spec *spec, const struct tensor_layout *dst,
              enum dtype from, struct error *err);

/* ---- From a magnitude to a scale -------------------------------------------------------------------- */

struct amax_scale {
	float scale, inverse;
};

#define AMAX_NAN      UINT32_C(0x7fc00000)
#define AMAX_INFINITY UINT32_C(0x7f800000)
#define AMAX_NORMAL   UINT32_C(0x00800000) /* 2^-126, the least number of which the inverse is finite */

static inline float amax_float_of(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static inline uint32_t amax_bits_of(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

/* magnitude: the bits of the largest of a block, as a float32. */
static inline struct amax_scale amax_scale_of(const struct amax *amax, uint32_t magnitude)
{
	uint32_t least = amax_bits_of(amax->least), bits;

	if (magnitude < least)
		magnitude = least;
	if (magnitude > AMAX_INFINITY)
		return (struct amax_scale){ amax_float_of(AMAX_NAN), amax_float_of(AMAX_NAN) };
	if (magnitude == 0)
		return (struct amax_scale){ 1, 1 };
	bits = amax_bits_of(amax_float_of(magnitude) / amax->largest);
	if (amax->power_of_two) /* the least one that is not below it */
		bits = (bits + (AMAX_NORMAL - 1)) & AMAX_INFINITY;
	if (bits < AMAX_NORMAL)
		bits = AMAX_NORMAL;
	return (struct amax_scale){ amax_float_of(bits), 1 / amax_float_of(bits) };
}

/* As it is written, little-endian. Gives its bytes. */
static inline uint32_t amax_encode(enum dtype dtype, float value, uint8_t ret[4])
{
	uint32_t bits = amax_bits_of(value), exponent = bits >> 23;

	if (dtype == DTYPE_UINT8) {
		ret[0] = (uint8_t)(exponent < 1 ? 1 : exponent);
		return 1;
	}
	for (int i = 0; i < 4; i++)
		ret[i] = (uint8_t)(bits >> 8 * i);
	return 4;
}

#endif
