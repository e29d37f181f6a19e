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

/* A chunk that the source ends in: what there is of it. */
template <int E> DEVICE uint4 read_some(uint64_t chunk, const source_range &range)
{
	uint32_t words[4] = { 0, 0, 0, 0 };

#pragma unroll
	for (uint32_t i = 0; i < 16 / E; i++)
		if (chunk + i * E >= range.low && chunk + i * E + E <= range.high)
			chunk_take<E>(words, i, chunk + i * E);
	return make_uint4(words[0], words[1], words[2], words[3]);
}

/* Bytes [low, high) of a chunk, multiples of E. */
template <int E> DEVICE void write_some(uint64_t chunk, const uint4 &v, int low, int high)
{
	row_chunk c = { chunk, low / E, high / E, (uint32_t)low, false };

	chunk_write<E>(c, v);
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

/* All ones in the bytes of word w that are among bytes [low, high) of a chunk. */
DEVICE uint32_t byte_mask(int w, int low, int high)
{
	int from = min(max(low - 4 * w, 0), 4), to = min(max(high - 4 * w, 0), 4);

	return (to == 4 ? ~0u : (1u << 8 * to) - 1) & (from == 4 ? 0 : ~0u << 8 * from);
}

/* Bytes [low, high) of v, the pattern around them. */
DEVICE uint4 blend(const uint4 &v, const uint4 &pattern, int low, int high)
{
	uint32_t x = byte_mask(0, low, high), y = byte_mask(1, low, high);
	uint32_t z = byte_mask(2, low, high), w = byte_mask(3, low, high);

	return make_uint4((v.x & x) | (pattern.x & ~x), (v.y & y) | (pattern.y & ~y), (v.z & z) | (pattern.z & ~z),
	                  (v.w & w) | (pattern.w & ~w));
}

/* What a lane knows of its chunk between reading and writing: the bytes of it that are the row's and those that are
 * the window's, from 0 to 16, and the source's phase. In one register. */
struct chunk_bounds {
	uint32_t bits;

	DEVICE_MEMBER void set(uint32_t row_low, uint32_t row_high, uint32_t low, uint32_t high, uint32_t phase)
	{
		bits = row_low | row_high << 5 | low << 10 | high << 15 | phase << 20;
	}
	DEVICE_MEMBER int row_low() const { return bits & 31; }
	DEVICE_MEMBER int row_high() const { return bits >> 5 & 31; }
	DEVICE_MEMBER int low() const { return bits >> 10 & 31; }
	DEVICE_MEMBER int high() const { return bits >> 15 & 31; }
	DEVICE_MEMBER uint32_t phase() const { return bits >> 20; }
};

DEVICE uint32_t within_chunk(uint64_t address, uint64_t chunk)
{
	int64_t at = (int64_t)(address - chunk);

	return (uint32_t)(at < 0 ? 0 : at > 16 ? 16 : at);
}

/* A warp takes ROW_SLOTS slots at a time, each 32 chunks of a row: all are read before the first is written. */
template <int E> DEVICE void rows(const strided_args &args)
{
	const strided_dim &inner = args.dim[0];
	const source_range range = range_of<E>(args);
	const uint64_t row_bytes = (uint64_t)inner.n * E, slots_a_row = (row_chunks(row_bytes) + 31) / 32;
	const uint32_t lane = threadIdx.x % 32, warps = ROWS_THREADS / 32;
	const uint4 pattern = pattern_of(args);

	for (uint64_t turn = (uint64_t)blockIdx.x * warps + threadIdx.x / 32; turn * ROW_SLOTS < args.slots;
	     turn += (uint64_t)gridDim.x * warps) {
		uint4 a[ROW_SLOTS], b[ROW_SLOTS];
		uint64_t to[ROW_SLOTS], row = ~UINT64_C(0), delta = 0;
		chunk_bounds bounds[ROW_SLOTS];
		row_place place = { 0, 0, false };

#pragma unroll
		for (uint32_t u = 0; u < ROW_SLOTS; u++) {
			uint64_t number = turn * ROW_SLOTS + u, its_row = divide(number, slots_a_row);

			if (its_row != row) {
				row = its_row;
				place = row_of(args, row);
				delta = place.src - (uint64_t)(inner.before * E) - place.dst;
			}
			uint64_t chunk = (place.dst & ~UINT64_C(15)) + 16 * ((number - row * slots_a_row) * 32 + lane);
			uint64_t window = place.dst + (uint64_t)(inner.before * E);
			uint32_t row_low = within_chunk(place.dst, chunk);
			uint32_t row_high = number < args.slots ? within_chunk(place.dst + row_bytes, chunk) : 0;
			uint32_t low = within_chunk(window, chunk);
			uint32_t high = within_chunk(window + (uint64_t)(inner.source * E), chunk);

			if (!place.inside || low >= high || row_low >= row_high)
				low = high = 0;
			to[u] = chunk;
			bounds[u].set(row_low, row_high, low, high, (uint32_t)delta & 15);
			if (low == high)
				continue;
			uint64_t from = (chunk + delta) & ~UINT64_C(15);

			if (from >= range.low && from + 16 <= range.high)
				a[u] = *(const uint4 *)from;
			else
				a[u] = read_some<E>(from, range);
			if (!(delta & 15))
				continue;
			if (from + 16 >= range.low && from + 32 <= range.high)
				b[u] = *(const uint4 *)(from + 16);
			else
				b[u] = read_some<E>(from + 16, range);
		}
#pragma unroll
		for (uint32_t u = 0; u < ROW_SLOTS; u++) {
			const chunk_bounds own = bounds[u];
			uint4 v = pattern;

			if (own.row_low() >= own.row_high())
				continue;
			if (own.low() < own.high())
				v = shift_pair(a[u], b[u], own.phase());
			if (own.low() > 0 || own.high() < 16)
				v = blend(v, pattern, own.low(), own.high());
			if (own.row_low() == 0 && own.row_high() == 16)
				stream_write((uint4 *)to[u], v);
			else
				write_some<E>(to[u], v, own.row_low(), own.row_high());
		}
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

/* Rows of whole words: each thread holds its 16 words of a tile, so that those of the next one are on their way
 * while this one is written. A row that begins within a word is read as the aligned words around it and shifted into
 * place; the word past its last is held by the lane that the row has the number of. */
template <int E> struct held_words {
	using shape = strided_shape<E>;
	static constexpr int across = shape::row_bytes / 128; /* words of a row that a lane has */
	static constexpr int rows = shape::most_x / tiles_warps;

	uint32_t word[rows][across];
	uint32_t past;

	DEVICE_MEMBER void read(const strided_args &args, const tile &t)
	{
		const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, used = (t.ny * E + 3) / 4;
		const uint64_t step = (uint64_t)(tiles_warps * args.dim[0].src);
		uint64_t row = t.src + (uint64_t)(warp * args.dim[0].src);

		if (E < 4 && lane < rows && warp + lane * tiles_warps < t.nx) {
			uint64_t its = row + (uint64_t)lane * step;

			if (its & 3)
				past = *(const uint32_t *)((its & ~UINT64_C(3)) + 4 * (uint64_t)(used < 32 ? used : 32));
		}
#pragma unroll
		for (int r = 0; r < rows; r++) {
			const uint32_t *from = (const uint32_t *)(row & ~UINT64_C(3));

#pragma unroll
			for (int w = 0; w < across; w++)
				if (warp + r * tiles_warps < t.nx && w * 32 + lane < used)
					word[r][w] = from[w * 32 + lane];
			row += step;
		}
	}

	DEVICE_MEMBER void keep(const strided_args &args, const tile &t, unsigned char *shared)
	{
		const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, used = (t.ny * E + 3) / 4;

#pragma unroll
		for (int r = 0; r < rows; r++) {
			int x = warp + r * tiles_warps;
			uint32_t phase = (uint32_t)(t.src + (uint64_t)(x * args.dim[0].src)) & 3;

			if (E < 4 && phase) {
				uint32_t next = from_lane(word[r][0], lane + 1), last = from_lane(past, r);

				word[r][0] = shift_words(word[r][0], lane + 1 >= used || lane == 31 ? last : next,
				                         phase * 8);
			}
#pragma unroll
			for (int w = 0; w < across; w++)
				if (x < t.nx && w * 32 + lane < used)
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
			uint32_t before = E < 4 ? from_lane(out[j], lane - 1) : 0;

			write_word(row, lane, before, out[j], (uint32_t)row & 3, limit);
		}
	}
}

template <int E> DEVICE void tile_out(const strided_args &args, const tile &t, const unsigned char *shared)
{
	if constexpr (E <= 4)
		if (args.dim[0].dst == E) {
			tile_out_words<E>(args, t, shared);
			return;
		}
	tile_out_elements<E>(args, t, shared);
}

/* Small elements that are contiguous in the source. */
template <int E> DEVICE void word_tiles(const strided_args &args, unsigned char *shared)
{
	held_words<E> held;
	uint64_t number = blockIdx.x;
	tile t = tile_of(args, number);
	bool plain = tile_is_plain<E>(args, t);

	if (plain)
		held.read(args, t);
	for (;;) {
		const tile now = t;

		if (plain)
			held.keep(args, now, shared);
		else
			tile_in_slowly<E>(args, now, shared);
		__syncthreads();
		number += gridDim.x;
		if (number < args.slots) {
			t = tile_of(args, number);
			plain = tile_is_plain<E>(args, t);
			if (plain)
				held.read(args, t);
		}
		tile_out<E>(args, now, shared);
		if (number >= args.slots)
			return;
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
