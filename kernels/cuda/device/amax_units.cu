/* SPDX-License-Identifier: Apache-2.0 */
/* Converts tiles by scales that it computes. Rows are contiguous and aligned on both sides. A unit is 16
 * bytes of the source and lies in one scaling block. Units stay in registers while the largest magnitude of
 * each scaling block is found. */
#include "amax_tile.cuh"

namespace
{

/* A thread's unit of a tile. */
struct amax_unit {
	uint32_t y;
	uint32_t first; /* first element in row y */
	bool there;
};

template <int S> DEVICE amax_unit find_unit(const amax_args &args, const amax_tile &tile, uint32_t k)
{
	const uint32_t i = threadIdx.x + k * blockDim.x, y = divide_u32(i, &args.move.by_x),
		       first = (i - y * (uint32_t)args.move.by_x.n) * (16 / S);

	return { y, first, y < tile.y.n && first < tile.x.n };
}

DEVICE uint64_t source_of(const amax_args &args, const amax_tile &tile, const amax_unit &unit)
{
	return tile.place.src + (uint64_t)(unit.y * args.move.dim[1].src) + unit.first * args.move.from_bytes;
}

/* Returns the words of the scaling blocks of row y in shared memory. */
DEVICE unsigned char *row_of_blocks(const amax_args &args, const amax_tile &tile, unsigned char *blocks,
                                    uint32_t y)
{
	return blocks + 4 * args.blocks_x * divide_u32(tile.y.lead + y, &args.dim[1].by_block);
}

DEVICE unsigned char *block_of(const amax_args &args, const amax_tile &tile, unsigned char *blocks,
                               const amax_unit &unit)
{
	return row_of_blocks(args, tile, blocks, unit.y) +
	       4 * divide_u32(tile.x.lead + unit.first, &args.dim[0].by_block);
}

/* Reads a unit. Elements beyond the row are 0. */
template <int S> DEVICE uint4 read_unit(const amax_args &args, const amax_tile &tile, const amax_unit &unit)
{
	constexpr uint32_t n = 16 / S;
	const uint64_t address = source_of(args, tile, unit);
	uint32_t raw[4] = {};

	if (unit.first + n <= tile.x.n)
		return global_read((const uint4 *)address);
#pragma unroll
	for (uint32_t i = 0; i < n; i++)
		if (unit.first + i < tile.x.n)
			raw_set<S>(raw, i, read_whole<S>(address + i * S));
	return make_uint4(raw[0], raw[1], raw[2], raw[3]);
}

/* Returns the largest magnitude of a unit's elements, in the upper bits of a word. */
template <int S> DEVICE uint32_t unit_magnitude(const uint4 &v)
{
	if constexpr (S == 2) {
		const uint32_t mask = 0x7fff7fff, largest = pair_max(pair_max(v.x & mask, v.y & mask),
		                                                     pair_max(v.z & mask, v.w & mask));

		return max(largest << 16, largest & 0xffff0000);
	}
	const uint32_t mask = 0x7fffffff;

	return max(max(v.x & mask, v.y & mask), max(v.z & mask, v.w & mask));
}

template <int S>
DEVICE void reduce_units(const amax_args &args, const amax_tile &tile, unsigned char *blocks, const uint4 *v)
{
	if (blocks_along(args.dim[0], tile.x) * blocks_along(args.dim[1], tile.y) == 1) {
		uint32_t largest = 0;

#pragma unroll
		for (uint32_t k = 0; k < AMAX_UNITS; k++)
			largest = max(largest, unit_magnitude<S>(v[k]));
		largest = warp_max(largest);
		if (threadIdx.x % WARP_THREADS == 0)
			tile_max(blocks, largest);
		return;
	}
#pragma unroll
	for (uint32_t k = 0; k < AMAX_UNITS; k++) {
		const amax_unit unit = find_unit<S>(args, tile, k);
		const uint32_t largest = group_max(unit_magnitude<S>(v[k]), args.group);

		if (unit.there && threadIdx.x % (1u << args.group) == 0)
			tile_max(block_of(args, tile, blocks, unit), largest);
	}
}

/* Calls use(load) as with_words does, for floating types. */
template <int S, typename USE> DEVICE void with_float_words(uint32_t type, const USE &use)
{
	if (S == 2 && type == TYPE_FLOAT16)
		with_words<S>(TYPE_FLOAT16, use);
	else
		with_words<S>(TYPE_BFLOAT16, use);
}

/* Calls use(store) as with_numbers does, for floating types. Scales leave nothing to clamp. */
template <int D, typename USE> DEVICE void with_float_numbers(uint32_t type, const USE &use)
{
	if (D == 1 && type == TYPE_FLOAT8_E4M3FN)
		with_numbers<D>(TYPE_FLOAT8_E4M3FN, true, use);
	else if (D == 1)
		with_numbers<D>(TYPE_FLOAT8_E5M2, true, use);
	else if (type == TYPE_FLOAT16)
		with_numbers<D>(TYPE_FLOAT16, true, use);
	else
		with_numbers<D>(TYPE_BFLOAT16, true, use);
}

/* Converts and writes a unit. Returns false, and writes nothing, if the unit is incomplete, or if its scaling
 * block contains an infinity or a NaN, so that `by` is 0 or NaN. */
template <int S, int D, typename LOAD, typename STORE>
DEVICE bool write_unit(const amax_tile &tile, const amax_unit &unit, uint64_t dst, float by, const uint4 &v,
                       const LOAD &load, const STORE &store)
{
	constexpr uint32_t n = 16 / S, words = n * D / 4;
	const uint32_t raw[4] = { v.x, v.y, v.z, v.w };
	uint32_t out[words];
	float lane[n];

	if (!(by > 0) || unit.first + n > tile.x.n)
		return false;
#pragma unroll
	for (uint32_t w = 0; w < 4; w++)
		load(raw[w], lane + w * (4 / S));
#pragma unroll
	for (uint32_t i = 0; i < n; i++)
		lane[i] = multiply_rounded(lane[i], by);
#pragma unroll
	for (uint32_t w = 0; w < words; w++)
		out[w] = store(lane + w * (4 / D));
	write_aligned_words<words>(dst, out);
	return true;
}

DEVICE uint64_t destination_of(const amax_args &args, const amax_tile &tile, const amax_unit &unit)
{
	return tile.place.dst + (uint64_t)(unit.y * args.move.dim[1].dst) + unit.first * args.move.to_bytes;
}

template <int S, int D>
DEVICE void write_units(const amax_args &args, const amax_tile &tile, unsigned char *blocks, const uint4 *v)
{
	uint32_t rest = 0; /* bit k says whether unit k is left for convert_exactly */

	with_float_words<S>(args.move.from, [&](const auto &load) {
		with_float_numbers<D>(args.move.to, [&](const auto &store) {
#pragma unroll
			for (uint32_t k = 0; k < AMAX_UNITS; k++) {
				const amax_unit unit = find_unit<S>(args, tile, k);

				if (unit.there &&
				    !write_unit<S, D>(tile, unit, destination_of(args, tile, unit),
				                      tile_read<float>(block_of(args, tile, blocks, unit)),
				                      v[k], load, store))
					rest |= 1u << k;
			}
		});
	});
#pragma unroll 1
	for (uint32_t k = 0; rest >> k; k++) {
		const amax_unit unit = find_unit<S>(args, tile, k);
		const uint32_t first = tile.x.lead + unit.first, n = min(16u / S, tile.x.n - unit.first);

		if (rest >> k & 1)
			convert_exactly<D>(args.move, destination_of(args, tile, unit), (int)n,
			                   row_inverses{ row_of_blocks(args, tile, blocks, unit.y),
			                                 args.dim[0].by_block, first, first + n - 1 },
			                   global_elements<S>{ source_of(args, tile, unit), S, S });
	}
}

template <int S, int D> DEVICE void convert_amax_units(const amax_args &args)
{
	DYNAMIC_SHARED(blocks);

#pragma unroll 1
	for (uint64_t number = blockIdx.x; number < args.move.slots; number += gridDim.x) {
		amax_tile tile;
		uint4 v[AMAX_UNITS];

		find_tile(args, number, tile);
		if (tile.x.n == 0 || tile.y.n == 0)
			continue;
#pragma unroll
		for (uint32_t k = 0; k < AMAX_UNITS; k++) {
			const amax_unit unit = find_unit<S>(args, tile, k);

			v[k] = unit.there ? read_unit<S>(args, tile, unit) : make_uint4(0, 0, 0, 0);
		}
		clear_blocks(args, tile, blocks);
		__syncthreads();
		if (args.pass != AMAX_PASS_CONVERT) {
			reduce_units<S>(args, tile, blocks, v);
			__syncthreads();
		}
		take_scales<S>(args, tile, blocks);
		__syncthreads();
		if (args.pass != AMAX_PASS_REDUCE) {
			write_units<S, D>(args, tile, blocks, v);
			__syncthreads();
		}
	}
}

} // namespace

/* A thread block has as many threads as the units of a tile need. With the maximum number of threads, each
 * has 64 registers. */
#define AMAX_UNITS_OF(s, d)                                             \
	KERNEL(AMAX_UNITS_THREADS, 1)                                   \
	amax_units_##s##_##d(const GRID_CONSTANT struct amax_args args) \
	{                                                               \
		grid_wait();                                            \
		convert_amax_units<s, d>(args);                         \
	}
AMAX_UNITS_OF(2, 1)
AMAX_UNITS_OF(2, 2)
AMAX_UNITS_OF(4, 1)
AMAX_UNITS_OF(4, 2)
