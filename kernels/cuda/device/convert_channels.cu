/* SPDX-License-Identifier: Apache-2.0 */
/* Converts pixels of three or four channels of one byte, which lie together in the source and in separate
 * planes in the destination. A thread takes the pixels of a chunk of 16 bytes, and writes that chunk of each
 * channel. Dimension 0 counts pixels and dimension 1 channels, whose rows all have the same phase. Scale and
 * bias are the same along dimension 0. */
#include "convert_chunk.cuh"

namespace
{

/* Returns the selector with which pick_bytes takes channel y of four pixels out of their word k, and the rest
 * out of what has been picked so far. Words 0 and 1 are picked at once. */
template <int CHANNELS> DEVICE uint32_t channel_selector(int k, int y)
{
	uint32_t selector = 0;

#pragma unroll
	for (int pixel = 0; pixel < 4; pixel++) {
		const int at = pixel * CHANNELS + y, word = at / 4;

		selector |= (uint32_t)(word == k             ? 4 + at % 4
		                       : k == 1 && word == 0 ? at % 4
		                                             : pixel)
		            << 4 * pixel;
	}
	return selector;
}

/* Picks channel y of N pixels. */
template <int CHANNELS, int N> DEVICE void take_channel(const uint32_t *pixels, int y, uint32_t *raw)
{
#pragma unroll
	for (int w = 0; w < N / 4; w++) {
		uint32_t picked = pixels[w * CHANNELS];

#pragma unroll
		for (int k = 1; k < CHANNELS; k++)
			picked =
			    pick_bytes(picked, pixels[w * CHANNELS + k], channel_selector<CHANNELS>(k, y));
		raw[w] = picked;
	}
}

/* Reads WORDS words from an address of any phase. Returns false if it would have to read beyond [block.low,
 * block.high). */
template <int WORDS> DEVICE bool read_pixels(const list_place &block, uint64_t address, uint32_t *pixels)
{
	constexpr int unit = WORDS % 4 == 0 ? 4 : WORDS % 2 == 0 ? 2 : 1;
	const uint64_t around = address & ~UINT64_C(3);

	if (address % (4 * unit) == 0) {
#pragma unroll
		for (int w = 0; w < WORDS; w += unit)
			read_aligned_words<unit>(address + 4 * w, pixels + w);
		return true;
	}
	if (around < block.low || around + 4 * (WORDS + 1) > block.high)
		return false;
	uint32_t low = global_read((const uint32_t *)around);

#pragma unroll
	for (int w = 0; w < WORDS; w++) {
		const uint32_t high = global_read((const uint32_t *)around + w + 1);

		pixels[w] = shift_words(low, high, address % 4 * 8);
		low = high;
	}
	return true;
}

/* The place of a chunk in the row of channel 0. */
struct pixel_chunk {
	list_place block;
	convert_place place; /* place of the row's first pixel */
	row_chunk chunk;
};

template <int D>
DEVICE void find_chunk(const convert_args &args, uint64_t number, bool counts, pixel_chunk &ret)
{
	ret.place = find_place(args, number, counts, ret.block);
	const uint64_t outer = divide_by(number, &args.by_chunks);

	visit_convert(args, 2, args.rank, outer,
	              [&](const convert_dim &dim, int64_t i) { ret.place.step(dim, i); });
	ret.chunk =
	    chunk_of<D>(ret.place.dst, (uint64_t)args.dim[0].n * D, number - outer * args.by_chunks.n);
}

/* Returns the operands of a channel, which all of its pixels share. */
DEVICE chunk_operands operands_of(const convert_args &args, const pixel_chunk &at, int y)
{
	return { at.place.scale + (uint64_t)(y * args.dim[1].scale),
		 at.place.bias + (uint64_t)(y * args.dim[1].bias), 0, 0 };
}

/* Converts AT_ONCE channels, beginning with `first`. Returns a mask of the channels that it has not
 * written. */
template <int D, int CHANNELS, int AT_ONCE>
DEVICE uint32_t convert_channels(const convert_args &args, const pixel_chunk &at, const uint32_t *pixels,
                                 int first)
{
	constexpr int n = 16 / D;
	uint32_t rest = 0;
	float lane[AT_ONCE * n];

	with_words<1>(args.from, [&](const auto &load) {
#pragma unroll
		for (int i = 0; i < AT_ONCE; i++) {
			uint32_t raw[n / 4];

			take_channel<CHANNELS, n>(pixels, first + i, raw);
#pragma unroll
			for (int w = 0; w < n / 4; w++)
				load(raw[w], lane + i * n + 4 * w);
		}
	});
#pragma unroll
	for (int i = 0; i < AT_ONCE; i++) {
		const chunk_operands operands = operands_of(args, at, first + i);

		calculate_row<n>(args, lane + i * n, operands.scale, operands.bias);
		rest |= (uint32_t)!are_easy<n>(args, lane + i * n) << (first + i);
	}
	with_numbers<D>(args.to, args.clamps, [&](const auto &store) {
#pragma unroll
		for (int i = 0; i < AT_ONCE; i++) {
			uint32_t out[4];

#pragma unroll
			for (int w = 0; w < 4; w++)
				out[w] = store(lane + i * n + w * (4 / D));
			if (!(rest >> (first + i) & 1))
				write_aligned_words<4>(
				    at.chunk.address + (uint64_t)((first + i) * args.dim[1].dst), out);
		}
	});
	return rest;
}

/* Converts pixels by words. Returns a mask of the channels that it has not written. */
template <int D, int CHANNELS> DEVICE uint32_t convert_pixels(const convert_args &args, const pixel_chunk &at)
{
	constexpr int n = 16 / D, at_once = CHANNELS * n <= 32 ? CHANNELS : 1;
	uint32_t pixels[n * CHANNELS / 4], rest = 0;

	if (args.changed || !at.chunk.whole ||
	    !read_pixels<n * CHANNELS / 4>(at.block, at.place.src + (uint64_t)at.chunk.first * CHANNELS,
	                                   pixels))
		return (1u << CHANNELS) - 1;
#pragma unroll
	for (int y = 0; y < CHANNELS; y += at_once)
		rest |= convert_channels<D, CHANNELS, at_once>(args, at, pixels, y);
	return rest;
}

template <int D, int CHANNELS> DEVICE void convert_all_channels(const convert_args &args)
{
	uint32_t changed = 0;

#pragma unroll 1
	for (uint64_t i = blockIdx.x * (uint64_t)ROWS_THREADS + threadIdx.x; i < args.slots;
	     i += (uint64_t)gridDim.x * ROWS_THREADS) {
		uint32_t rest = 0;
		pixel_chunk at;

		find_chunk<D>(args, i, true, at);
		if (at.place.there && at.chunk.first < at.chunk.last)
			rest = convert_pixels<D, CHANNELS>(args, at);
		if (rest == 0)
			continue;
		find_chunk<D>(args, i, false, at);
#pragma unroll 1
		for (int y = 0; y < CHANNELS; y++)
			if (rest >> y & 1)
				changed += convert_exactly<D>(
				    args, at.chunk.address + at.chunk.skip + (uint64_t)(y * args.dim[1].dst),
				    (int)(at.chunk.last - at.chunk.first), operands_of(args, at, y),
				    global_elements<1>{ at.place.src + (uint64_t)at.chunk.first * CHANNELS +
				                            (uint64_t)y,
				                        CHANNELS, 1 });
	}
	add_changed(args, changed);
}

} // namespace

#define BY_CHANNELS(channels, d)                                                        \
	KERNEL(ROWS_THREADS, d == 1 ? 3 : 4)                                            \
	convert_channels_##channels##_##d(const GRID_CONSTANT struct convert_args args) \
	{                                                                               \
		grid_wait();                                                            \
		convert_all_channels<d, channels>(args);                                \
	}
BY_CHANNELS(3, 1)
BY_CHANNELS(3, 2)
BY_CHANNELS(3, 4)
BY_CHANNELS(4, 1)
BY_CHANNELS(4, 2)
BY_CHANNELS(4, 4)
