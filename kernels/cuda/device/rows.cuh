/* SPDX-License-Identifier: Apache-2.0 */
/* Divides the destination into rows of aligned chunks of 16 bytes. One thread writes a chunk at once,
 * whatever the phase of the row.
 *
 * Dimension 0 is the innermost one of the destination, which is contiguous along it. A row of n elements
 * touches at most row_chunks() aligned chunks. The first and the last of them may belong to the row only in
 * part.
 */
#ifndef KERNELS_CUDA_DEVICE_ROWS_CUH
#define KERNELS_CUDA_DEVICE_ROWS_CUH

#include "args.h"
#include "kernels/nest/border.h"
#include "tma.cuh"

/* Returns a / b. Most numbers fit in 32 bits, and dividing those takes a fraction of the time. */
DEVICE uint64_t divide(uint64_t a, uint64_t b)
{
	return (a | b) >> 32 ? a / b : (uint32_t)a / (uint32_t)b;
}

/* One chunk of a row. It holds elements [first, last) of the row, of which element `first` lies `skip` bytes
 * into the chunk. */
struct row_chunk {
	uint64_t address;
	int64_t first;
	int64_t last;
	uint32_t skip;
	bool whole;
};

/* Returns the chunk at address `start` of the row at address `row`. row_bytes and row must be multiples of E.
 * If the row has no element in the chunk, first >= last. */
template <int E> DEVICE row_chunk chunk_from(uint64_t row, uint64_t row_bytes, uint64_t start)
{
	row_chunk c;
	uint64_t end = start + 16;
	uint64_t low = start > row ? start : row, high = end < row + row_bytes ? end : row + row_bytes;

	c.address = start;
	c.first = (int64_t)(low - row) / E;
	c.last = high > low ? (int64_t)(high - row) / E : c.first;
	c.skip = (uint32_t)(low - start);
	c.whole = high > low && high - low == 16;
	return c;
}

/* Returns chunk k of a row. */
template <int E> DEVICE row_chunk chunk_of(uint64_t row, uint64_t row_bytes, uint64_t k)
{
	return chunk_from<E>(row, row_bytes, (row & ~UINT64_C(15)) + 16 * k);
}

/* Writes the elements of the chunk that belong to the row. */
template <int E> DEVICE void chunk_write(const row_chunk &c, const uint4 &v)
{
	if (c.whole) {
		global_write((uint4 *)c.address, v);
		return;
	}
	const uint32_t words[4] = { v.x, v.y, v.z, v.w };
	uint32_t end = c.skip + (uint32_t)(c.last - c.first) * E;

#pragma unroll
	for (uint32_t at = 0; at < 16; at += E) {
		if (at < c.skip || at >= end)
			continue;
		if (E == 1)
			global_write((uint8_t *)(c.address + at), (uint8_t)(words[at / 4] >> at % 4 * 8));
		else if (E == 2)
			global_write((uint16_t *)(c.address + at), (uint16_t)(words[at / 4] >> at % 4 * 8));
		else if (E == 4)
			global_write((uint32_t *)(c.address + at), words[at / 4]);
		else
			global_write((uint2 *)(c.address + at),
			             make_uint2(words[at / 4], words[(at / 4 + 1) % 4]));
	}
}

/* Sets element `number` of a chunk's 16 / E elements to the one at this address. */
template <int E> DEVICE void chunk_take(uint32_t (&words)[4], uint32_t number, uint64_t address)
{
	uint32_t w = number * E / 4;

	if (E == 1 || E == 2) {
		uint32_t shift = number * E % 4 * 8, mask = (E == 1 ? 0xffu : 0xffffu) << shift;
		uint32_t value =
		    E == 1 ? global_read((const uint8_t *)address) : global_read((const uint16_t *)address);

		words[w] = (words[w] & ~mask) | value << shift;
	} else if (E == 4) {
		words[w] = global_read((const uint32_t *)address);
	} else if (E == 8) {
		uint2 v = global_read((const uint2 *)address);

		words[w] = v.x;
		words[(w + 1) % 4] = v.y;
	} else {
		uint4 v = global_read((const uint4 *)address);

		words[0] = v.x;
		words[1] = v.y;
		words[2] = v.z;
		words[3] = v.w;
	}
}

#endif
