/* SPDX-License-Identifier: Apache-2.0 */
/* Writes borders: the elements of the destination outside the window, by the rule of the pad mode. Another
 * kernel moves the window itself. A border is written box by box (border.h), in rows of aligned chunks
 * (rows.cuh), or element by element if the rows are short. */
#include "pad.cuh"
#include "rows.cuh"
#include "strided.cuh"

namespace
{

/* Returns the border's elements in a chunk of a row. The row begins at index `start` of the innermost
 * dimension. */
template <int E>
DEVICE uint4 border_read(const fill_args &args, const row_chunk &c, int64_t start, uint64_t src,
                         uint32_t rotation)
{
	const uint4 pattern = pattern_of(args.pattern, rotation);
	uint32_t words[4] = { pattern.x, pattern.y, pattern.z, pattern.w };

	if (args.mode != PAD_RULE_CONSTANT) {
#pragma unroll
		for (uint32_t i = 0; i < 16 / E; i++) {
			int64_t index = c.first + (int64_t)i - (int64_t)(c.skip / E);

			if (index >= c.first && index < c.last)
				chunk_take<E>(
				    words, i,
				    src + (uint64_t)(source_index(args.dim[0], args.mode, start + index) *
				                     args.dim[0].src));
		}
	}
	return make_uint4(words[0], words[1], words[2], words[3]);
}

/* Writes the element at this index of the innermost dimension. */
template <int E>
DEVICE void write_element(const fill_args &args, int64_t index, uint64_t dst, uint64_t src, uint32_t rotation)
{
	using type = typename element<E>::type;

	dst += (uint64_t)(index * E);
	if (args.mode == PAD_RULE_CONSTANT)
		global_write((type *)dst, pattern_at<E>(pattern_of(args.pattern, rotation), dst));
	else
		global_write(
		    (type *)dst,
		    global_read((const type *)(src + (uint64_t)(source_index(args.dim[0], args.mode, index) *
		                                                args.dim[0].src))));
}

template <int E>
DEVICE void fill_box(const fill_args &args, const list_place &place, uint32_t box, uint64_t block)
{
	const border_range inner = border_box(args.dim, args.rank, box, 0);
	const uint64_t row_bytes = (uint64_t)inner.n * E;
	const bool is_short = border_is_short(row_bytes);
	const uint64_t parts = is_short ? (uint64_t)inner.n : row_chunks(row_bytes);
	const uint64_t rows = border_rows(args.dim, args.rank, box);

	for (uint32_t b = 0; b < ROWS_BATCH; b++) {
		uint64_t number = block * ROWS_BLOCK + b * ROWS_THREADS + threadIdx.x;
		uint64_t row = divide(number, parts), k = number - row * parts;
		uint64_t dst = place.dst, src = place.src;

		if (row >= rows)
			return;
#pragma unroll 1
		for (uint32_t d = 1; d < args.rank; d++) {
			const border_range range = border_box(args.dim, args.rank, box, d);
			uint64_t q = divide(row, (uint64_t)range.n);
			int64_t index = (int64_t)(row - q * (uint64_t)range.n) + range.start;

			row = q;
			dst += (uint64_t)(index * args.dim[d].dst);
			if (args.mode != PAD_RULE_CONSTANT)
				src +=
				    (uint64_t)(source_index(args.dim[d], args.mode, index) * args.dim[d].src);
		}
		if (is_short) {
			write_element<E>(args, inner.start + (int64_t)k, dst, src, place.rotation);
			continue;
		}
		row_chunk c = chunk_of<E>(dst + (uint64_t)(inner.start * E), row_bytes, k);

		if (c.first < c.last)
			chunk_write<E>(c, border_read<E>(args, c, inner.start, src, place.rotation));
	}
}

template <int E> DEVICE void fill_tile(const fill_args &args, const list_place &place, uint64_t left)
{
	for (uint32_t box = 0; box < 2 * args.rank; box++) {
		uint64_t tiles = border_tiles(args.dim, args.rank, box, E);

		if (left < tiles) {
			fill_box<E>(args, place, box, left);
			break;
		}
		left -= tiles;
	}
}

/* Fills the border of each block of a list, or of one tensor if there is no list. */
template <int E> DEVICE void fill(const fill_args &args)
{
	grid_wait();
	for (uint64_t tile = blockIdx.x; tile < args.tiles; tile += gridDim.x) {
		list_place place = { args.dst, args.src, 0, 0, 0, true };
		uint64_t left = tile;

		if (args.list.by_slots.n > 0)
			find_listed(args.list, entries_in_memory(), left, threadIdx.x == 0, place);
		if (place.there)
			fill_tile<E>(args, place, left);
	}
}

} // namespace

#define FILL_KERNEL(e)                                                              \
	KERNEL(ROWS_THREADS, 4) fill_##e(const GRID_CONSTANT struct fill_args args) \
	{                                                                           \
		fill<e>(args);                                                      \
	}
BY_ELEMENT(FILL_KERNEL)
