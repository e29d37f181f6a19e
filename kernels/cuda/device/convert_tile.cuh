/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles of conversions. Rows of the source are kept in shared memory as they lie in global memory, and chunks
 * of the destination are made from them. A row begins at a multiple of the pitch, plus the phase of its
 * address in the source. */
#ifndef KERNELS_CUDA_DEVICE_CONVERT_TILE_CUH
#define KERNELS_CUDA_DEVICE_CONVERT_TILE_CUH

#include "convert_chunk.cuh"

/* A chunk of a row of the source. */
struct source_chunk {
	uint64_t at;
	uint64_t row; /* The bytes in [row, end) are needed. */
	uint64_t end;
	uint32_t to; /* offset of the chunk in shared memory */
};

template <typename ROWS>
DEVICE source_chunk find_source_chunk(const convert_args &args, const ROWS &rows, uint32_t i)
{
	const uint32_t r = divide_u32(i, &args.by_chunks), k = i - r * (uint32_t)args.by_chunks.n;
	const uint64_t row = rows.first() + (uint64_t)(r * rows.step());

	return { (row & ~UINT64_C(15)) + 16 * k, row, row + rows.bytes(), r * args.pitch + 16 * k };
}

/* Reads the needed bytes of a chunk at an end of the source, byte by byte. */
DEVICE void read_source_in_part(const source_chunk &chunk, unsigned char *shared)
{
#pragma unroll 1
	for (uint32_t b = 0; b < 16; b++)
		if (chunk.at + b >= chunk.row && chunk.at + b < chunk.end)
			tile_write(shared + chunk.to + b, global_read((const uint8_t *)(chunk.at + b)));
}

/* Reads the rows of a tile into shared memory. `rows` provides the address of the first one, the bytes from
 * one to the next, the bytes that are needed of each, their number, and whether the pitch is a multiple of
 * 16. It is asked again each time, because answers that were kept would occupy registers. Only memory in
 * [block.low, block.high) may be read. All reads of a batch come before its writes. */
template <typename ROWS>
DEVICE void read_rows(const convert_args &args, const ROWS &rows, const list_place &block,
                      unsigned char *shared)
{
	const uint32_t all = rows.n() * (uint32_t)args.by_chunks.n;

#pragma unroll 1
	for (uint32_t first = threadIdx.x; first < all; first += CONVERT_READS * ROWS_THREADS) {
		uint4 v[CONVERT_READS];
		uint32_t to[CONVERT_READS];

#pragma unroll
		for (uint32_t k = 0; k < CONVERT_READS; k++) {
			const uint32_t i = first + k * ROWS_THREADS;
			const source_chunk chunk = find_source_chunk(args, rows, min(i, all - 1));
			const bool is_there = i < all && chunk.at < chunk.end;
			const bool is_whole = chunk.at >= block.low && chunk.at + 16 <= block.high;

			to[k] = is_there && is_whole ? chunk.to : ~0u;
			if (is_there && is_whole)
				v[k] = global_read((const uint4 *)chunk.at);
			else if (is_there)
				read_source_in_part(chunk, shared);
		}
#pragma unroll
		for (uint32_t k = 0; k < CONVERT_READS; k++) {
			if (to[k] == ~0u)
				continue;
			if (ROWS::is_aligned) {
				tile_write(shared + to[k], v[k]);
				continue;
			}
			tile_write(shared + to[k], v[k].x);
			tile_write(shared + to[k] + 4, v[k].y);
			tile_write(shared + to[k] + 8, v[k].z);
			tile_write(shared + to[k] + 12, v[k].w);
		}
	}
}

/* Returns an element in shared memory, of S bytes or, if S is 0, of `bytes` bytes. */
template <int S> DEVICE uint64_t tile_bits(const unsigned char *from, uint32_t bytes)
{
	switch (S ? S : bytes) {
	case 1:
		return tile_read<uint8_t>(from);
	case 2:
		return tile_read<uint16_t>(from);
	case 4:
		return tile_read<uint32_t>(from);
	default:
		return tile_read<uint32_t>(from) | (uint64_t)tile_read<uint32_t>(from + 4) << 32;
	}
}

/* The places of rows in shared memory: each is `step` bytes after the one before, apart from its phase. */
struct tile_rows {
	uint32_t step;
	/* Phase of the first row in the source, and the amount by which the phase grows from row to row. */
	uint32_t phase;
	uint32_t phase_step;

	DEVICE_MEMBER uint32_t at(uint32_t row) const
	{
		return row * step + ((phase + row * phase_step) & 15);
	}
};

/* ---- Tiles of a conversion without scales of its own ----------------------------------------------------
 */

struct convert_tile {
	convert_place place; /* place of the tile's first element */
	list_place block;
	int64_t x, y; /* number of elements along dimensions 0 and 1 */
};

