/* SPDX-License-Identifier: Apache-2.0 */
/* Converts pixels of three or four channels of one byte, which lie together in the source and apart in the
 * destination: tiles by way of shared memory, as in convert_tiles.cu, but for how they are taken from there.
 * A tile has all channels of its pixels, and is a team's; a block of threads has several teams where rows of
 * pixels are short.
 */
#include "convert_tile.cuh"

namespace
{

/* Which bytes of what is picked so far and of word k of four pixels are their first channels: the selector of
 * pick_bytes. Words 0 and 1 are picked at once. */
template <int CHANNELS> DEVICE uint32_t first_channels(int k)
{
	uint32_t selector = 0;

#pragma unroll
	for (int pixel = 0; pixel < 4; pixel++) {
		const int at = pixel * CHANNELS, word = at / 4;

		selector |= (uint32_t)(word == k             ? 4 + at % 4
		                       : k == 1 && word == 0 ? at % 4
		                                             : pixel)
		            << 4 * pixel;
	}
	return selector;
}

/* The first channels of N pixels. */
template <int CHANNELS, int N> DEVICE void take_channel(const uint32_t *pixels, uint32_t *raw)
{
#pragma unroll
	for (int w = 0; w < N / 4; w++) {
		uint32_t picked = pixels[w * CHANNELS];

#pragma unroll
		for (int k = 1; k < CHANNELS; k++)
			picked = pick_bytes(picked, pixels[w * CHANNELS + k], first_channels<CHANNELS>(k));
		raw[w] = picked;
	}
}

/* The words that begin so many bits further. */
template <int WORDS> DEVICE void shift_all(uint32_t *words, uint32_t bits)
{
#pragma unroll
	for (int w = 0; w < WORDS; w++)
		words[w] = shift_words(words[w], w + 1 < WORDS ? words[w + 1] : 0, bits);
}

/* The pixels of a whole chunk, by words, and its channels, one after the other: the rows' chunks begin at the
 * same pixels. */
template <int D, int CHANNELS>
DEVICE void write_pixels(const convert_args &args, const convert_tile &tile, const unsigned char *shared,
                         uint64_t dst, uint32_t &changed)
{
	constexpr int n = 16 / D, words = n * CHANNELS / 4;
	const uint32_t first = (uint32_t)(dst - tile.place.dst) / D;
	const tile_rows rows = rows_of(args, tile);
	const uint32_t at = rows.at(first);
	uint32_t pixels[words + 1];

#pragma unroll
	for (int w = 0; w <= words; w++)
		pixels[w] = tile_read_around<uint32_t>(shared + (at & ~3u) + 4 * w, false);
	shift_all<words + 1>(pixels, at % 4 * 8);
#pragma unroll 1
	for (uint32_t y = 0; y < CHANNELS; y++) {
		uint32_t raw[n / 4];

		take_channel<CHANNELS, n>(pixels, raw);
		write_chunk<1, D>(args, tile, rows, shared, y, { dst, first, first + n, 0, true }, raw,
		                  changed);
		shift_all<words>(pixels, 8);
		dst += (uint64_t)args.dim[1].dst;
	}
}

/* A team's chunks; those that are the tile's only in part, at its ends, element by element. */
template <int D, int CHANNELS>
DEVICE void write_channels(const convert_args &args, const convert_tile &tile, const unsigned char *shared,
                           const tile_team &team, uint32_t &changed)
{
	const uint64_t end = tile.place.dst + (uint64_t)tile.x * D;

	for (uint64_t dst = ((tile.place.dst + 15) & ~UINT64_C(15)) + 16 * team.rank; dst + 16 <= end;
	     dst += 16 * team.threads)
		write_pixels<D, CHANNELS>(args, tile, shared, dst, changed);
	for (uint32_t i = team.rank; i < 2 * CHANNELS; i += team.threads) {
		const uint32_t y = i / 2;
		const row_chunk c = chunk_from<D>(tile.place.dst, (uint64_t)tile.x * D,
		                                  (i % 2 ? end : tile.place.dst) & ~UINT64_C(15));

		if (c.whole || c.first >= c.last || (i % 2 && c.first == 0))
			continue;
		changed += convert_exactly<D>(
		    args, c.address + c.skip + (uint64_t)(y * args.dim[1].dst), (int)(c.last - c.first),
		    operands_of(args, tile, y, c.first),
		    tile_elements<1>{ shared, rows_of(args, tile), (uint32_t)c.first, y, ~0u });
	}
}

template <int D, int CHANNELS> DEVICE void convert_all_channels(const convert_args &args)
{
	DYNAMIC_SHARED(shared);
	const uint32_t number = threadIdx.x / args.team, teams = ROWS_THREADS / args.team;
	const tile_team team = { threadIdx.x - number * args.team, args.team };
	unsigned char *own = shared + number * args.pitch;
	uint32_t changed = 0;

#pragma unroll 1
	for (uint64_t first = blockIdx.x * (uint64_t)teams; first < args.slots;
	     first += (uint64_t)gridDim.x * teams) {
		convert_tile tile;
		const bool there =
		    first + number < args.slots && find_tile(args, first + number, team.rank == 0, tile);

		if (there)
			read_rows(args, tile_source<true>{ args, tile }, tile.block, team, own);
		__syncthreads();
		if (there)
			write_channels<D, CHANNELS>(args, tile, own, team, changed);
		__syncthreads();
	}
	add_changed(args, changed);
}

} // namespace

#define BY_CHANNELS(channels, d)                                                        \
	KERNEL(ROWS_THREADS, d == 1 ? 2 : 3)                                            \
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
