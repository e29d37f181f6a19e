/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the tables of a thread block's tile of many axes: where the elements of a row lie in shared memory,
 * and masks of those that are border. */
#ifndef KERNELS_CUDA_DEVICE_PERMUTE_TABLE_CUH
#define KERNELS_CUDA_DEVICE_PERMUTE_TABLE_CUH

#include "permute.cuh"

/* Sets `at` to the offset of an element from its row's offset. The element has this number, counted along the
 * dimensions run[first] and those after it. Returns false if there is no such element, because it is border
 * or past the end. */
template <bool PADDED>
DEVICE bool find_element(const permute_args &args, const permute_tile &t, uint32_t first, uint32_t number,
                         uint32_t &at)
{
	const uint32_t last = args.n_run - 1;
	uint32_t load = 0;
	uint64_t src = t.src;
	bool there = true;

	at = t.base;
#pragma unroll 1
	for (uint32_t d = first; d <= last; d++) {
		const permute_axis &axis = args.run[d];
		const uint32_t q = d < last ? divide_u32(number, &axis.by) : 0;
		const uint32_t index = number - q * (uint32_t)axis.by.n;
		const bool split = PADDED && d == last && args.row_split;
		int s = (int)index + (split ? t.start_dst : 0);

		number = q;
		there = find_index<PADDED>(args, axis, s) && there;
		load += index * args.run_loads[d];
		if (args.run_loads[d])
			src += (uint64_t)(s * axis.src);
		else
			at += (uint32_t)(s - (split ? t.from_dst : 0)) * (uint32_t)axis.src;
		if (d == last && args.row_split)
			there = there && index < t.n_dst;
	}
	const uint32_t slot = slot_of(args, load);

	at += slot + (args.row_phase ? 0 : phase_of(args, src, slot));
	return there;
}

/* Fills the table. Copy p is for rows that begin p << phase_shift bytes into their first chunk. It has an
 * entry for each element of the row's chunks. Elements without an offset get 0, or PERMUTE_BORDER until
 * fill_masks has run. */
template <int E, bool PADDED>
DEVICE void fill_table(const permute_args &args, const permute_tile &t, uint16_t *table)
{
	constexpr uint32_t chunk = 16 / E;

	for (uint32_t i = threadIdx.x; i < args.table + chunk; i += PERMUTE_THREADS) {
		uint32_t at = 0;

		if (i - chunk >= args.row_bytes / E)
			at = 0;
		else if (!find_element<PADDED>(args, t, 0, i - chunk, at))
			at = PADDED ? PERMUTE_BORDER : 0;
		for (uint32_t p = 0; p < args.phases; p++) {
			const uint32_t to = i - chunk + PERMUTE_LEAD + (p << args.phase_shift) / E;

			if (to < args.table + PERMUTE_LEAD)
				tile_write<uint16_t>(table + p * (args.table + PERMUTE_LEAD) + to,
				                     (uint16_t)at);
		}
	}
}

/* Sets the masks of the border bytes of each chunk, for each copy of the table. */
template <int E> DEVICE void fill_masks(const permute_args &args, uint16_t *table, uint16_t *masks)
{
	constexpr uint32_t chunk = 16 / E, bytes = (1u << E) - 1;

	const uint32_t chunks = args.table / chunk;

	for (uint32_t i = threadIdx.x; i < args.phases * chunks; i += PERMUTE_THREADS) {
		const uint32_t p = i / chunks;
		uint16_t *const entries =
		    table + p * (args.table + PERMUTE_LEAD) + PERMUTE_LEAD + (i - p * chunks) * chunk;
		uint32_t mask = 0;

		for (uint32_t k = 0; k < chunk; k++) {
			if (tile_read<uint16_t>(entries + k) != PERMUTE_BORDER)
				continue;
			tile_write<uint16_t>(entries + k, 0);
			mask |= bytes << k * E;
		}
		tile_write<uint16_t>(masks + i, (uint16_t)mask);
	}
}

/* ---- Border ---------------------------------------------------------------------------------------------
 */

/* Turns each of four bits into a byte of ones or zeros. */
DEVICE uint32_t spread_bits(uint32_t bits)
{
	return (((bits & 15) * 0x00204081u) & 0x01010101u) * 255;
}

/* Returns the chunk with the pattern's bytes where the mask has ones. */
DEVICE uint4 set_border(const uint4 &v, const uint32_t (&pattern)[4], uint32_t mask)
{
	const uint32_t x = spread_bits(mask), y = spread_bits(mask >> 4), z = spread_bits(mask >> 8),
		       w = spread_bits(mask >> 12);

	return make_uint4((v.x & ~x) | (pattern[0] & x), (v.y & ~y) | (pattern[1] & y),
	                  (v.z & ~z) | (pattern[2] & z), (v.w & ~w) | (pattern[3] & w));
}

/* Returns a mask of the border bytes of a chunk of a row that begins `past` bytes after the phase of its
 * masks. The bits of bytes before the row may have either value. */
DEVICE uint32_t border_of(const uint16_t *mask, uint32_t past)
{
	const uint32_t own = tile_read<uint16_t>(mask);

	if (past == 0)
		return own;
	return (own << past | tile_read_around<uint16_t>(mask - 1, false) >> (16 - past)) & 0xffff;
}

#endif
