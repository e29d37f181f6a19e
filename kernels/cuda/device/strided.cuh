/* SPDX-License-Identifier: Apache-2.0 */
/* Code that the kernels without a tensor map share: types of elements, windows, and tests of what may be
 * read. */
#ifndef KERNELS_CUDA_DEVICE_STRIDED_CUH
#define KERNELS_CUDA_DEVICE_STRIDED_CUH

#include "args.h"
#include "many.cuh"
#include "rows.cuh"
#include "kernels/cuda/strategy/tuning.h"

template <int E> struct element;
template <> struct element<1> {
	typedef uint8_t type;
};
template <> struct element<2> {
	typedef uint16_t type;
};
template <> struct element<4> {
	typedef uint32_t type;
};
template <> struct element<8> {
	typedef uint2 type;
};
template <> struct element<16> {
	typedef uint4 type;
};

DEVICE bool in_window(const strided_dim &dim, int64_t index)
{
	return index >= dim.before && index - dim.before < dim.source;
}

/* Returns value, clamped to [0, most]. */
DEVICE int up_to(int64_t value, int most)
{
	return value <= 0 ? 0 : value < most ? (int)value : most;
}

/* Returns whether the 16 bytes at `start` may be read as the one or two aligned chunks around them. */
DEVICE bool chunk_is_readable(const list_place &block, uint64_t start)
{
	const uint64_t around = start & ~UINT64_C(15);

	return start == around || (around >= block.low && around + 32 <= block.high);
}

/* Returns the 16 bytes that begin `phase` bytes into the 32 bytes of a and b. */
DEVICE uint4 shift_chunk(const uint4 &a, const uint4 &b, uint32_t phase)
{
	const bool two = phase & 8, one = phase & 4;
	const uint32_t p[6] = { two ? a.z : a.x, two ? a.w : a.y, two ? b.x : a.z,
		                two ? b.y : a.w, two ? b.z : b.x, two ? b.w : b.y };
	const uint32_t w[5] = { one ? p[1] : p[0], one ? p[2] : p[1], one ? p[3] : p[2], one ? p[4] : p[3],
		                one ? p[5] : p[4] };
	const uint32_t bits = phase % 4 * 8;

	return make_uint4(shift_words(w[0], w[1], bits), shift_words(w[1], w[2], bits),
	                  shift_words(w[2], w[3], bits), shift_words(w[3], w[4], bits));
}

/* Returns the elements of a chunk in the opposite order. */
template <int E> DEVICE uint4 reverse_elements(const uint4 &v)
{
	if constexpr (E == 16)
		return v;
	else if constexpr (E == 8)
		return make_uint4(v.z, v.w, v.x, v.y);
	constexpr uint32_t order = E == 1 ? 0x0123 : E == 2 ? 0x1032 : 0x3210;

	return make_uint4(pick_bytes(v.w, 0, order), pick_bytes(v.z, 0, order), pick_bytes(v.y, 0, order),
	                  pick_bytes(v.x, 0, order));
}

/* Returns the fill as it lies in an aligned chunk of the block's destination, which is `rotation` bytes past
 * an address at which the pattern begins. */
DEVICE uint4 pattern_of(const uint32_t (&pattern)[4], uint32_t rotation)
{
	const uint4 p = make_uint4(pattern[0], pattern[1], pattern[2], pattern[3]);

	return rotation ? shift_chunk(p, p, 16 - rotation) : p;
}

/* Returns the element that the pattern has at this address. */
template <int E> DEVICE typename element<E>::type pattern_at(const uint4 &pattern, uint64_t address)
{
	const uint32_t at = (uint32_t)address & 15, low = at & 4 ? pattern.y : pattern.x,
		       high = at & 4 ? pattern.w : pattern.z;

	if constexpr (E == 16)
		return pattern;
	else if constexpr (E == 8)
		return at & 8 ? make_uint2(pattern.z, pattern.w) : make_uint2(pattern.x, pattern.y);
	else
		return (typename element<E>::type)((at & 8 ? high : low) >> at % 4 * 8);
}

/* Expands kernel(e) for elements of 1 to 16 bytes. */
#define BY_ELEMENT(kernel) kernel(1) kernel(2) kernel(4) kernel(8) kernel(16)

#endif
