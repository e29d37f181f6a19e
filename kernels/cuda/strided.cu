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

/* ---- Rows: contiguous on both sides ------------------------------------------------------------------------- */

/* 16 bytes that begin W words and `bits` bits into the 32 bytes of a and b. */
template <int W> DEVICE uint4 shift_pair(const uint4 &a, const uint4 &b, uint32_t bits)
{
	const uint32_t w[9] = { a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w, 0 };

	return make_uint4(shift_words(w[W], w[W + 1], bits), shift_words(w[W + 1], w[W + 2], bits),
	                  shift_words(w[W + 2], w[W + 3], bits), shift_words(w[W + 3], w[W + 4], bits));
}

/* What a warp does of a row: chunks that are wholly the window's, and elements before and after them. */
struct row_part {
	uint64_t to;   /* the first chunk */
	uint64_t from; /* the chunk that it is read from begins here, or phase bytes later */
	uint32_t phase;
	uint32_t chunks;
	int64_t first; /* elements [first, chunks_first) and [chunks_last, last) are left */
	int64_t chunks_first;
	int64_t chunks_last;
	int64_t last;
};

/* W: words of the phase, or -1 when there is none. Loads are ROW_BATCH deep. */
template <int W> DEVICE void copy_chunks(const row_part &part)
{
	const uint4 *from = (const uint4 *)part.from + threadIdx.x % 32;
	uint4 *to = (uint4 *)part.to + threadIdx.x % 32;
	const uint32_t bits = part.phase % 4 * 8;

	for (int left = (int)part.chunks - (int)(threadIdx.x % 32); left > 0; left -= 32 * ROW_BATCH) {
		uint4 a[ROW_BATCH], b[ROW_BATCH];

#pragma unroll
		for (int u = 0; u < ROW_BATCH; u++)
			if (u * 32 < left) {
				a[u] = from[u * 32];
				if (W >= 0)
					b[u] = from[u * 32 + 1];
			}
#pragma unroll
		for (int u = 0; u < ROW_BATCH; u++)
			if (u * 32 < left)
				stream_write(to + u * 32, W >= 0 ? shift_pair<W < 0 ? 0 : W>(a[u], b[u], bits) : a[u]);
		from += 32 * ROW_BATCH;
		to += 32 * ROW_BATCH;
	}
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

	for (uint32_t d = 1; d < args.rank; d++) {
		const strided_dim &dim = args.dim[d];
		uint64_t q = d + 1 < args.rank ? divide(row, (uint64_t)dim.n) : 0;
		int64_t index = (int64_t)(row - q * (uint64_t)dim.n);

		row = q;
		place.dst += (uint64_t)(index * dim.dst);
		place.src += (uint64_t)((index - dim.before) * dim.src);
		place.inside = place.inside && in_window(dim, index);
	}
	return place;
}

/* Elements [first, last) of the row. Chunks that the source cannot be read around are left to the elements. */
template <int E>
DEVICE row_part part_of(const strided_args &args, const source_range &range, const row_place &place, int64_t first,
                        int64_t last)
{
	const strided_dim &inner = args.dim[0];
	const uint64_t delta = place.src - (uint64_t)(inner.before * E) - place.dst;
	int64_t low = first > inner.before ? first : inner.before;
	int64_t high = last < inner.before + inner.source ? last : inner.before + inner.source;
	row_part part = { 0, 0, (uint32_t)delta & 15, 0, first, first, first, last };

	if (!place.inside || low >= high)
		return part;
	uint64_t start = (place.dst + (uint64_t)(low * E) + 15) & ~UINT64_C(15);
	uint64_t end = (place.dst + (uint64_t)(high * E)) & ~UINT64_C(15);

	if (part.phase) {
		if (start + delta < range.low + 16)
			start += 16;
		if (end + delta + 16 > range.high)
			end -= 16;
	}
	if ((int64_t)(end - start) <= 0)
		return part;
	part.to = start;
	part.from = (start + delta) & ~UINT64_C(15);
	part.chunks = (uint32_t)((end - start) / 16);
	part.chunks_first = (int64_t)(start - place.dst) / E;
	part.chunks_last = (int64_t)(end - place.dst) / E;
	return part;
}

template <int E>
DEVICE void copy_elements(const strided_args &args, const row_place &place, int64_t first, int64_t last)
{
	using type = typename element<E>::type;
	const strided_dim &inner = args.dim[0];

	for (int64_t i = first + threadIdx.x % 32; i < last; i += 32) {
		type value = *(const type *)args.pattern;

		if (place.inside && in_window(inner, i))
			value = *(const type *)(place.src + (uint64_t)((i - inner.before) * E));
		*(type *)(place.dst + (uint64_t)(i * E)) = value;
	}
}

