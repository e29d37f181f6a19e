/* Transposes that the Tensor Memory Accelerator may not touch: odd bases, ragged rows, high ranks.
 *
 * A block moves a tile through shared memory: in along the source's inner dimension, out along the
 * destination's, by whole words on both sides where elements are smaller. The next tile's words are read
 * while one is written.
 */
#include "strided.cuh"

namespace
{

constexpr int tiles_threads = 256;
constexpr int tiles_warps = tiles_threads / 32;

/* X along the destination's inner dimension, Y along the source's. In shared memory a row of the tile is one
 * x, in words; a word's place in its row is turned by x, so that neither rows nor columns meet in a bank. */
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
	uint64_t first = reach < 0 ? t.src + (uint64_t)reach : t.src,
		 last = reach < 0 ? t.src : t.src + (uint64_t)reach;

	return window && (E >= 4 || (first >= range.low + 3 && last + (uint64_t)t.ny * E + 8 <= range.high));
}

template <int E> DEVICE void tile_in_slowly(const strided_args &args, const tile &t, unsigned char *shared)
{
	using type = typename element<E>::type;

	for (int x = threadIdx.x / 32; x < t.nx; x += tiles_warps)
		for (int y = threadIdx.x % 32; y < t.ny; y += 32) {
			type value = *(const type *)args.pattern;

			if (t.inside && in_window(args.dim[0], t.x + x) && in_window(args.dim[1], t.y + y))
				value = *(const type *)(t.src + (uint64_t)(x * args.dim[0].src +
				                                           y * args.dim[1].src));
			*(type *)(shared + tile_byte<E>(x, y * E)) = value;
		}
}

/* Rows of whole words: each thread holds its 16 words of a tile, so that those of the next one are on their
 * way while this one is written. A row that begins within a word is read as the aligned words around it and
 * shifted into place; the word past its last is held by the lane that the row has the number of. */
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
		const int used = FULL ? shape::row_bytes / 4 : (t.ny * E + 3) / 4,
			  nx = FULL ? shape::most_x : t.nx;
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

	template <bool FULL>
	DEVICE_MEMBER void keep(const strided_args &args, const tile &t, unsigned char *shared)
	{
		const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
		const int used = FULL ? shape::row_bytes / 4 : (t.ny * E + 3) / 4,
			  nx = FULL ? shape::most_x : t.nx;
		const uint32_t step = (uint32_t)args.dim[0].src;

#pragma unroll
		for (int r = 0; r < rows; r++) {
			int x = warp + r * tiles_warps;
			uint32_t phase = ((uint32_t)t.src + (uint32_t)x * step) & 3;

			if (E < 4 && phase) {
				uint32_t next = from_lane(word[r][0], lane + 1), last = from_lane(past, r);

				word[r][0] =
				    shift_words(word[r][0], lane + 1 == used ? last : next, phase * 8);
			}
#pragma unroll
			for (int w = 0; w < across; w++)
				if (x < nx && w * 32 + lane < used)
					*(uint32_t *)(shared + tile_byte<E>(x, (w * 32 + lane) * 4)) =
					    word[r][w];
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

template <int E>
DEVICE void tile_out_elements(const strided_args &args, const tile &t, const unsigned char *shared)
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
template <int E>
DEVICE void turn_words(const uint32_t (&in)[strided_shape<E>::some], uint32_t (&out)[strided_shape<E>::some])
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
				global_write((uint32_t *)(at + g * 128), words[g]);
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
				global_write((uint32_t *)(at + g * 128 - skip), v);
			else
				write_part<E>(at + g * 128 - skip, v, here < 0 ? (int)skip : 0, limit - here);
			before = words[g];
		}
		if (lane == 31)
			write_part<E>(at + PIECES * 128 - 128, words[PIECES - 1], 4 - (int)skip,
			              limit - (PIECES * 128 - 4));
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
				in[i] = *(const uint32_t *)(shared +
				                            tile_byte<E>((g * 32 + lane) * some + i, y * E));
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

#define STRIDED_TILES(e)                                                \
	KERNEL(tiles_threads, TILES_BLOCKS(e))                          \
	strided_tiles_##e(const GRID_CONSTANT struct strided_args args) \
	{                                                               \
		DYNAMIC_SHARED(shared);                                 \
		tiles<e>(args, shared);                                 \
	}
BY_ELEMENT(STRIDED_TILES)
