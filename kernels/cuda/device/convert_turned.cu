/* SPDX-License-Identifier: Apache-2.0 */
/* Converts tiles whose rows lie along dimension 1 in the source and along dimension 0 in the destination,
 * both aligned. A thread reads pieces of neighbouring rows of the source. It writes one chunk of each row of
 * the destination whose elements are in these pieces. This turns the tile without extra work, because a
 * conversion takes each element out of its word anyway. Scale and bias are the same along dimension 0. */
#include "convert_tile.cuh"

namespace
{

/* The part of a tile that a thread converts. */
struct turned_part {
	uint32_t x, y; /* the part's first element */
	uint64_t dst, src;
};

/* Returns this thread's part. A warp has 4 threads along x and 8 along y; a thread block has 4 warps along x
 * and 2 along y. */
template <int S, int D> DEVICE turned_part find_part(const convert_args &args, const convert_tile &tile)
{
	const uint32_t lane = threadIdx.x % WARP_THREADS, warp = threadIdx.x / WARP_THREADS;
	const uint32_t x = (warp / 2 * 4 + lane / 8) * (16 / D),
		       y = (warp % 2 * 8 + lane % 8) * (TURNED_BYTES(S, D) / S);

	return { x, y, tile.place.dst + x * D + (uint64_t)(y * args.dim[1].dst),
		 tile.place.src + (uint64_t)(x * args.dim[0].src) + y * S };
}

/* Returns the operands of row y of the tile. */
DEVICE chunk_operands operands_of(const convert_args &args, const convert_tile &tile, uint32_t y)
{
	return { tile.place.scale + (uint64_t)(y * args.dim[1].scale),
		 tile.place.bias + (uint64_t)(y * args.dim[1].bias), 0, 0 };
}

/* Writes the elements in word `w` of each source row, which make a chunk of each of 4 / S rows. Returns a
 * mask of the rows that it has not written. */
template <int S, int D, int WORDS>
DEVICE uint32_t write_turned(const convert_args &args, const convert_tile &tile, const turned_part &part,
                             const uint32_t (*raw)[WORDS], int w)
{
	constexpr int n = 16 / D, ys = 4 / S;
	float lane[ys][n];
	uint32_t rest = 0;

	with_words<S>(args.from, [&](const auto &load) {
#pragma unroll
		for (int i = 0; i < n; i++) {
			float column[ys];

			load(raw[i][w], column);
#pragma unroll
			for (int y = 0; y < ys; y++)
				lane[y][i] = column[y];
		}
	});
#pragma unroll
	for (int y = 0; y < ys; y++) {
		const chunk_operands operands = operands_of(args, tile, part.y + w * ys + y);

		calculate_row<n>(args, lane[y], operands.scale, operands.bias);
		rest |= (uint32_t)!are_easy<n>(args, lane[y]) << (w * ys + y);
	}
	with_numbers<D>(args.to, args.clamps, [&](const auto &store) {
#pragma unroll
		for (int y = 0; y < ys; y++) {
			uint32_t out[4];

#pragma unroll
			for (int v = 0; v < 4; v++)
				out[v] = store(lane[y] + v * (4 / D));
			if (!(rest >> (w * ys + y) & 1))
				write_aligned_words<4>(part.dst + (uint64_t)((w * ys + y) * args.dim[1].dst),
				                       out);
		}
	});
	return rest;
}

/* Converts and transposes this thread's part. Returns a mask of the rows that it has not written. */
template <int S, int D>
DEVICE uint32_t turn_part(const convert_args &args, const convert_tile &tile, const turned_part &part)
{
	constexpr int n = 16 / D, ys = TURNED_BYTES(S, D) / S, words = TURNED_BYTES(S, D) / 4;
	uint32_t raw[n][words], rest = 0;

	if (part.x >= tile.x || part.y >= tile.y)
		return 0;
	if (part.x + n > tile.x || part.y + ys > tile.y)
		return (1u << min((int64_t)ys, tile.y - part.y)) - 1;
#pragma unroll
	for (int i = 0; i < n; i++)
		read_aligned_words<words>(part.src + (uint64_t)(i * args.dim[0].src), raw[i]);
#pragma unroll
	for (int w = 0; w < words; w++)
		rest |= write_turned<S, D, words>(args, tile, part, raw, w);
	return rest;
}

template <int S, int D> DEVICE void convert_turned(const convert_args &args)
{
#pragma unroll 1
	for (uint64_t number = blockIdx.x; number < args.slots; number += gridDim.x) {
		convert_tile tile;

		if (!find_tile(args, number, threadIdx.x == 0, tile))
			continue;
		const turned_part part = find_part<S, D>(args, tile);
		const uint32_t rest = turn_part<S, D>(args, tile, part);

#pragma unroll 1
		for (uint32_t y = 0; rest >> y; y++)
			if (rest >> y & 1)
				convert_exactly<D>(
				    args, part.dst + (uint64_t)(y * args.dim[1].dst),
				    (int)min((int64_t)(16 / D), tile.x - part.x),
				    operands_of(args, tile, part.y + y),
				    global_elements<S>{ part.src + y * S, args.dim[0].src, S });
	}
}

} // namespace

#define TURNED(s, d)                                                           \
	KERNEL(ROWS_THREADS, d == 1 || s == 1 ? 2 : 3)                         \
	convert_turned_##s##_##d(const GRID_CONSTANT struct convert_args args) \
	{                                                                      \
		grid_wait();                                                   \
		convert_turned<s, d>(args);                                    \
	}
TURNED(1, 1)
TURNED(1, 2)
TURNED(1, 4)
TURNED(2, 1)
TURNED(2, 2)
TURNED(2, 4)
TURNED(4, 1)
TURNED(4, 2)
TURNED(4, 4)