/* Finds the tile with this number. Returns false if the list has no block there. `counts` is as in
 * find_place. */
DEVICE bool find_tile(const convert_args &args, uint64_t number, bool counts, convert_tile &tile)
{
	tile.place = find_place(args, number, counts, tile.block);
	if (!tile.place.there)
		return false;
	uint64_t rest = divide_by(number, &args.by[0]);
	const int64_t x = (int64_t)(number - rest * args.by[0].n) * args.tile_x;

	number = rest;
	rest = args.rank > 2 ? divide_by(number, &args.by[1]) : 0;
	const int64_t y = (int64_t)(number - rest * args.by[1].n) * args.tile_y;

	tile.place.step(args.dim[0], x);
	tile.place.step(args.dim[1], y);
	tile.x = min((int64_t)args.tile_x, args.dim[0].n - x);
	tile.y = min((int64_t)args.tile_y, args.dim[1].n - y);
	if (args.rank > 2)
		visit_convert(args, 2, args.rank, rest,
		              [&](const convert_dim &dim, int64_t i) { tile.place.step(dim, i); });
	return true;
}

/* The rows of a tile in the source, for read_rows. */
template <bool ALIGNED> struct tile_source {
	const convert_args &args;
	const convert_tile &tile;
	static constexpr bool is_aligned = ALIGNED;

	DEVICE_MEMBER uint64_t first() const
	{
		return tile.place.src;
	}

	DEVICE_MEMBER int64_t step() const
	{
		return args.packed ? 0 : args.dim[0].src;
	}

	DEVICE_MEMBER uint64_t bytes() const
	{
		return (uint64_t)(args.packed ? tile.x * args.dim[0].src : tile.y * args.from_bytes);
	}

	DEVICE_MEMBER uint32_t n() const
	{
		return args.packed ? 1 : (uint32_t)tile.x;
	}
};

DEVICE tile_rows rows_of(const convert_args &args, const convert_tile &tile)
{
	if (args.packed)
		return { (uint32_t)args.dim[0].src, (uint32_t)tile.place.src & 15, 0 };
	return { args.pitch, (uint32_t)tile.place.src & 15, (uint32_t)args.dim[0].src };
}

/* Returns the elements of a tile one by one, from x and y on: along x and, after `width` of them, along the
 * next y. */
template <int S> struct tile_elements {
	static constexpr int bytes = S;

	const unsigned char *shared;
	tile_rows rows;
	uint32_t x;
	uint32_t y;
	uint32_t width;

	DEVICE_MEMBER uint32_t take()
	{
		const uint32_t bits = (uint32_t)tile_bits<S>(shared + rows.at(x) + y * S, S);

		step();
		return bits;
	}

	DEVICE_MEMBER void step()
	{
		x = x + 1 < width ? x + 1 : 0;
		y += x == 0;
	}
};

DEVICE chunk_operands operands_of(const convert_args &args, const convert_tile &tile, uint32_t y,
                                  int64_t first)
{
	const convert_dim &along = args.dim[0], &across = args.dim[1];

	return { tile.place.scale + (uint64_t)(y * across.scale + first * along.scale),
		 tile.place.bias + (uint64_t)(y * across.bias + first * along.bias), along.scale,
		 along.bias };
}

/* Converts and writes a chunk of row y, whose elements are in raw. */
template <int S, int D>
DEVICE void write_chunk(const convert_args &args, const convert_tile &tile, const tile_rows &rows,
                        const unsigned char *shared, uint32_t y, const row_chunk &c, const uint32_t *raw,
                        uint32_t &changed)
{
	const chunk_operands operands = operands_of(args, tile, y, c.first);

	if (!convert_chunk<S, D>(args, c, raw, operands))
		changed += convert_exactly<D>(args, c.address + c.skip, (int)(c.last - c.first), operands,
		                              tile_elements<S>{ shared, rows, (uint32_t)c.first, y, ~0u });
}

/* Sets raw to the elements of a chunk along x, one by one. */
template <int S, int D>
DEVICE void take_chunk(const tile_rows &rows, const unsigned char *shared, uint32_t y, const row_chunk &c,
                       uint32_t *raw)
{
	constexpr int n = 16 / D;
	const int skip = (int)(c.skip / D), last = (int)(c.last - c.first) - 1;

	if (c.whole) {
#pragma unroll
		for (int i = 0; i < n; i++)
			raw_set<S>(
			    raw, i,
			    (uint32_t)tile_bits<S>(shared + rows.at((uint32_t)c.first + i) + y * S, S));
	} else {
#pragma unroll
		for (int i = 0; i < n; i++)
			raw_set<S>(
			    raw, i,
			    (uint32_t)tile_bits<S>(
				shared + rows.at((uint32_t)c.first + min(max(i - skip, 0), last)) + y * S,
				S));
	}
}

#endif
