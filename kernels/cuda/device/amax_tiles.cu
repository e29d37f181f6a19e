/* SPDX-License-Identifier: Apache-2.0 */
/* Converts tiles of two dimensions by scales that it computes. The elements of a tile stay in shared memory
 * while the largest magnitude of each scaling block is found. A tile has whole scaling blocks or, with two
 * passes, a part of one. Its rows in shared memory lie along dimension 1 or, if both sides are contiguous
 * along dimension 0, along that. */
#include "amax_tile.cuh"

namespace
{

/* The rows of a tile in the source, for read_rows. */
template <bool ALIKE> struct amax_source {
	const amax_args &args;
	const amax_tile &tile;
	static constexpr bool is_aligned = ALIKE;

	DEVICE_MEMBER uint64_t first() const
	{
		return tile.place.src;
	}

	DEVICE_MEMBER int64_t step() const
	{
		return args.move.dim[ALIKE].src;
	}

	DEVICE_MEMBER uint64_t bytes() const
	{
		return (ALIKE ? tile.x.n : tile.y.n) * args.move.from_bytes;
	}

	DEVICE_MEMBER uint32_t n() const
	{
		return ALIKE ? tile.y.n : tile.x.n;
	}
};

DEVICE tile_rows rows_of(const amax_args &args, const amax_tile &tile)
{
	return { args.move.pitch, (uint32_t)tile.place.src & 15, (uint32_t)args.move.dim[args.alike].src };
}

/* ---- Blocks in shared memory: magnitudes, and then inverses ------------------------------------------- */

/* Returns the largest magnitude of a word's elements, in the upper bits of a word. */
template <int S> DEVICE uint32_t word_magnitude(uint32_t word)
{
	if constexpr (S == 2)
		return max(word << 16 & 0x7fff0000, word & 0x7fff0000);
	return word & 0x7fffffff;
}

/* Returns the largest magnitude of n elements in shared memory, in the upper bits of a word. All lanes of a
 * warp call it together. */
template <int S> DEVICE uint32_t find_largest(const unsigned char *shared, uint32_t at, uint32_t n)
{
	const uint32_t lane = threadIdx.x % WARP_THREADS, words = at % 4 ? 0 : n * S / 4;
	uint32_t largest = 0;

	for (uint32_t i = lane; i < words; i += WARP_THREADS)
		largest = max(largest, word_magnitude<S>(tile_read<uint32_t>(shared + at + 4 * i)));
	if constexpr (S < 4)
		for (uint32_t i = words * 4 / S + lane; i < n; i += WARP_THREADS)
			largest =
			    max(largest, word_magnitude<S>((uint32_t)tile_bits<S>(shared + at + S * i, S)));
	return warp_max(largest);
}

/* Finds the magnitudes of the tile's scaling blocks. Each warp reduces runs, which are parts of rows of at
 * most AMAX_RUN elements. Several warps may have runs of the same scaling block. */
template <int S>
DEVICE void reduce_tile(const amax_args &args, const amax_tile &tile, unsigned char *blocks,
                        const unsigned char *shared)
{
	const uint32_t along = args.alike ? 0 : 1, across = 1 - along;
	const amax_range &row = args.alike ? tile.x : tile.y, &other = args.alike ? tile.y : tile.x;
	const uint32_t step_row = args.alike ? 4 : 4 * args.blocks_x,
		       step_other = args.alike ? 4 * args.blocks_x : 4;
	const uint32_t length = (uint32_t)min(args.dim[along].by_block.n,
	                                      (uint64_t)(along ? args.move.tile_y : args.move.tile_x));
	const tile_rows rows = rows_of(args, tile);

	for (uint32_t i = threadIdx.x / WARP_THREADS; i < other.n * (uint32_t)args.by_runs.n;
	     i += ROWS_THREADS / WARP_THREADS) {
		const uint32_t r = divide_u32(i, &args.by_runs), k = i - r * (uint32_t)args.by_runs.n,
			       block = divide_u32(k, &args.by_run),
			       part = k - block * (uint32_t)args.by_run.n;
		/* These count from where the first scaling block begins, or would begin. */
		const uint32_t from = block * length + part * AMAX_RUN, low = max(from, row.lead),
			       end = min(min(from + AMAX_RUN, (block + 1) * length), row.lead + row.n);

		if (low >= end)
			continue;
		const uint32_t largest =
		    find_largest<S>(shared, rows.at(r) + (low - row.lead) * S, end - low);

		if (threadIdx.x % WARP_THREADS == 0)
			tile_max(blocks + block * step_row +
			             divide_u32(other.lead + r, &args.dim[across].by_block) * step_other,
			         largest);
	}
}

/* ---- Writing ------------------------------------------------------------------------------------------ */

/* Returns elements of a row of the destination one by one, from x on. */
template <int S> struct amax_elements {
	static constexpr int bytes = S;

	const unsigned char *shared;
	tile_rows rows;
	uint32_t x;
	uint32_t y;
	uint32_t alike;

	DEVICE_MEMBER uint32_t place() const
	{
		return alike ? rows.at(y) + x * S : rows.at(x) + y * S;
	}

	DEVICE_MEMBER uint32_t take()
	{
		const uint32_t bits = (uint32_t)tile_bits<S>(shared + place(), S);

		x++;
		return bits;
	}
};

/* Reads WORDS consecutive words from shared memory, at a multiple of an element. */
template <int S, int WORDS> DEVICE void take_words(const unsigned char *shared, uint32_t at, uint32_t *raw)
{
	if (at % 16 == 0 && WORDS >= 4) {
#pragma unroll
		for (int w = 0; w < WORDS; w += 4) {
			const uint4 v = tile_read<uint4>(shared + at + 4 * w);

			raw[w] = v.x;
			raw[w + 1] = v.y;
			raw[w + 2] = v.z;
			raw[w + 3] = v.w;
		}
	} else if (at % 4 == 0) {
#pragma unroll
		for (int w = 0; w < WORDS; w++)
			raw[w] = tile_read<uint32_t>(shared + at + 4 * w);
	} else {
#pragma unroll
		for (int i = 0; i < WORDS * 4 / S; i++)
			raw_set<S>(raw, i, (uint32_t)tile_bits<S>(shared + at + i * S, S));
	}
}

template <int S, int D>
DEVICE void write_tile(const amax_args &args, const amax_tile &tile, const unsigned char *blocks,
                       const unsigned char *shared, uint32_t &changed)
{
	constexpr int n = 16 / D, words = n * S / 4;
	const convert_args &move = args.move;
	const uint32_t chunks = (uint32_t)move.by_x.n;
	const tile_rows rows = rows_of(args, tile);

	for (uint32_t number = threadIdx.x; number < tile.y.n * chunks; number += ROWS_THREADS) {
		const uint32_t y = divide_u32(number, &move.by_x);
		const uint64_t row = tile.place.dst + (uint64_t)(y * move.dim[1].dst);
		const row_chunk c = chunk_of<D>(row, (uint64_t)tile.x.n * D, number - y * chunks);
		const int skip = (int)(c.skip / D), last = (int)(c.last - c.first) - 1;
		uint32_t raw[words] = {};

		if (last < 0)
			continue;
		const amax_elements<S> elements = { shared, rows, (uint32_t)c.first, y, args.alike };

		if (c.whole && args.alike) {
			take_words<S, words>(shared, elements.place(), raw);
		} else {
#pragma unroll
			for (int i = 0; i < n; i++) {
				amax_elements<S> own = elements;

				own.x += (uint32_t)min(max(i - skip, 0), last);
				raw_set<S>(raw, i, own.take());
			}
		}
		const uint32_t first = tile.x.lead + (uint32_t)c.first;
		const row_inverses inverses = {
			blocks + 4 * args.blocks_x * divide_u32(tile.y.lead + y, &args.dim[1].by_block),
			args.dim[0].by_block, first, first + (uint32_t)last
		};

		if (!convert_chunk<S, D>(move, c, raw, inverses))
			changed += convert_exactly<D>(move, c.address + c.skip, last + 1, inverses, elements);
	}
}

/* ---- Tiles -------------------------------------------------------------------------------------------- */

template <int S, int D>
DEVICE void convert_amax_tile(const amax_args &args, const amax_tile &tile, uint32_t &changed)
{
	DYNAMIC_SHARED(blocks);
	unsigned char *shared = blocks + args.shared_blocks;

	clear_blocks(args, tile, blocks);
	if (args.alike)
		read_rows(args.move, amax_source<true>{ args, tile }, tile.source, shared);
	else
		read_rows(args.move, amax_source<false>{ args, tile }, tile.source, shared);
	__syncthreads();
	if (args.pass != AMAX_PASS_CONVERT) {
		reduce_tile<S>(args, tile, blocks, shared);
		__syncthreads();
	}
	take_scales<S>(args, tile, blocks);
	if (args.pass == AMAX_PASS_REDUCE)
		return;
	__syncthreads();
	write_tile<S, D>(args, tile, blocks, shared, changed);
}

template <int S, int D> DEVICE void convert_amax_tiles(const amax_args &args)
{
	uint32_t changed = 0;

#pragma unroll 1
	for (uint64_t number = blockIdx.x; number < args.move.slots; number += gridDim.x) {
		amax_tile tile;

		find_tile(args, number, tile);
		if (tile.x.n == 0 || tile.y.n == 0)
			continue;
		convert_amax_tile<S, D>(args, tile, changed);
		__syncthreads();
	}
	add_changed(args.move, changed);
}

} // namespace

#define AMAX_TILES(s, d)                                                \
	KERNEL(ROWS_THREADS, 3)                                         \
	amax_tiles_##s##_##d(const GRID_CONSTANT struct amax_args args) \
	{                                                               \
		grid_wait();                                            \
		convert_amax_tiles<s, d>(args);                         \
	}
AMAX_TILES(2, 1)
AMAX_TILES(2, 2)
AMAX_TILES(4, 1)
AMAX_TILES(4, 2)
