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
#include "tuning.h"

namespace
{

DEVICE bool in_window(const strided_dim &dim, int64_t index)
{
	return index >= dim.before && index - dim.before < dim.source;
}

DEVICE uint64_t divide(uint64_t a, uint64_t b)
{
	return (a | b) >> 32 ? a / b : (uint32_t)a / (uint32_t)b;
}

DEVICE uint4 pattern_of(const strided_args &args)
{
	return make_uint4(args.pattern[0], args.pattern[1], args.pattern[2], args.pattern[3]);
}

/* ---- Rows: contiguous on both sides ------------------------------------------------------------------------- */

/* 16 bytes that begin phase bytes into the 32 of a and b. */
DEVICE uint4 shift_pair(uint4 a, uint4 b, uint32_t phase)
{
	uint32_t shift = phase % 4 * 8;

	if (phase == 0)
		return a;
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

/* Element by element, the pattern where there is none; src is where the row's element 0 would be. */
template <int E> DEVICE uint4 row_take(const strided_args &args, const row_chunk &c, uint64_t src)
{
	const strided_dim &inner = args.dim[0];
	uint32_t words[4] = { args.pattern[0], args.pattern[1], args.pattern[2], args.pattern[3] };

#pragma unroll
	for (uint32_t i = 0; i < 16 / E; i++) {
		int64_t index = c.first + (int64_t)i - (int64_t)(c.skip / E);

		if (index >= c.first && index < c.last && in_window(inner, index))
			chunk_take<E>(words, i, src + (uint64_t)((index - inner.before) * inner.src));
	}
	return make_uint4(words[0], words[1], words[2], words[3]);
}

/* A row of the destination and the source's, which begins at its window. */
struct row_place {
	uint64_t dst;
	uint64_t src;
	bool inside; /* of the outer dimensions' windows */
};

DEVICE row_place row_of(const strided_args &args, uint64_t row)
{
	row_place place = { args.dst, args.src, true };

	row_coordinates(row, args.rank, args.dim, [&](uint32_t d, int64_t index) {
		const strided_dim &dim = args.dim[d];

		place.dst += (uint64_t)(index * dim.dst);
		place.src += (uint64_t)((index - dim.before) * dim.src);
		place.inside = place.inside && in_window(dim, index);
	});
	return place;
}

/* A warp takes ROW_SLOTS slots at a time, each 32 chunks of a row: all are read before the first is written. */
constexpr uint32_t row_slots = ROW_SLOTS;
static_assert(row_slots <= 8, "a phase a slot in 32 bits");

template <int E> DEVICE void rows(const strided_args &args)
{
	const strided_dim &inner = args.dim[0];
	const source_range range = range_of<E>(args);
	const uint64_t row_bytes = (uint64_t)inner.n * E, slots_a_row = (row_chunks(row_bytes) + 31) / 32;
	const uint32_t lane = threadIdx.x % 32, warps = ROWS_THREADS / 32;

	for (uint64_t turn = (uint64_t)blockIdx.x * warps + threadIdx.x / 32; turn * row_slots < args.slots;
	     turn += (uint64_t)gridDim.x * warps) {
		uint4 a[row_slots], b[row_slots];
		uint64_t to[row_slots], row = ~UINT64_C(0), low = 0, high = 0, delta = 0;
		uint32_t fast = 0, phases = 0;
		row_place place;

#pragma unroll
		for (uint32_t u = 0; u < row_slots; u++) {
			uint64_t slot = turn * row_slots + u;

			if (slot >= args.slots)
				break;
			uint64_t its_row = divide(slot, slots_a_row);

			if (its_row != row) {
				row = its_row;
				place = row_of(args, row);
				delta = place.src - (uint64_t)(inner.before * E) - place.dst;
				/* From low to high a chunk is the window's, and what is read around it the source's. */
				low = place.dst + (uint64_t)(inner.before * E);
				high = low + (uint64_t)(inner.source * E) - 16;
				if (delta & 15) {
					uint64_t least = range.low + 15 - delta, most = range.high - 32 - delta;

					low = (int64_t)(least - low) > 0 ? least : low;
					high = (int64_t)(high - most) > 0 ? most : high;
				}
				if (!place.inside)
					high = low - 1;
			}
			to[u] = (place.dst & ~UINT64_C(15)) + 16 * ((slot - row * slots_a_row) * 32 + lane);
			phases |= (uint32_t)(delta & 15) << 4 * u;
			if ((int64_t)(to[u] - low) >= 0 && (int64_t)(high - to[u]) >= 0) {
				const uint4 *from = (const uint4 *)((to[u] + delta) & ~UINT64_C(15));

				fast |= 1u << u;
				a[u] = from[0];
				if (delta & 15)
					b[u] = from[1];
			}
		}
#pragma unroll
		for (uint32_t u = 0; u < row_slots; u++)
			if (fast & 1u << u)
				stream_write((uint4 *)to[u], shift_pair(a[u], b[u], phases >> 4 * u & 15));
#pragma unroll 1
		for (uint32_t u = 0; u < row_slots && turn * row_slots + u < args.slots; u++) {
			if (fast & 1u << u)
				continue;
			uint64_t slot = turn * row_slots + u, its_row = divide(slot, slots_a_row);
			row_place slow = row_of(args, its_row);
			row_chunk c = chunk_of<E>(slow.dst, row_bytes, (slot - its_row * slots_a_row) * 32 + lane);

			if (c.first < c.last)
				chunk_write<E>(c, slow.inside ? row_take<E>(args, c, slow.src) : pattern_of(args));
		}
	}
}

/* ---- Gather: a thread a chunk, whatever the source's strides ------------------------------------------------ */

/* The run of a row is up to three dimensions that follow each other in the destination; where an element is in them
 * is found for the first of a chunk, and carried on. */
template <int E> DEVICE uint4 run_take(const strided_args &args, const row_chunk &c, uint64_t src)
{
	uint32_t words[4] = { args.pattern[0], args.pattern[1], args.pattern[2], args.pattern[3] };
	uint64_t first = (uint64_t)c.first, q = divide(first, (uint64_t)args.dim[0].n);
	int64_t x = (int64_t)(first - q * (uint64_t)args.dim[0].n), y = 0, z = 0;

	if (args.run > 1) {
		uint64_t r = args.run > 2 ? divide(q, (uint64_t)args.dim[1].n) : 0;

		y = (int64_t)(q - r * (uint64_t)args.dim[1].n);
		z = (int64_t)r;
	}
#pragma unroll
	for (uint32_t i = 0; i < 16 / E; i++) {
		if (i < c.skip / E || (int64_t)(i - c.skip / E) >= c.last - c.first)
			continue;
		uint64_t from = src + (uint64_t)((x - args.dim[0].before) * args.dim[0].src);
		bool inside = in_window(args.dim[0], x);

		if (args.run > 1) {
			from += (uint64_t)((y - args.dim[1].before) * args.dim[1].src);
			inside = inside && in_window(args.dim[1], y);
		}
		if (args.run > 2) {
			from += (uint64_t)((z - args.dim[2].before) * args.dim[2].src);
			inside = inside && in_window(args.dim[2], z);
		}
		if (inside)
			chunk_take<E>(words, i, from);
		if (++x == args.dim[0].n) {
			x = 0;
			if (++y == args.dim[1].n) {
				y = 0;
				z++;
			}
		}
	}
	return make_uint4(words[0], words[1], words[2], words[3]);
}

template <int E> DEVICE void gather(const strided_args &args)
{
	uint64_t row_bytes = E;

	for (uint32_t d = 0; d < args.run; d++)
		row_bytes *= (uint64_t)args.dim[d].n;
	const uint64_t chunks = row_chunks(row_bytes);

	for (uint64_t number = (uint64_t)blockIdx.x * ROWS_THREADS + threadIdx.x; number < args.slots;
	     number += (uint64_t)gridDim.x * ROWS_THREADS) {
		uint64_t row = divide(number, chunks), left = row, dst = args.dst, src = args.src;
		bool inside = true;

		for (uint32_t d = args.run; d < args.rank; d++) {
			const strided_dim &dim = args.dim[d];
			uint64_t q = divide(left, (uint64_t)dim.n);
			int64_t index = (int64_t)(left - q * (uint64_t)dim.n);

			left = q;
			dst += (uint64_t)(index * dim.dst);
			src += (uint64_t)((index - dim.before) * dim.src);
			inside = inside && in_window(dim, index);
		}
		row_chunk c = chunk_of<E>(dst, row_bytes, number - row * chunks);

		if (c.first < c.last)
			chunk_write<E>(c, inside ? run_take<E>(args, c, src) : pattern_of(args));
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
constexpr int tiles_warps = tiles_threads / 32;

/* X along the destination's inner dimension, Y along the source's. In shared memory a row of the tile is one x, in
 * words; a word's place in its row is turned by x, so that neither rows nor columns meet in a bank. */
template <int E> struct strided_shape {
	static constexpr int some = E < 4 ? 4 / E : 1; /* elements of a word */
	static constexpr int most_x = E == 16 ? 32 : E < 4 ? 128 : 64;
	static constexpr int most_y = E >= 8 ? 32 : E == 1 ? 128 : 64;
	static constexpr int row_bytes = most_y * E;
};

/* One tile: where its first element lies, how many there are. */
struct tile {
	uint64_t dst;
	uint64_t src;
	int64_t x;
	int64_t y;
	int nx;
	int ny;
	bool inside; /* of the outer dimensions' windows */
};

DEVICE tile tile_of(const strided_args &args, uint64_t number)
{
	const strided_dim &along = args.dim[0], &across = args.dim[1];
	tile t = { args.dst, args.src, 0, 0, 0, 0, true };
	uint64_t n = divide((uint64_t)(along.n + args.tile_x - 1), args.tile_x), q = divide(number, n);

	t.x = (int64_t)(number - q * n) * args.tile_x;
	number = q;
	n = divide((uint64_t)(across.n + args.tile_y - 1), args.tile_y);
	q = divide(number, n);
	t.y = (int64_t)(number - q * n) * args.tile_y;
	number = q;
	for (uint32_t d = 2; d < args.rank; d++) {
		const strided_dim &dim = args.dim[d];
		q = divide(number, (uint64_t)dim.n);
		int64_t index = (int64_t)(number - q * (uint64_t)dim.n);

		number = q;
		t.dst += (uint64_t)(index * dim.dst);
		t.src += (uint64_t)((index - dim.before) * dim.src);
		t.inside = t.inside && in_window(dim, index);
	}
	t.src += (uint64_t)((t.x - along.before) * along.src + (t.y - across.before) * across.src);
	t.dst += (uint64_t)(t.x * along.dst + t.y * across.dst);
	t.nx = along.n - t.x < args.tile_x ? (int)(along.n - t.x) : (int)args.tile_x;
	t.ny = across.n - t.y < args.tile_y ? (int)(across.n - t.y) : (int)args.tile_y;
	return t;
}

/* Where byte `byte` of row x lies. */
template <int E> DEVICE uint32_t tile_byte(int x, int byte)
{
	using shape = strided_shape<E>;
	uint32_t word = (uint32_t)byte / 4, turn = (uint32_t)(x / shape::some) & 31;

	if (E >= 8) /* elements of several words stay together, rows are one element longer */
		return (uint32_t)x * (shape::row_bytes + E) + (uint32_t)byte;
	return (uint32_t)x * shape::row_bytes + ((word ^ turn) << 2) + (uint32_t)byte % 4;
}

/* Whether the whole tile is the window's, and words around its rows may be read. */
template <int E> DEVICE bool tile_is_plain(const strided_args &args, const tile &t)
{
	const source_range range = range_of<E>(args);
	bool window = t.inside && in_window(args.dim[0], t.x) && in_window(args.dim[0], t.x + t.nx - 1) &&
	              in_window(args.dim[1], t.y) && in_window(args.dim[1], t.y + t.ny - 1);
	int64_t reach = (t.nx - 1) * args.dim[0].src;
	uint64_t first = reach < 0 ? t.src + (uint64_t)reach : t.src, last = reach < 0 ? t.src : t.src + (uint64_t)reach;

	return window && (E >= 4 || (first >= range.low + 3 && last + (uint64_t)t.ny * E + 8 <= range.high));
}

template <int E> DEVICE void tile_in_slowly(const strided_args &args, const tile &t, unsigned char *shared)
{
	using type = typename element<E>::type;

	for (int x = threadIdx.x / 32; x < t.nx; x += tiles_warps)
		for (int y = threadIdx.x % 32; y < t.ny; y += 32) {
			type value = *(const type *)args.pattern;

			if (t.inside && in_window(args.dim[0], t.x + x) && in_window(args.dim[1], t.y + y))
				value = *(const type *)(t.src + (uint64_t)(x * args.dim[0].src + y * args.dim[1].src));
			*(type *)(shared + tile_byte<E>(x, y * E)) = value;
		}
}

/* Rows of whole words: read as aligned ones, and shifted into place where a row begins within one. */
template <int E> DEVICE void tile_in_words(const strided_args &args, const tile &t, unsigned char *shared)
{
	using shape = strided_shape<E>;
	constexpr int words = shape::row_bytes / 4, batch = E == 4 ? 4 : 8;
	const int lane = threadIdx.x % 32, used = (t.ny * E + 3) / 4;

	for (int x0 = threadIdx.x / 32; x0 < t.nx; x0 += tiles_warps * batch) {
		uint32_t value[batch][words / 32];

#pragma unroll
		for (int b = 0; b < batch; b++) {
			int x = x0 + b * tiles_warps;
			uint64_t row = t.src + (uint64_t)(x * args.dim[0].src);
			const uint32_t *from = (const uint32_t *)(row & ~UINT64_C(3));
			uint32_t phase = (uint32_t)row & 3;

#pragma unroll
			for (int w = 0; w < words; w += 32)
				if (x < t.nx && w + lane < used) {
					value[b][w / 32] = from[w + lane];
					if (E < 4 && phase)
						value[b][w / 32] =
						    shift_words(value[b][w / 32], from[w + lane + 1], phase * 8);
				}
		}
#pragma unroll
		for (int b = 0; b < batch; b++)
#pragma unroll
			for (int w = 0; w < words; w += 32)
				if (x0 + b * tiles_warps < t.nx && w + lane < used)
					*(uint32_t *)(shared + tile_byte<E>(x0 + b * tiles_warps, (w + lane) * 4)) =
					    value[b][w / 32];
	}
}

template <int E> DEVICE void tile_in_elements(const strided_args &args, const tile &t, unsigned char *shared)
{
	using type = typename element<E>::type;
	constexpr int batch = 4;
	const int lane = threadIdx.x % 32;
	const char *from = (const char *)t.src + lane * args.dim[1].src;

	if (lane >= t.ny)
		return;
	for (int x0 = threadIdx.x / 32; x0 < t.nx; x0 += tiles_warps * batch) {
		type value[batch];

#pragma unroll
		for (int b = 0; b < batch; b++)
			if (x0 + b * tiles_warps < t.nx)
				value[b] = *(const type *)(from + (x0 + b * tiles_warps) * args.dim[0].src);
#pragma unroll
		for (int b = 0; b < batch; b++)
			if (x0 + b * tiles_warps < t.nx)
				*(type *)(shared + tile_byte<E>(x0 + b * tiles_warps, lane * E)) = value[b];
	}
}

template <int E> DEVICE void tile_out_elements(const strided_args &args, const tile &t, const unsigned char *shared)
{
	using type = typename element<E>::type;

#pragma unroll 4
	for (int y = threadIdx.x / 32; y < t.ny; y += tiles_warps)
#pragma unroll 2
		for (int x = threadIdx.x % 32; x < t.nx; x += 32)
			*(type *)(t.dst + (uint64_t)(x * args.dim[0].dst + y * args.dim[1].dst)) =
			    *(const type *)(shared + tile_byte<E>(x, y * E));
}

/* A lane's word and the one before it, as the aligned word that begins skip bytes before. Its bytes within the row,
 * [0, limit) from the 128 bytes of the warp, are written. */
DEVICE void write_word(uint64_t row, int lane, uint32_t before, uint32_t word, uint32_t skip, int limit)
{
	int at = lane * 4 - (int)skip;
	uint32_t v = skip ? shift_words(before, word, 32 - skip * 8) : word;

	if (at >= 0 && at + 4 <= limit) {
		stream_write((uint32_t *)(row + (uint64_t)at), v);
	} else {
		for (int i = 0; i < 4; i++)
			if (at + i >= 0 && at + i < limit)
				*(uint8_t *)(row + (uint64_t)(at + i)) = (uint8_t)(v >> 8 * i);
	}
	if (lane == 31)
		for (int i = 0; i < (int)skip; i++)
			if (128 - (int)skip + i < limit)
				*(uint8_t *)(row + (uint64_t)(128 - (int)skip + i)) = (uint8_t)(word >> 8 * (4 - (int)skip + i));
}

/* Small elements: a lane turns a square of words, one for each of its elements, and the warp writes 128 bytes of
 * each of their rows. */
template <int E> DEVICE void tile_out_words(const strided_args &args, const tile &t, const unsigned char *shared)
{
	using shape = strided_shape<E>;
	constexpr int some = shape::some;
	const int lane = threadIdx.x % 32, words = (t.ny + some - 1) / some;

	for (int unit = threadIdx.x / 32; unit < words * (shape::most_x * E / 128); unit += tiles_warps) {
		int y = unit % words, x = (unit / words * 32 + lane) * some, limit = (t.nx - unit / words * 32 * some) * E;
		uint32_t in[some], out[some];

		if (limit <= 0)
			continue;
		if (limit > 128)
			limit = 128;
#pragma unroll
		for (int i = 0; i < some; i++)
			in[i] = *(const uint32_t *)(shared + tile_byte<E>(x + i, y * 4));
		if constexpr (E == 1) {
			uint32_t ab = pick_bytes(in[0], in[1], 0x5140), cd = pick_bytes(in[2], in[3], 0x5140);
			uint32_t ab2 = pick_bytes(in[0], in[1], 0x7362), cd2 = pick_bytes(in[2], in[3], 0x7362);

			out[0] = pick_bytes(ab, cd, 0x5410);
			out[1] = pick_bytes(ab, cd, 0x7632);
			out[2] = pick_bytes(ab2, cd2, 0x5410);
			out[3] = pick_bytes(ab2, cd2, 0x7632);
		} else if constexpr (E == 2) {
			out[0] = pick_bytes(in[0], in[1], 0x5410);
			out[1] = pick_bytes(in[0], in[1], 0x7632);
		} else {
			out[0] = in[0];
		}
#pragma unroll
		for (int j = 0; j < some; j++) {
			if (y * some + j >= t.ny)
				break;
			uint64_t row = t.dst + (uint64_t)((y * some + j) * args.dim[1].dst) +
			               (uint64_t)(unit / words * 128);
			uint32_t before = E < 4 ? from_lane_before(out[j]) : 0;

			write_word(row, lane, before, out[j], (uint32_t)row & 3, limit);
		}
	}
}

template <int E> DEVICE void tiles(const strided_args &args, unsigned char *shared)
{
	for (uint64_t number = blockIdx.x; number < args.slots; number += gridDim.x) {
		const tile t = tile_of(args, number);

		if (!tile_is_plain<E>(args, t))
			tile_in_slowly<E>(args, t, shared);
		else if (E <= 4 && args.dim[1].src == E)
			tile_in_words<(E <= 4 ? E : 4)>(args, t, shared);
		else if (E >= 8)
			tile_in_elements<E>(args, t, shared);
		else
			tile_in_slowly<E>(args, t, shared);
		__syncthreads();
		if (E <= 4 && args.dim[0].dst == E)
			tile_out_words<(E <= 4 ? E : 4)>(args, t, shared);
		else
			tile_out_elements<E>(args, t, shared);
		__syncthreads();
	}
}

} // namespace

#define STRIDED_KERNELS(e)                                                                                   \
	KERNEL(ROWS_THREADS, 1) strided_rows_##e(const GRID_CONSTANT struct strided_args args)               \
	{                                                                                                    \
		rows<e>(args);                                                                               \
	}                                                                                                    \
	KERNEL(ROWS_THREADS, 1) strided_gather_##e(const GRID_CONSTANT struct strided_args args)             \
	{                                                                                                    \
		gather<e>(args);                                                                             \
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
