/* SPDX-License-Identifier: Apache-2.0 */
/* Converts by chunks of 16 bytes of the destination. One thread writes a chunk at once (rows.cuh). The
 * destination is contiguous along dimension 0. If the source is as well, a chunk's elements are read
 * together, whatever their phase. Chunks that belong to a row only in part are converted element by
 * element. */
#include "convert_chunk.cuh"

namespace
{

/* The row of a chunk, and the number of the chunk or end in the row. */
struct chunk_row {
	list_place block;
	convert_place place; /* place of the row's first element */
	uint64_t chunk;
	bool is_end;
};

/* Finds the row of a slot. Returns false if the list has no block there. */
DEVICE bool find_row(const convert_args &args, uint64_t number, chunk_row &row)
{
	row.place = find_place(args, number, true, row.block);
	row.is_end = number >= args.ends;
	const uint64_t outer = row.is_end ? (number - args.ends) / 2 : divide_by(number, &args.by_chunks);

	row.chunk = row.is_end ? (number - args.ends) % 2 : number - outer * args.by_chunks.n;
	visit_convert(args, 1, args.rank, outer,
	              [&](const convert_dim &dim, int64_t i) { row.place.step(dim, i); });
	return row.place.there;
}

DEVICE chunk_operands operands_of(const convert_args &args, const chunk_row &row, int64_t first)
{
	const convert_dim &dim = args.dim[0];

	return { row.place.scale + (uint64_t)(first * dim.scale),
		 row.place.bias + (uint64_t)(first * dim.bias), dim.scale, dim.bias };
}

/* Reads WORDS words that begin `phase` bytes after an aligned address. */
template <int WORDS> DEVICE void read_words(uint64_t around, uint32_t phase, uint32_t *raw)
{
	constexpr int parts = WORDS <= 4 ? 1 : WORDS / 4;
	uint4 low = global_read((const uint4 *)around);

#pragma unroll
	for (int i = 0; i < parts; i++) {
		const uint4 high = global_read((const uint4 *)around + i + 1),
			    v = shift_chunk(low, high, phase);
		const uint32_t words[] = { v.x, v.y, v.z, v.w };

#pragma unroll
		for (int w = 0; w < 4 && w < WORDS; w++)
			raw[4 * i + w] = words[w];
		low = high;
	}
}

/* Reads WORDS words from an address of any phase, and possibly the bytes around them. */
template <int WORDS> DEVICE void read_any_words(uint64_t address, uint32_t *raw)
{
	constexpr uint32_t phases = WORDS < 4 ? 4 * WORDS : 16;

	if (address % phases == 0)
		read_aligned_words<WORDS>(address, raw);
	else
		read_words<WORDS>(address & ~UINT64_C(15), (uint32_t)address & 15, raw);
}

/* Returns whether this many bytes may be read, together with those around them that read_words reads. */
DEVICE bool is_readable(const list_place &block, uint64_t address, uint64_t bytes)
{
	const uint64_t around = address & ~UINT64_C(15);

	return around >= block.low && around + max(bytes, (uint64_t)16) + 16 <= block.high;
}

/* Reads the elements of a whole chunk. Returns false if they lie apart and are not aligned to their size. */
template <int S, int N>
DEVICE bool read_chunk(const convert_args &args, const list_place &block, uint64_t src, int64_t step,
                       uint32_t *raw)
{
	constexpr int words = N * S / 4;

	if (step == S && is_readable(block, src, 4 * words)) {
		read_any_words<words>(src, raw);
		return true;
	}
	if (args.from_unit != S)
		return false;
#pragma unroll
	for (int i = 0; i < N; i++)
		raw_set<S>(raw, i, read_whole<S>(src + (uint64_t)(i * step)));
	return true;
}

/* Converts a whole chunk at once. */
template <int S, int D>
DEVICE void convert_whole_chunk(const convert_args &args, const chunk_row &row, const row_chunk &c,
                                uint32_t &changed)
{
	constexpr int n = 16 / D;
	const int64_t step = args.dim[0].src;
	const uint64_t src = row.place.src + (uint64_t)(c.first * step);
	uint32_t raw[n * S / 4] = {};

	if (!read_chunk<S, n>(args, row.block, src, step, raw) ||
	    !convert_chunk<S, D>(args, c, raw, operands_of(args, row, c.first)))
		changed += convert_exactly<D>(args, c.address, n, operands_of(args, row, c.first),
		                              global_elements<S>{ src, step, args.from_unit });
}

/* Converts the chunk at an end of a row, which belongs to the row only in part. */
template <int D, int S>
DEVICE void convert_end(const convert_args &args, const chunk_row &row, const row_chunk &c, uint32_t &changed)
{
	changed += convert_exactly<D>(
	    args, c.address + c.skip, (int)(c.last - c.first), operands_of(args, row, c.first),
	    global_elements<S>{ row.place.src + (uint64_t)(c.first * args.dim[0].src), args.dim[0].src,
	                        args.from_unit });
}

/* Converts the chunks of all rows, and after them the two ends of each row, so that the lanes of a warp do
 * the same work. Neighbouring lanes take neighbouring chunks. */
template <int S, int D> DEVICE void convert_all_chunks(const convert_args &args)
{
	uint32_t changed = 0;

#pragma unroll 1
	for (uint64_t number = blockIdx.x * (uint64_t)ROWS_THREADS + threadIdx.x; number < args.slots;
	     number += (uint64_t)gridDim.x * ROWS_THREADS) {
		const uint64_t bytes = (uint64_t)args.dim[0].n * D;
		chunk_row row;

		if (!find_row(args, number, row))
			continue;
		const uint64_t start = row.place.dst & ~UINT64_C(15);
		const row_chunk c = chunk_from<D>(row.place.dst, bytes,
		                                  !row.is_end      ? start + 16 * row.chunk
		                                  : row.chunk == 0 ? start
		                                                   : (row.place.dst + bytes) & ~UINT64_C(15));

		if (row.is_end ? !c.whole && c.first < c.last && (row.chunk == 0 || c.address != start)
		               : c.whole)
			row.is_end ? convert_end<D, S>(args, row, c, changed)
				   : convert_whole_chunk<S, D>(args, row, c, changed);
	}
	add_changed(args, changed);
}

} // namespace

#define BY_CHUNKS(s, d)                                                        \
	KERNEL(ROWS_THREADS, d == 1 ? 2 : 3)                                   \
	convert_chunks_##s##_##d(const GRID_CONSTANT struct convert_args args) \
	{                                                                      \
		grid_wait();                                                   \
		convert_all_chunks<s, d>(args);                                \
	}
BY_CHUNKS(1, 1)
BY_CHUNKS(1, 2)
BY_CHUNKS(1, 4)
BY_CHUNKS(2, 1)
BY_CHUNKS(2, 2)
BY_CHUNKS(2, 4)
BY_CHUNKS(4, 1)
BY_CHUNKS(4, 2)
BY_CHUNKS(4, 4)
