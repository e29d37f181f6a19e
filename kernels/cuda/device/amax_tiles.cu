/* SPDX-License-Identifier: Apache-2.0 */
/* Converts by scales that it computes: tiles of two dimensions by way of shared memory, where their elements
 * stay while the largest of each block is looked for. A tile has whole blocks; in two passes, also a part of
 * one. Rows in shared memory lie along dimension 1, or, where that is so on both sides, along dimension 0.
 */
#include "amax.cuh"

namespace
{

/* A tile along one dimension. */
struct amax_range {
	int64_t start;
	uint32_t n;
	int64_t block;  /* the first one */
	uint32_t lead;  /* elements of that before the tile, if it ends within the tile */
	bool has_first; /* the block's first element is in the tile */
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
	convert_place place; /* of its first element */
	list_place source;
	amax_place block; /* of its first block */
	amax_range x, y;
	bool writes; /* along the other dimensions, the blocks' first elements are in it */
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

/* The rows of a tile in the source. */
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

/* visit(in shared memory, place, writes) for each block of a tile. */
template <typename VISIT>
DEVICE void visit_blocks(const amax_args &args, const amax_tile &tile, unsigned char *shared,
                         const VISIT &visit)
{
	const uint32_t along_x = blocks_along(args.dim[0], tile.x),
		       all = along_x * blocks_along(args.dim[1], tile.y);

	for (uint32_t i = threadIdx.x; i < all; i += ROWS_THREADS) {
		const uint32_t y = i / along_x, x = i - y * along_x;
		amax_place place = tile.block;

		place.step(args, 0, x);
		place.step(args, 1, y);
		visit(shared + 4 * (y * args.blocks_x + x), place,
		      tile.writes && (x > 0 || tile.x.has_first) && (y > 0 || tile.y.has_first));
	}
}

/* The largest magnitude of a word's elements, in its upper bits. */
template <int S> DEVICE uint32_t word_magnitude(uint32_t word)
{
	if constexpr (S == 2)
		return max(word << 16 & 0x7fff0000, word & 0x7fff0000);
	return word & 0x7fffffff;
}

/* Of n elements in shared memory, by a warp: the magnitude, in the upper bits of a word. */
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

/* Each warp takes runs, whose blocks may be others'. */
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
		/* Counted from where the first block begins, or would. */
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

/* The inverses of a row of blocks, for elements that are counted from where the first one begins. */
struct row_inverses {
	const unsigned char *blocks;
	divisor by_block;
	uint32_t first; /* element */
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

/* Elements of a row of the destination, from x on. */
template <int S> struct amax_elements {
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

/* WORDS words that lie together in shared memory, at a multiple of an element. */
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

/* The magnitudes of a tile's blocks, as float32s' bits, from what their elements' upper bits are. */
template <int S> DEVICE uint32_t block_magnitude(const convert_args &move, const unsigned char *block)
{
	return widened(move, tile_read<uint32_t>(block) >> (32 - 8 * S));
}

template <int S, int D>
DEVICE void convert_amax_tile(const amax_args &args, const amax_tile &tile, uint32_t &changed)
{
	DYNAMIC_SHARED(blocks);
	unsigned char *shared = blocks + args.shared_blocks;

	visit_blocks(args, tile, blocks,
	             [&](unsigned char *block, const amax_place &, bool) { tile_write<uint32_t>(block, 0); });
	if (args.alike)
		read_rows(args.move, amax_source<true>{ args, tile }, tile.source, whole_block(), shared);
	else
		read_rows(args.move, amax_source<false>{ args, tile }, tile.source, whole_block(), shared);
	__syncthreads();
	if (args.pass != AMAX_PASS_CONVERT) {
		reduce_tile<S>(args, tile, blocks, shared);
		__syncthreads();
	}
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
