/* SPDX-License-Identifier: Apache-2.0 */
/* Converts by chunks of 16 bytes of the destination, each of which one thread writes at once (rows.cuh).
 * Dimension 0 is the innermost there, and contiguous. Where it is so in the source as well, a chunk's
 * elements are read together, whatever their phase.
 */
#include "convert_chunk.cuh"

namespace
{

/* The row of a chunk, and which of its chunks it is. */
struct chunk_row {
	list_place block;
	convert_place place; /* of its first element */
	uint64_t chunk;
};

DEVICE void find_row(const convert_args &args, uint64_t number, chunk_row &row)
{
	row.place = find_place(args, number, true, row.block);
	const uint64_t outer = divide_by(number, &args.by_chunks);

	row.chunk = number - outer * args.by_chunks.n;
	visit_convert(args, 1, args.rank, outer,
	              [&](const convert_dim &dim, int64_t i) { row.place.step(dim, i); });
}

DEVICE chunk_operands operands_of(const convert_args &args, const chunk_row &row, int64_t first)
{
	const convert_dim &dim = args.dim[0];

	return { row.place.scale + (uint64_t)(first * dim.scale),
		 row.place.bias + (uint64_t)(first * dim.bias), dim.scale, dim.bias };
}

/* WORDS words that begin `phase` bytes into aligned ones. */
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

/* WORDS words from an address of any phase, whatever lies around them. */
template <int WORDS> DEVICE void read_any_words(uint64_t address, uint32_t *raw)
{
	constexpr uint32_t phases = WORDS < 4 ? 4 * WORDS : 16;

	if (address % phases == 0)
		read_aligned_words<WORDS>(address, raw);
	else
		read_words<WORDS>(address & ~UINT64_C(15), (uint32_t)address & 15, raw);
}

/* Whether so many bytes from there on can be read, and what read_words reads around them. */
DEVICE bool is_readable(const list_place &block, uint64_t address, uint64_t bytes)
{
	const uint64_t around = address & ~UINT64_C(15);

	return around >= block.low && around + max(bytes, (uint64_t)16) + 16 <= block.high;
}

/* One chunk of any kind. */
template <int S, int D>
DEVICE void convert_one_chunk(const convert_args &args, const chunk_row &row, uint32_t &changed)
{
	constexpr int n = 16 / D, words = n * S / 4;
	const convert_dim &dim = args.dim[0];
	const row_chunk c = chunk_of<D>(row.place.dst, (uint64_t)dim.n * D, row.chunk);
	const uint64_t src = row.place.src + (uint64_t)(c.first * dim.src);
	const int skip = (int)(c.skip / D), last = (int)(c.last - c.first) - 1;
	uint32_t raw[words] = {};

	if (last < 0)
		return;
	if (dim.src == S && c.whole && is_readable(row.block, src, 4 * words)) {
		read_any_words<words>(src, raw);
	} else {
#pragma unroll
		for (int i = 0; i < n; i++) {
			const int64_t at = min(max(i - skip, 0), last);

			raw_set<S>(raw, i, read_element<S>(src + (uint64_t)(at * dim.src), args.from_unit));
		}
	}
	if (!convert_chunk<S, D>(args, c, raw, operands_of(args, row, c.first)))
		changed +=
		    convert_exactly<D>(args, c.address + c.skip, last + 1, operands_of(args, row, c.first),
		                       global_elements<S>{ src, dim.src, args.from_unit });
}

/* A batch of a thread's chunks within one row, whole ones: ROWS_THREADS apart, from row.chunk on. */
template <int S, int D>
DEVICE void convert_batch(const convert_args &args, const chunk_row &row, uint32_t &changed)
{
	constexpr int n = 16 / D, words = n * S / 4;
	constexpr uint32_t batch = CONVERT_CHUNKS(S, D), bytes = words * 4, phases = bytes < 16 ? bytes : 16;
	const uint64_t dst = (row.place.dst & ~UINT64_C(15)) + 16 * row.chunk;
	const int64_t first = (int64_t)(dst - row.place.dst) / D;
	const uint64_t src = row.place.src + (uint64_t)first * S;
	uint32_t raw[batch][words], rest = 0; /* chunks that are left, by their bits */

	if (src % phases == 0) {
#pragma unroll
		for (uint32_t k = 0; k < batch; k++)
			read_aligned_words<words>(src + k * ROWS_THREADS * bytes, raw[k]);
	} else {
#pragma unroll
		for (uint32_t k = 0; k < batch; k++)
			read_words<words>((src & ~UINT64_C(15)) + k * ROWS_THREADS * bytes,
			                  (uint32_t)src & 15, raw[k]);
	}
#pragma unroll
	for (uint32_t k = 0; k < batch; k++) {
		const int64_t at = first + k * ROWS_THREADS * n;

		if (!convert_chunk<S, D>(args, { dst + k * ROWS_THREADS * 16, at, at + n, 0, true }, raw[k],
		                         operands_of(args, row, at)))
			rest |= 1u << k;
	}
#pragma unroll 1
	for (uint32_t k = 0; rest >> k; k++)
		if (rest >> k & 1)
			changed += convert_exactly<D>(
			    args, dst + k * ROWS_THREADS * 16, n,
			    operands_of(args, row, first + k * ROWS_THREADS * n),
			    global_elements<S>{ src + k * ROWS_THREADS * bytes, S, args.from_unit });
}

/* Whether a batch is whole, and nothing is read beyond the source around it. */
template <int S, int D> DEVICE bool is_whole_batch(const convert_args &args, const chunk_row &row)
{
	constexpr uint32_t after = (CONVERT_CHUNKS(S, D) - 1) * ROWS_THREADS;
	constexpr uint64_t bytes = 16 / D * S;
	const uint64_t dst = (row.place.dst & ~UINT64_C(15)) + 16 * row.chunk;
	const uint64_t src = row.place.src + (uint64_t)((int64_t)(dst - row.place.dst) / D * S);

	return args.dim[0].src == S && row.chunk > 0 && row.chunk + after + 2 < args.by_chunks.n &&
	       is_readable(row.block, src, after * bytes + max(bytes, (uint64_t)16));
}

/* Neighbouring lanes take neighbouring chunks. */
template <int S, int D> DEVICE void convert_all_chunks(const convert_args &args)
{
	constexpr uint32_t batch = CONVERT_CHUNKS(S, D), own = batch * ROWS_THREADS;
	uint32_t changed = 0;

#pragma unroll 1
	for (uint64_t first = blockIdx.x * (uint64_t)own; first < args.slots;
	     first += (uint64_t)gridDim.x * own) {
		uint64_t number = first + threadIdx.x;
		chunk_row row;

		if (number >= args.slots)
			continue;
		find_row(args, number, row);
		if (row.place.there && is_whole_batch<S, D>(args, row)) {
			convert_batch<S, D>(args, row, changed);
			continue;
		}
#pragma unroll 1
		for (uint32_t k = 0; k < batch && number < args.slots; k++, number += ROWS_THREADS) {
			if (k > 0)
				find_row(args, number, row);
			if (row.place.there)
				convert_one_chunk<S, D>(args, row, changed);
		}
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
