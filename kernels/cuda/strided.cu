/* What the Tensor Memory Accelerator may not touch: odd bases, ragged rows, negative strides, high ranks.
 *
 * rows: the destination is written in aligned chunks of 16 bytes. Where the source is contiguous too, a chunk is
 * read as the two aligned chunks around it and shifted into place, whatever the phases of the two; else element by
 * element.
 *
 * tiles: the source's inner dimension is not the destination's. A block moves one tile through shared memory: in
 * along the source's inner dimension, out along the destination's, by whole words on both sides where elements
 * are smaller.
 */
#include "rows.cuh"

namespace
{

DEVICE bool in_window(const strided_dim &dim, int64_t index)
{
	return index >= dim.before && index - dim.before < dim.source;
}

/* ---- Rows --------------------------------------------------------------------------------------------- */

/* 16 bytes from an address of any phase; the two aligned chunks around them must be readable. */
DEVICE uint4 read_shifted(uint64_t address)
{
	const uint4 *from = (const uint4 *)(address & ~UINT64_C(15));
	uint32_t phase = (uint32_t)address & 15;
	uint4 a = *from;

	if (phase == 0)
		return a;
	uint4 b = from[1];
	uint32_t shift = phase % 4 * 8;

	if (phase & 8) {
		a = make_uint4(a.z, a.w, b.x, b.y);
		b = make_uint4(b.z, b.w, 0, 0);
	}
	if (phase & 4) {
		a = make_uint4(a.y, a.z, a.w, b.x);
		b.x = b.y;
	}
	return make_uint4(shift_words(a.x, a.y, shift), shift_words(a.y, a.z, shift),
	                  shift_words(a.z, a.w, shift), shift_words(a.w, b.x, shift));
}

/* The lowest and the highest address of the source's rows: what may be read around a chunk. */
struct source_range {
	uint64_t low;
	uint64_t high;
};

template <int E> DEVICE source_range range_of(const strided_args &args)
{
	source_range range = { args.src, args.src + E };

	for (uint32_t d = 0; d < args.rank; d++) {
		int64_t reach = (args.dim[d].source - 1) * args.dim[d].src;

		if (reach < 0)
			range.low += (uint64_t)reach;
		else
			range.high += (uint64_t)reach;
	}
	return range;
}

template <int E>
DEVICE uint4 row_read(const strided_args &args, const source_range &range, const row_chunk &c, uint64_t src)
{
	const strided_dim &inner = args.dim[0];
	uint64_t from = src + (uint64_t)((c.first - inner.before) * inner.src) - c.skip;
	uint32_t words[4] = { args.pattern[0], args.pattern[1], args.pattern[2], args.pattern[3] };

	if (inner.src == E && in_window(inner, c.first) && in_window(inner, c.last - 1) &&
	    (from & ~UINT64_C(15)) >= range.low && (from + 15 | 15) < range.high)
		return read_shifted(from);
#pragma unroll
	for (uint32_t i = 0; i < 16 / E; i++) {
		int64_t index = c.first + (int64_t)i - (int64_t)(c.skip / E);

		if (index >= c.first && index < c.last && in_window(inner, index))
			chunk_take<E>(words, i, src + (uint64_t)((index - inner.before) * inner.src));
	}
	return make_uint4(words[0], words[1], words[2], words[3]);
}

template <int E> DEVICE void rows(const strided_args &args)
{
	const source_range range = range_of<E>(args);
	const uint64_t row_bytes = (uint64_t)args.dim[0].n * E;
	const uint64_t chunks = row_chunks(row_bytes);

	for (uint64_t block = blockIdx.x; block < args.tiles; block += gridDim.x) {
		row_chunk chunk[ROWS_BATCH];
		uint4 v[ROWS_BATCH];
		uint64_t row0 = block * ROWS_BLOCK / chunks;
		uint64_t k0 = block * ROWS_BLOCK - row0 * chunks + threadIdx.x;

#pragma unroll
		for (uint32_t b = 0; b < ROWS_BATCH; b++) {
			uint64_t k = k0 + b * ROWS_THREADS, row = row0, dst = args.dst, src = args.src;
			bool inside = true;

			if (k >= chunks) {
				uint64_t q = k >> 32 ? k / chunks : (uint32_t)k / (uint32_t)chunks;

				row += q;
				k -= q * chunks;
			}
			row_coordinates(row, args.rank, args.dim, [&](uint32_t d, int64_t index) {
				const strided_dim &dim = args.dim[d];

				dst += (uint64_t)(index * dim.dst);
				src += (uint64_t)((index - dim.before) * dim.src);
				inside = inside && in_window(dim, index);
				if (d + 1 == args.rank && index >= dim.n)
					k = chunks; /* past the last row: nothing */
			});
			if (args.rank == 1 && row > 0)
				k = chunks;
			chunk[b] = chunk_of<E>(dst, row_bytes, k);
			if (chunk[b].first >= chunk[b].last)
				continue;
			v[b] = inside ? row_read<E>(args, range, chunk[b], src)
			              : make_uint4(args.pattern[0], args.pattern[1], args.pattern[2],
			                           args.pattern[3]);
		}
#pragma unroll
		for (uint32_t b = 0; b < ROWS_BATCH; b++)
			if (chunk[b].first < chunk[b].last)
				chunk_write<E>(chunk[b], v[b]);
	}
}

/* ---- Tiles -------------------------------------------------------------------------------------------- */

template <int E> struct element;
template <> struct element<1> {
	typedef uint8_t type;
};
template <> struct element<2> {
	typedef uint16_t type;
};
template <> struct element<4> {
	typedef uint32_t type;
};
template <> struct element<8> {
	typedef uint2 type;
};
template <> struct element<16> {
	typedef uint4 type;
};

constexpr int tiles_threads = 256;

/* X along the destination's inner dimension, Y along the source's. A row of the tile is one x. Small elements
 * travel as words, which begin up to 3 bytes before the row; its phase says where in the first word. */
template <int E> struct strided_shape {
	static constexpr int tile_x = E == 1 ? 128 : E == 16 ? 32 : 64;
	static constexpr int tile_y = E == 1 ? 128 : E >= 8 ? 32 : 64;
	static constexpr int words = E < 4 ? tile_y * E / 4 + 1 : 0; /* of a row */
	static constexpr int pitch = E < 4 ? (words | 1) * 4 : (tile_y + 1) * E;
	static constexpr int bytes = tile_x * pitch;
};

/* One tile: where its first element lies, what of it there is. */
struct tile {
	uint64_t dst;
	uint64_t src;
	int64_t x;
	int64_t y;
	bool inside; /* of the outer dimensions' windows */
};

template <int E> DEVICE tile tile_of(const strided_args &args, uint64_t number)
{
	using shape = strided_shape<E>;
	uint64_t across = (uint64_t)(args.dim[0].n + shape::tile_x - 1) / shape::tile_x;
	uint64_t down = (uint64_t)(args.dim[1].n + shape::tile_y - 1) / shape::tile_y;
	tile t = { args.dst, args.src, 0, 0, true };

	t.x = (int64_t)(number % across) * shape::tile_x;
	number /= across;
	t.y = (int64_t)(number % down) * shape::tile_y;
	number /= down;
	for (uint32_t d = 2; d < args.rank; d++) {
		const strided_dim &dim = args.dim[d];
		int64_t index = (int64_t)(number % (uint64_t)dim.n);

		number /= (uint64_t)dim.n;
		t.dst += (uint64_t)(index * dim.dst);
		t.src += (uint64_t)((index - dim.before) * dim.src);
		t.inside = t.inside && in_window(dim, index);
	}
	t.src += (uint64_t)((t.x - args.dim[0].before) * args.dim[0].src +
	                    (t.y - args.dim[1].before) * args.dim[1].src);
	t.dst += (uint64_t)(t.x * args.dim[0].dst + t.y * args.dim[1].dst);
	return t;
}

/* Bytes of phase of the tile's row x: where in its first word the row begins. */
template <int E> DEVICE uint32_t row_phase(const strided_args &args, const tile &t, int x)
{
	return E < 4 && args.dim[1].src == E ? (uint32_t)(t.src + (uint64_t)(x * args.dim[0].src)) & 3 : 0;
}

template <int E>
DEVICE void tile_in_elements(const strided_args &args, const tile &t, unsigned char *shared, int x, int from, int to,
                             int step)
{
	using type = typename element<E>::type;
	using shape = strided_shape<E>;

#pragma unroll 8
	for (int y = from; y < to; y += step) {
		type value = *(const type *)args.pattern;

		if (t.inside && in_window(args.dim[0], t.x + x) && in_window(args.dim[1], t.y + y))
			value = *(const type *)(t.src + (uint64_t)(x * args.dim[0].src + y * args.dim[1].src));
		*(type *)(shared + x * shape::pitch + row_phase<E>(args, t, x) + y * E) = value;
	}
}

/* Whole words of a row while they lie within it, else its elements one by one. */
template <int E> DEVICE void tile_in(const strided_args &args, const tile &t, unsigned char *shared)
{
	using shape = strided_shape<E>;
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = tiles_threads / 32;
	const source_range range = range_of<E>(args);
	const bool packed = E < 4 && args.dim[1].src == E && t.inside && in_window(args.dim[1], t.y) &&
	                    in_window(args.dim[1], t.y + shape::tile_y - 1);

#pragma unroll 4
	for (int x = warp; x < shape::tile_x; x += warps) {
		uint64_t row = (t.src + (uint64_t)(x * args.dim[0].src)) & ~UINT64_C(3);

		if (packed && in_window(args.dim[0], t.x + x) && row >= range.low &&
		    row + shape::words * 4 <= range.high) {
			uint32_t *to = (uint32_t *)(shared + x * shape::pitch);

#pragma unroll
			for (int w = 0; w < shape::words; w += 32)
				if (w + lane < shape::words)
					to[w + lane] = ((const uint32_t *)row)[w + lane];
		} else {
			tile_in_elements<E>(args, t, shared, x, lane, shape::tile_y, 32);
		}
	}
}

/* Element x, y of the tile, as it lies in shared memory. */
template <int E>
DEVICE typename element<E>::type tile_at(const strided_args &args, const tile &t, const unsigned char *shared, int x,
                                         int y)
{
	return *(const typename element<E>::type *)(shared + x * strided_shape<E>::pitch +
	                                            row_phase<E>(args, t, x) + y * E);
}

template <int E>
DEVICE void out_element(const strided_args &args, const tile &t, const unsigned char *shared, int x, int y)
{
	if (x >= 0 && x < strided_shape<E>::tile_x && t.x + x < args.dim[0].n)
		*(typename element<E>::type *)(t.dst + (uint64_t)(x * args.dim[0].dst + y * args.dim[1].dst)) =
		    tile_at<E>(args, t, shared, x, y);
}

/* Small elements leave as aligned words of a destination row; its ends one by one. Lanes go 8 along x by 4 along
 * y, so that those of one word of a tile's row share it and the others meet other banks. */
template <int E> DEVICE void tile_out_words(const strided_args &args, const tile &t, const unsigned char *shared)
{
	using shape = strided_shape<E>;
	constexpr int some = 4 / E, words = shape::tile_x / some + 1;
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = tiles_threads / 32;

	for (int y = warp * 4 + lane % 4; y < shape::tile_y; y += warps * 4) {
		if (t.y + y >= args.dim[1].n)
			break;
		uint64_t row = t.dst + (uint64_t)(y * args.dim[1].dst);
		int skip = (int)(row & 3) / E;

		for (int w = lane / 4; w < words; w += 8) {
			int x = w * some - skip;

			if (x < 0 || x + some > shape::tile_x || t.x + x + some > args.dim[0].n) {
				for (int i = 0; i < some; i++)
					out_element<E>(args, t, shared, x + i, y);
				continue;
			}
			uint32_t word = 0;

#pragma unroll
			for (int i = 0; i < some; i++)
				word |= (uint32_t)*(const typename element<E>::type *)(
				            shared + (x + i) * shape::pitch + row_phase<E>(args, t, x + i) + y * E)
				        << i * E * 8;
			stream_write((uint32_t *)(row + (uint64_t)(x * E)), word);
		}
	}
}

template <int E> DEVICE void tile_out(const strided_args &args, const tile &t, const unsigned char *shared)
{
	using shape = strided_shape<E>;
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = tiles_threads / 32;

	if constexpr (E < 4)
		if (args.dim[0].dst == E) {
			tile_out_words<E>(args, t, shared);
			return;
		}
#pragma unroll 4
	for (int y = warp; y < shape::tile_y; y += warps) {
		if (t.y + y >= args.dim[1].n)
			break;
#pragma unroll
		for (int x = lane; x < shape::tile_x; x += 32)
			out_element<E>(args, t, shared, x, y);
	}
}

template <int E> DEVICE void tiles(const strided_args &args, unsigned char *shared)
{
	for (uint64_t number = blockIdx.x; number < args.tiles; number += gridDim.x) {
		tile t = tile_of<E>(args, number);

		tile_in<E>(args, t, shared);
		__syncthreads();
		tile_out<E>(args, t, shared);
		__syncthreads();
	}
}

} // namespace

#define STRIDED_KERNELS(e)                                                                                   \
	KERNEL(ROWS_THREADS, 1) strided_rows_##e(const GRID_CONSTANT struct strided_args args)               \
	{                                                                                                    \
		rows<e>(args);                                                                               \
	}                                                                                                    \
	KERNEL(tiles_threads, 1) strided_tiles_##e(const GRID_CONSTANT struct strided_args args)             \
	{                                                                                                    \
		DYNAMIC_SHARED(shared);                                                                      \
		tiles<e>(args, shared);                                                                      \
	}

STRIDED_KERNELS(1)
STRIDED_KERNELS(2)
STRIDED_KERNELS(4)
STRIDED_KERNELS(8)
STRIDED_KERNELS(16)