/* A warp a row, or a part of ROW_BYTES of a longer one. */
template <int E> DEVICE void rows(const strided_args &args)
{
	constexpr int64_t part_elements = ROW_BYTES / E;
	const source_range range = range_of<E>(args);
	const uint64_t parts = divide((uint64_t)(args.dim[0].n + part_elements - 1), (uint64_t)part_elements);

	for (uint64_t number = (uint64_t)blockIdx.x * (ROWS_THREADS / 32) + threadIdx.x / 32; number < args.slots;
	     number += (uint64_t)gridDim.x * (ROWS_THREADS / 32)) {
		uint64_t row = parts > 1 ? divide(number, parts) : number;
		int64_t first = (int64_t)(number - row * parts) * part_elements;
		int64_t last = args.dim[0].n - first < part_elements ? args.dim[0].n : first + part_elements;
		const row_place place = row_of(args, row);
		const row_part part = part_of<E>(args, range, place, first, last);

		if (part.phase == 0)
			copy_chunks<-1>(part);
		else if (part.phase < 4)
			copy_chunks<0>(part);
		else if (part.phase < 8)
			copy_chunks<1>(part);
		else if (part.phase < 12)
			copy_chunks<2>(part);
		else
			copy_chunks<3>(part);
		copy_elements<E>(args, place, part.first, part.chunks_first);
		copy_elements<E>(args, place, part.chunks_last, part.last);
	}
}

/* ---- Gather: a thread a chunk, whatever the source's strides ------------------------------------------------ */

/* The run of a row is up to three dimensions that follow each other in the destination; where an element is in them
 * is found for the first of a chunk, and carried on. */
template <int E> DEVICE uint4 run_take(const strided_args &args, const row_chunk &c, uint64_t src)
{
	const strided_dim &first = args.dim[0], &second = args.dim[args.run > 1 ? 1 : 0],
	                  &third = args.dim[args.run > 2 ? 2 : 0];
	uint32_t words[4] = { args.pattern[0], args.pattern[1], args.pattern[2], args.pattern[3] };
	uint64_t q = divide((uint64_t)c.first, (uint64_t)first.n);
	uint64_t r = args.run > 1 ? divide(q, (uint64_t)second.n) : 0;
	int64_t x = c.first - (int64_t)q * first.n, y = (int64_t)q - (int64_t)r * second.n, z = (int64_t)r;
	uint64_t from = src + (uint64_t)((x - first.before) * first.src);
	bool inside = true;

	if (args.run > 1) {
		from += (uint64_t)((y - second.before) * second.src);
		inside = in_window(second, y);
	}
	if (args.run > 2) {
		from += (uint64_t)((z - third.before) * third.src);
		inside = inside && in_window(third, z);
	}
#pragma unroll
	for (uint32_t i = 0; i < 16 / E; i++) {
		if (i < c.skip / E || (int64_t)(i - c.skip / E) >= c.last - c.first)
			continue;
		if (inside && in_window(first, x))
			chunk_take<E>(words, i, from);
		from += (uint64_t)first.src;
		if (++x < first.n)
			continue;
		x = 0;
		from += (uint64_t)(second.src - first.n * first.src);
		if (++y == second.n && args.run > 2) {
			y = 0;
			from += (uint64_t)(third.src - second.n * second.src);
			z++;
		}
		inside = (args.run < 2 || in_window(second, y)) && (args.run < 3 || in_window(third, z));
	}
	return make_uint4(words[0], words[1], words[2], words[3]);
}

