/* SPDX-License-Identifier: Apache-2.0 */
/* Scales of blocks (amax): finds the magnitudes of elements as they are read, and writes the resulting
 * scales. The formula is that of kernels/transform/amax_scale.h. A "scaling block" is a box of elements that
 * share a scale. */
#ifndef KERNELS_CUDA_DEVICE_AMAX_CUH
#define KERNELS_CUDA_DEVICE_AMAX_CUH

#include "convert_tile.cuh"

/* Returns the bits of a magnitude of the source's type as bits of a float32. */
DEVICE uint32_t widened(const convert_args &args, uint32_t magnitude)
{
	return same_bits<uint32_t>(lane_load(float(), magnitude, args.from, false));
}

/* Returns an element's bits without its sign. */
DEVICE uint32_t magnitude_of(uint32_t bits, uint32_t bytes)
{
	return bits & ((1u << (8 * bytes - 1)) - 1);
}

DEVICE void write_result(uint64_t address, uint32_t bytes, float value)
{
	if (bytes == 1)
		global_write((uint8_t *)address, amax_exponent_of(value));
	else
		write_bits(address, same_bits<uint32_t>(value), 4, address % 4 ? 1 : 4);
}

/* The places of a scaling block's scale, inverse and magnitude. */
struct amax_place {
	uint64_t scale;
	uint64_t inverse;
	uint32_t magnitude;

	DEVICE_MEMBER void step(const amax_args &args, uint32_t d, int64_t blocks)
	{
		scale += (uint64_t)(blocks * args.move.dim[d].scale);
		inverse += (uint64_t)(blocks * args.move.dim[d].bias);
		magnitude += (uint32_t)(blocks * args.dim[d].to_magnitude);
	}
};

DEVICE uint32_t *magnitude_at(const amax_args &args, const amax_place &place)
{
	return (uint32_t *)args.magnitudes + place.magnitude;
}

/* Returns the inverse of a scaling block's scale. If `writes` is set, it also writes the scale and the
 * inverse where they are wanted. */
DEVICE float take_scale(const amax_args &args, const amax_place &place, uint32_t magnitude, bool writes)
{
	const amax_scale scale = amax_scale_of(&args.rule, magnitude);

	if (writes && args.scale)
		write_result(place.scale, args.scale_bytes, scale.scale);
	if (writes && args.inverse)
		write_result(place.inverse, args.inverse_bytes, scale.inverse);
	return scale.inverse;
}

/* Returns lane * by, with the NaN that `calculated` would give. */
DEVICE float scaled(float lane, float by)
{
	return mended(multiply_rounded(lane, by), lane, by);
}

#endif
