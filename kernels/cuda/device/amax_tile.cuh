/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles of whole scaling blocks, or of a part of one, whose scales are computed on the way. Shared memory
 * holds a word for each scaling block of a tile: first its magnitude, then the inverse of its scale. */
#ifndef KERNELS_CUDA_DEVICE_AMAX_TILE_CUH
#define KERNELS_CUDA_DEVICE_AMAX_TILE_CUH

#include "amax.cuh"

/* A tile's extent along one dimension. */
struct amax_range {
	int64_t start;
	uint32_t n;
	int64_t block; /* number of the first scaling block */
	/* Number of elements of that block before the tile. It is 0 if the tile is shorter than a block. */
	uint32_t lead;
	bool has_first; /* the first scaling block's first element is in the tile */
};

DEVICE amax_range find_range(const amax_dim &dim, int64_t n, int64_t tile, const divisor &by_tiles,
                             uint64_t number)
{
	const int64_t size = (int64_t)dim.by_block.n, step = max(size, tile);
	const uint64_t block = divide_by(number, &by_tiles), part = number - block * by_tiles.n;
	const int64_t low = (int64_t)block * step + (int64_t)part * tile - dim.skew;
	const int64_t end = min(min(low + tile, (int64_t)(block + 1) * step - dim.skew), n);
	amax_range range;

	range.start = max(low, (int64_t)0);
	range.n = end > range.start ? (uint32_t)(end - range.start) : 0;
	range.block = (int64_t)divide_by((uint64_t)(range.start + dim.skew), &dim.by_block);
	const int64_t lead = range.start + dim.skew - range.block * size;

	range.lead = tile < size ? 0 : (uint32_t)lead;
	range.has_first = range.start == 0 || lead == 0;
	return range;
}

struct amax_tile {
	convert_place place; /* place of the tile's first element */
	list_place source;
	amax_place block; /* place of the tile's first scaling block */
	amax_range x, y;
	/* Along all other dimensions, the tile has the first elements of its scaling blocks. */
	bool writes;
};

DEVICE void find_tile(const amax_args &args, uint64_t number, amax_tile &tile)
{
	const convert_args &move = args.move;
	uint64_t rest = divide_by(number, &move.by[0]);

	tile.place = find_place(move, number, false, tile.source);
	tile.block = { args.scale, args.inverse, 0 };
	tile.x = find_range(args.dim[0], move.dim[0].n, move.tile_x, args.by_tiles[0],
	                    number - rest * move.by[0].n);
	number = rest;
	rest = move.rank > 2 ? divide_by(number, &move.by[1]) : 0;
	tile.y = find_range(args.dim[1], move.dim[1].n, move.tile_y, args.by_tiles[1],
	                    number - rest * move.by[1].n);
	tile.place.step(move.dim[0], tile.x.start);
	tile.place.step(move.dim[1], tile.y.start);
	tile.block.step(args, 0, tile.x.block);
	tile.block.step(args, 1, tile.y.block);
	tile.writes = true;
#pragma unroll 1
	for (uint32_t d = 2; d < move.rank; d++) {
		const amax_dim &dim = args.dim[d];

		number = rest;
		rest = d + 1 < move.rank ? divide_by(number, &move.by[d]) : 0;
		const int64_t i = (int64_t)(number - rest * move.by[d].n);
		const int64_t block = (int64_t)divide_by((uint64_t)(i + dim.skew), &dim.by_block);

		tile.place.step(move.dim[d], i);
		tile.block.step(args, d, block);
		tile.writes = tile.writes && (i == 0 || i + dim.skew == block * (int64_t)dim.by_block.n);
	}
}

DEVICE uint32_t blocks_along(const amax_dim &dim, const amax_range &range)
{
	return divide_u32(range.lead + range.n - 1, &dim.by_block) + 1;
}

/* Calls visit(word, place, writes) for each scaling block of a tile, where word is the block's word in shared
 * memory. `writes` is true if the tile has the block's first element, so that exactly one tile writes the
 * block's results. */
template <typename VISIT>
DEVICE void visit_blocks(const amax_args &args, const amax_tile &tile, unsigned char *shared,
                         const VISIT &visit)
{
	const uint32_t along_x = blocks_along(args.dim[0], tile.x),
		       all = along_x * blocks_along(args.dim[1], tile.y);

	for (uint32_t i = threadIdx.x; i < all; i += blockDim.x) {
		const uint32_t y = i / along_x, x = i - y * along_x;
		amax_place place = tile.block;

		place.step(args, 0, x);
		place.step(args, 1, y);
		visit(shared + 4 * (y * args.blocks_x + x), place,
		      tile.writes && (x > 0 || tile.x.has_first) && (y > 0 || tile.y.has_first));
	}
}

/* The inverses for a row of elements. Elements are counted from the start of the first scaling block. */
struct row_inverses {
	const unsigned char *blocks;
	divisor by_block;
	uint32_t first; /* first and last element */
	uint32_t last;

	DEVICE_MEMBER float at(uint32_t element) const
	{
		return tile_read<float>(blocks + 4 * divide_u32(element, &by_block));
	}
};

struct inverse_cursor {
	row_inverses inverses;

	DEVICE_MEMBER float calculate(const convert_args &, float lane)
	{
		return scaled(lane, inverses.at(inverses.first++));
	}
};

DEVICE inverse_cursor cursor_of(const convert_args &, const row_inverses &at)
{
	return { at };
}

template <int N>
DEVICE void calculate_chunk(const convert_args &, float *lane, const row_inverses &at, int skip, int count)
{
	const uint32_t block = divide_u32(at.first, &at.by_block);

	if (block == divide_u32(at.last, &at.by_block)) {
		const float by = tile_read<float>(at.blocks + 4 * block);

#pragma unroll
		for (int i = 0; i < N; i++)
			lane[i] = multiply_rounded(lane[i], by);
		return;
	}
#pragma unroll
	for (int i = 0; i < N; i++)
		lane[i] =
		    multiply_rounded(lane[i], at.at(at.first + (uint32_t)min(max(i - skip, 0), count - 1)));
}

/* Returns the magnitude of a scaling block as bits of a float32. The block's word has it in its upper
 * bits. */
template <int S> DEVICE uint32_t block_magnitude(const convert_args &move, const unsigned char *block)
{
	return widened(move, tile_read<uint32_t>(block) >> (32 - 8 * S));
}

/* Turns the magnitudes of a tile's scaling blocks into inverses, and writes the results that are wanted. In a
 * pass that only reduces, it merges the magnitudes into those of all scaling blocks instead. */
template <int S> DEVICE void take_scales(const amax_args &args, const amax_tile &tile, unsigned char *blocks)
{
	visit_blocks(args, tile, blocks, [&](unsigned char *block, const amax_place &place, bool writes) {
		if (args.pass == AMAX_PASS_REDUCE) {
			global_max(magnitude_at(args, place), block_magnitude<S>(args.move, block));
			return;
		}
		const uint32_t magnitude = args.pass == AMAX_PASS_CONVERT
		                               ? global_read(magnitude_at(args, place))
		                               : block_magnitude<S>(args.move, block);

		tile_write<float>(block, take_scale(args, place, magnitude, writes));
	});
}

DEVICE void clear_blocks(const amax_args &args, const amax_tile &tile, unsigned char *blocks)
{
	visit_blocks(args, tile, blocks,
	             [&](unsigned char *block, const amax_place &, bool) { tile_write<uint32_t>(block, 0); });
}

#endif