/* The same for a chunk that is all the row's, where no dimension is padded: little to do for an element. */
template <int E> DEVICE uint4 run_take_whole(const strided_args &args, const row_chunk &c, uint64_t src)
{
	const uint32_t n = (uint32_t)args.dim[0].n, m = args.run > 1 ? (uint32_t)args.dim[1].n : ~0u;
	const uint64_t step = (uint64_t)args.dim[0].src;
	const uint64_t turn = args.run > 1 ? (uint64_t)(args.dim[1].src - args.dim[0].n * args.dim[0].src) : 0;
	const uint64_t turn2 = args.run > 2 ? (uint64_t)(args.dim[2].src - args.dim[1].n * args.dim[1].src) : 0;
	uint64_t q = divide((uint64_t)c.first, n), r = args.run > 2 ? divide(q, m) : 0;
	uint32_t x = (uint32_t)((uint64_t)c.first - q * n), y = (uint32_t)(q - r * m);
	uint32_t words[4];

	src += x * step;
	if (args.run > 1)
		src += (uint64_t)(y * args.dim[1].src);
	if (args.run > 2)
		src += (uint64_t)((int64_t)r * args.dim[2].src);
#pragma unroll
	for (uint32_t i = 0; i < 16 / E; i++) {
		chunk_take<E>(words, i, src);
		src += step;
		if (++x == n && i + 1 < 16 / E) {
			x = 0;
			src += turn;
			if (++y == m) {
				y = 0;
				src += turn2;
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

		if (c.whole && args.whole)
			stream_write((uint4 *)c.address, run_take_whole<E>(args, c, src));
		else if (c.first < c.last)
			chunk_write<E>(c, inside ? run_take<E>(args, c, src) : pattern_of(args));
	}
}

/* ---- Tiles -------------------------------------------------------------------------------------------- */

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

/* Rows of whole words: each thread holds its 16 words of a tile, so that those of the next one are on their way
 * while this one is written. A row that begins within a word is read as the aligned words around it and shifted into
 * place; the word past its last is held by the lane that the row has the number of. */
template <int E> struct held_words {
	using shape = strided_shape<E>;
	static constexpr int across = shape::row_bytes / 128; /* words of a row that a lane has */
	static constexpr int rows = shape::most_x / tiles_warps;

	uint32_t word[rows][across];
	uint32_t past;

	/* FULL: of a tile that has all its rows and columns. */
	template <bool FULL> DEVICE_MEMBER void read(const strided_args &args, const tile &t)
	{
		const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
		const int used = FULL ? shape::row_bytes / 4 : (t.ny * E + 3) / 4, nx = FULL ? shape::most_x : t.nx;
		const uint64_t step = (uint64_t)(tiles_warps * args.dim[0].src);
		uint64_t row = t.src + (uint64_t)(warp * args.dim[0].src);

		if (E < 4 && lane < rows && warp + lane * tiles_warps < nx) {
			uint64_t its = row + (uint64_t)lane * step;

			if (its & 3)
				past = *(const uint32_t *)((its & ~UINT64_C(3)) + 4 * (uint64_t)used);
		}
#pragma unroll
		for (int r = 0; r < rows; r++) {
			const uint32_t *from = (const uint32_t *)(row & ~UINT64_C(3)) + lane;

#pragma unroll
			for (int w = 0; w < across; w++)
				if (warp + r * tiles_warps < nx && w * 32 + lane < used)
					word[r][w] = from[w * 32];
			row += step;
		}
	}

	template <bool FULL> DEVICE_MEMBER void keep(const strided_args &args, const tile &t, unsigned char *shared)
	{
		const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
		const int used = FULL ? shape::row_bytes / 4 : (t.ny * E + 3) / 4, nx = FULL ? shape::most_x : t.nx;
		const uint32_t step = (uint32_t)args.dim[0].src;

#pragma unroll
		for (int r = 0; r < rows; r++) {
			int x = warp + r * tiles_warps;
			uint32_t phase = ((uint32_t)t.src + (uint32_t)x * step) & 3;

			if (E < 4 && phase) {
				uint32_t next = from_lane(word[r][0], lane + 1), last = from_lane(past, r);

				word[r][0] = shift_words(word[r][0], lane + 1 == used ? last : next, phase * 8);
			}
#pragma unroll
			for (int w = 0; w < across; w++)
				if (x < nx && w * 32 + lane < used)
					*(uint32_t *)(shared + tile_byte<E>(x, (w * 32 + lane) * 4)) = word[r][w];
		}
	}
};

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

/* A square of words, one for each of its elements, turned: out[j] has element j of each. */
template <int E> DEVICE void turn_words(const uint32_t (&in)[strided_shape<E>::some], uint32_t (&out)[strided_shape<E>::some])
{
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
}

/* Bytes [from, to) of a word, at their place in a row; multiples of E. */
template <int E> DEVICE void write_part(uint64_t at, uint32_t word, int from, int to)
{
	using type = typename element<E>::type;

#pragma unroll
	for (int i = 0; i < 4; i += E)
		if (i >= from && i < to)
			*(type *)(at + (uint64_t)i) = (type)(word >> 8 * i);
}

/* A row's words as its lanes hold them, 32 to each of PIECES, as aligned words; what is left at its ends as
 * elements. limit: bytes of the row. */
template <int E, int PIECES> DEVICE void write_row(uint64_t row, const uint32_t (&words)[PIECES], int limit)
{
	const int lane = threadIdx.x % 32;
	const uint32_t skip = (uint32_t)row & 3;
	uint64_t at = row + (uint64_t)(lane * 4);
	uint32_t before = 0;

	if (E == 4 || skip == 0) {
#pragma unroll
		for (int g = 0; g < PIECES; g++) {
			int here = g * 128 + lane * 4;

			if (here + 4 <= limit)
				stream_write((uint32_t *)(at + g * 128), words[g]);
			else if (here < limit)
				write_part<E>(at + g * 128, words[g], 0, limit - here);
		}
		return;
	}
	if constexpr (E < 4) {
#pragma unroll
		for (int g = 0; g < PIECES; g++) {
			uint32_t last = from_lane(before, 31), next = from_lane(words[g], lane - 1);
			uint32_t v = shift_words(lane ? next : last, words[g], 32 - skip * 8);
			int here = g * 128 + lane * 4 - (int)skip;

			if (here >= 0 && here + 4 <= limit)
				stream_write((uint32_t *)(at + g * 128 - skip), v);
			else
				write_part<E>(at + g * 128 - skip, v, here < 0 ? (int)skip : 0, limit - here);
			before = words[g];
		}
		if (lane == 31)
			write_part<E>(at + PIECES * 128 - 128, words[PIECES - 1], 4 - (int)skip, limit - (PIECES * 128 - 4));
	}
}

template <int E, bool FULL>
DEVICE void tile_out_words(const strided_args &args, const tile &t, const unsigned char *shared)
{
	using shape = strided_shape<E>;
	constexpr int some = shape::some, pieces = shape::most_x * E / 128;
	const int lane = threadIdx.x % 32, ny = FULL ? shape::most_y : t.ny;
	const int limit = (FULL ? shape::most_x : t.nx) * E;

#pragma unroll 2
	for (int y = threadIdx.x / 32 * some; y < ny; y += tiles_warps * some) {
		uint32_t out[pieces][some], line[some][pieces];
		uint64_t row = t.dst + (uint64_t)(y * args.dim[1].dst);

#pragma unroll
		for (int g = 0; g < pieces; g++) {
			uint32_t in[some];

#pragma unroll
			for (int i = 0; i < some; i++)
				in[i] = *(const uint32_t *)(shared + tile_byte<E>((g * 32 + lane) * some + i, y * E));
			turn_words<E>(in, out[g]);
#pragma unroll
			for (int j = 0; j < some; j++)
				line[j][g] = out[g][j];
		}
#pragma unroll
		for (int j = 0; j < some; j++) {
			if (FULL || y + j < ny)
				write_row<E, pieces>(row, line[j], limit);
			row += (uint64_t)args.dim[1].dst;
		}
	}
}

template <int E> DEVICE bool tile_is_full(const tile &t)
{
	return t.nx == strided_shape<E>::most_x && t.ny == strided_shape<E>::most_y;
}

template <int E> DEVICE void tile_out(const strided_args &args, const tile &t, const unsigned char *shared)
{
	if constexpr (E <= 4)
		if (args.dim[0].dst == E) {
			if (tile_is_full<E>(t))
				tile_out_words<E, true>(args, t, shared);
			else
				tile_out_words<E, false>(args, t, shared);
			return;
		}
	tile_out_elements<E>(args, t, shared);
}

/* Small elements that are contiguous in the source. */
template <int E> DEVICE void word_tiles(const strided_args &args, unsigned char *shared)
{
	held_words<E> held;
	uint64_t number = blockIdx.x;
	tile now, next = tile_of(args, number);
	bool plain = tile_is_plain<E>(args, next);

	if (plain && tile_is_full<E>(next))
		held.template read<true>(args, next);
	else if (plain)
		held.template read<false>(args, next);
	while (number < args.slots) {
		now = next;
		if (!plain)
			tile_in_slowly<E>(args, now, shared);
		else if (tile_is_full<E>(now))
			held.template keep<true>(args, now, shared);
		else
			held.template keep<false>(args, now, shared);
		__syncthreads();
		number += gridDim.x;
		if (number < args.slots) {
			next = tile_of(args, number);
			plain = tile_is_plain<E>(args, next);
			if (plain && tile_is_full<E>(next))
				held.template read<true>(args, next);
			else if (plain)
				held.template read<false>(args, next);
		}
		tile_out<E>(args, now, shared);
		__syncthreads();
	}
}

template <int E> DEVICE void tiles(const strided_args &args, unsigned char *shared)
{
	if constexpr (E <= 4)
		if (args.dim[1].src == E) {
			word_tiles<E>(args, shared);
			return;
		}
	for (uint64_t number = blockIdx.x; number < args.slots; number += gridDim.x) {
		const tile t = tile_of(args, number);

		if (E >= 8 && tile_is_plain<E>(args, t))
			tile_in_elements<E>(args, t, shared);
		else
			tile_in_slowly<E>(args, t, shared);
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
	KERNEL(ROWS_THREADS, 1) strided_gather_##e(const GRID_CONSTANT struct strided_args args)             \
	{                                                                                                    \
		gather<e>(args);                                                                             \
	}                                                                                                    \
	KERNEL(tiles_threads, 3) strided_tiles_##e(const GRID_CONSTANT struct strided_args args)             \
	{                                                                                                    \
		DYNAMIC_SHARED(shared);                                                                      \
		tiles<e>(args, shared);                                                                      \
	}

STRIDED_KERNELS(1)
STRIDED_KERNELS(2)
STRIDED_KERNELS(4)
STRIDED_KERNELS(8)
STRIDED_KERNELS(16)
