/* SPDX-License-Identifier: Apache-2.0 */
/* Converts tiles whose source and destination are contiguous along different dimensions. A tile's elements
 * pass through shared memory before they are converted. Dimension 0, the destination's innermost, is x;
 * dimension 1, along which the source is contiguous, is y. A tile is read row by row along y or, if x follows
 * y in the source without a gap, as one row. It is written row by row along x or, if y follows x in the
 * destination without a gap and rows are short, as one row. */
#include "convert_tile.cuh"

namespace
{

/* Writes the chunks of a tile that has no gap in the destination. All of its elements have the same
 * operands. */
template <int S, int D>
DEVICE void write_woven_tile(const convert_args &args, const convert_tile &tile, const unsigned char *shared,
                             uint32_t &changed)
{
	constexpr int n = 16 / D;
	const uint64_t bytes = (uint64_t)tile.y * args.by_x.n * D;
	const tile_rows rows = rows_of(args, tile);

	for (uint32_t number = threadIdx.x; number < (uint32_t)row_chunks(bytes); number += blockDim.x) {
		const row_chunk c = chunk_of<D>(tile.place.dst, bytes, number);
		const int skip = (int)(c.skip / D), last = (int)(c.last - c.first) - 1;
		const uint32_t width = (uint32_t)args.by_x.n, y = divide_u32((uint32_t)c.first, &args.by_x);
		const tile_elements<S> elements = { shared, rows, (uint32_t)c.first - y * width, y, width };
		tile_elements<S> next = elements;
		uint32_t raw[n * S / 4] = {};

		if (last < 0)
			continue;
#pragma unroll
		for (int i = 0; i < n; i++) {
			raw_set<S>(raw, i, (uint32_t)tile_bits<S>(shared + rows.at(next.x) + next.y * S, S));
			if (i >= skip && i < skip + last)
				next.step();
		}
		const chunk_operands operands = { tile.place.scale, tile.place.bias, 0, 0 };

		if (!convert_chunk<S, D>(args, c, raw, operands))
			changed += convert_exactly<D>(args, c.address + c.skip, last + 1, operands, elements);
	}
}

/* Writes chunks along x for each row y. */
template <int S, int D>
DEVICE void write_tile(const convert_args &args, const convert_tile &tile, const unsigned char *shared,
                       uint32_t &changed)
{
	const uint32_t chunks = (uint32_t)args.by_x.n;
	const tile_rows rows = rows_of(args, tile);

	for (uint32_t number = threadIdx.x; number < (uint32_t)tile.y * chunks; number += blockDim.x) {
		const uint32_t y = divide_u32(number, &args.by_x);
		const uint64_t row = tile.place.dst + (uint64_t)(y * args.dim[1].dst);
		const row_chunk c = chunk_of<D>(row, (uint64_t)tile.x * D, number - y * chunks);
		uint32_t raw[16 / D * S / 4] = {};

		if (c.first >= c.last)
			continue;
		take_chunk<S, D>(rows, shared, y, c, raw);
		write_chunk<S, D>(args, tile, rows, shared, y, c, raw, changed);
	}
}

/* Writes elements of any type one by one. */
template <typename LANE_>
DEVICE void write_tile_elements(const convert_args &args, const convert_tile &tile,
                                const unsigned char *shared, operand_lanes<LANE_> &scale,
                                operand_lanes<LANE_> &bias, uint32_t &changed)
{
	const tile_rows rows = rows_of(args, tile);

	for (uint32_t i = threadIdx.x; i < (uint32_t)tile.y * args.tile_x; i += blockDim.x) {
		const uint32_t y = divide_u32(i, &args.by_x), x = i - y * (uint32_t)args.by_x.n;

		if (x >= tile.x)
			continue;
		convert_place place = tile.place;
		const uint64_t bits =
		    tile_bits<0>(shared + rows.at(x) + y * args.from_bytes, args.from_bytes);

		place.step(args.dim[0], x);
		place.step(args.dim[1], y);
		const LANE_ lane = calculated(args, lane_load(LANE_(), bits, args.from, args.lossy), scale,
		                              bias, place.scale, place.bias);
		const uint64_t out = lane_store(lane, args.to, args.clamps);

		changed += args.changed && is_changed(args, bits, lane, out);
		write_bits(place.dst, out, args.to_bytes, args.to_bytes);
	}
}

/* Calls write(tile, shared) for each tile of this thread block, once the tile is in shared memory. */
template <typename WRITE> DEVICE void take_tiles(const convert_args &args, const WRITE &write)
{
	DYNAMIC_SHARED(shared);

#pragma unroll 1
	for (uint64_t number = blockIdx.x; number < args.slots; number += gridDim.x) {
		convert_tile tile;
		const bool there = find_tile(args, number, threadIdx.x == 0, tile);

		if (there)
			read_rows(args, tile_source<false>{ args, tile }, tile.block, shared);
		__syncthreads();
		if (there)
			write(tile, shared);
		__syncthreads();
	}
}

template <int S, int D> DEVICE void convert_all_tiles(const convert_args &args)
{
	uint32_t changed = 0;

	take_tiles(args, [&](const convert_tile &tile, const unsigned char *shared) {
		if (args.woven)
			write_woven_tile<S, D>(args, tile, shared, changed);
		else
			write_tile<S, D>(args, tile, shared, changed);
	});
	add_changed(args, changed);
}

template <typename LANE_> DEVICE void convert_wide_tiles(const convert_args &args)
{
	operand_lanes<LANE_> scale(args.scale), bias(args.bias);
	uint32_t changed = 0;

	take_tiles(args, [&](const convert_tile &tile, const unsigned char *shared) {
		write_tile_elements(args, tile, shared, scale, bias, changed);
	});
	add_changed(args, changed);
}

} // namespace

#define BY_TILES(s, d)                                                        \
	KERNEL(ROWS_THREADS, d == 1 ? 2 : 3)                                  \
	convert_tiles_##s##_##d(const GRID_CONSTANT struct convert_args args) \
	{                                                                     \
		grid_wait();                                                  \
		convert_all_tiles<s, d>(args);                                \
	}
BY_TILES(1, 1)
BY_TILES(1, 2)
BY_TILES(1, 4)
BY_TILES(2, 1)
BY_TILES(2, 2)
BY_TILES(2, 4)
BY_TILES(4, 1)
BY_TILES(4, 2)
BY_TILES(4, 4)

KERNEL(ROWS_THREADS, 3) convert_tiles_wide(const GRID_CONSTANT struct convert_args args)
{
	grid_wait();
	if (args.lane == LANE_TYPE_FLOAT64)
		convert_wide_tiles<double>(args);
	else
		convert_wide_tiles<int64_t>(args);
}
