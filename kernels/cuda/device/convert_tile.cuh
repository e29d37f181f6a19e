/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the source in shared memory, as they lie in global memory: each begins at a multiple of the pitch,
 * plus the phase that it has within the aligned chunk of 16 bytes where it begins.
 */
#ifndef KERNELS_CUDA_DEVICE_CONVERT_TILE_CUH
#define KERNELS_CUDA_DEVICE_CONVERT_TILE_CUH

#include "convert_chunk.cuh"

/* A chunk of a row. */
struct source_chunk {
	uint64_t at;
	uint64_t row; /* the bytes that are wanted */
	uint64_t end;
	uint32_t to; /* in shared memory */
};

template <typename ROWS>
DEVICE source_chunk find_source_chunk(const convert_args &args, const ROWS &rows, uint32_t i)
{
	const uint32_t r = divide_u32(i, &args.by_chunks), k = i - r * (uint32_t)args.by_chunks.n;
	const uint64_t row = rows.first() + (uint64_t)(r * rows.step());

	return { (row & ~UINT64_C(15)) + 16 * k, row, row + rows.bytes(), r * args.pitch + 16 * k };
}

/* Byte by byte, at an end of the source. */
DEVICE void read_source_in_part(const source_chunk &chunk, unsigned char *shared)
{
#pragma unroll 1
	for (uint32_t b = 0; b < 16; b++)
		if (chunk.at + b >= chunk.row && chunk.at + b < chunk.end)
			tile_write(shared + chunk.to + b, global_read((const uint8_t *)(chunk.at + b)));
}

/* rows: the address of the first one, bytes to the next one, bytes that are wanted of each, their number, and
 * whether the pitch is a multiple of 16; they are asked again and again, because arguments cost no registers.
 * block: what of the source may be read around a row. All reads of a batch come first. */
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

/* An element of S bytes, or any; both in shared memory. */
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

/* Where rows lie in shared memory: each `step` bytes after the one before, but for its phase. */
struct tile_rows {
	uint32_t step;
	uint32_t phase; /* of the first row in the source, and how much is added to it from row to row */
	uint32_t phase_step;

	DEVICE_MEMBER uint32_t at(uint32_t row) const
	{
		return row * step + ((phase + row * phase_step) & 15);
	}
};

#endif
