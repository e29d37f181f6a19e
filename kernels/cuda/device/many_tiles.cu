/* SPDX-License-Identifier: Apache-2.0 */
/* Transposes tensors that the TMA cannot move: odd base addresses, ragged rows, high ranks.
 *
 *     source rows x        registers             shared memory            destination
 *     words of y      ->   transposed        ->  a row is one y:      ->  aligned chunks
 *     at any phase         and shifted           words of x               of 16 bytes
 *
 * A row of the tile in shared memory is a row of the destination. It is written from where its aligned chunks
 * begin: a tile's part of a row starts up to a margin before the tile's own x, depending on the phase of the
 * row. Chunks are then whole everywhere but at the ends of the tensor's rows. The words of the next tile are
 * read while one tile is written. A single move is launched with the same kernel, as the only move of the
 * launch.
 *
 * Axes: x is dimension 0, the destination's innermost; y is dimension 1, the source's innermost.
 */
#include "strided.cuh"

namespace
{

constexpr int tiles_threads = ROWS_THREADS;
constexpr int tiles_warps = tiles_threads / 32;

/* The shape of a tile in words of shared memory. A word has at least 4 bytes, and at least one element. */
template <int E> struct strided_shape {
	static constexpr int some = E < 4 ? 4 / E : 1; /* elements of a word */
	static constexpr int rows = TILES_ROWS(E);     /* extent along x */
	static constexpr int columns = TILES_COLUMNS(E);
	static constexpr int across = columns / 32;
	/* Groups of rows that one thread transposes. */
	static constexpr int groups = rows / some / tiles_warps;
	static constexpr int margin = TILES_MARGIN(E);
	static constexpr int most_y = TILES_Y(E);
	/* Words from one row to the next in shared memory; odd, so that neither rows nor columns meet in a
	 * bank. */
	static constexpr int pitch = TILES_PITCH(E);
	static constexpr int chunks = TILES_X(E) * E / 16;
	static constexpr int lanes = chunks <= 16 ? 16 : 32; /* lanes that write one row */
	using word = typename element<(E < 4 ? 4 : E)>::type;

	static_assert(some * columns * pitch * sizeof(word) == TILES_BYTES(E), "the launch asks for as much");
};

/* A tile. Row r of it has index x + r - margin; only rows [low, high) exist. */
struct tile {
	uint64_t dst; /* address of element (x, y) in the destination */
	uint64_t src; /* address of element (row 0, y) in the source */
	int64_t x;
	int64_t y;
	int low;
	int high;
	int ny;
	bool inside; /* the tile is inside the windows of the outer dimensions */
	/* Only memory of the source in [bottom, top) may be read. */
	uint64_t bottom;
	uint64_t top;
};

/* Returns the tile with this number. If the list has no block there, the tile has neither rows nor columns.
 * `counts` is as in find_item. */
template <int E> DEVICE tile tile_of(const many_move &move, uint64_t number, bool counts)
{
	const strided_args &args = move.move;
	const list_place block = find_block(move, number, counts);
	using shape = strided_shape<E>;
	const strided_dim &along = args.dim[0], &across = args.dim[1];
	tile t = { block.dst, block.src, 0, 0, 0, 0, 0, true, block.low, block.high };
	uint64_t q = divide_by(number, &args.by[0]);

	t.x = (int64_t)(number - q * args.by[0].n) * TILES_X(E);
	number = q;
	q = divide_by(number, &args.by[1]);
	t.y = (int64_t)(number - q * args.by[1].n) * shape::most_y;
	number = q;
#pragma unroll 1
	for (uint32_t d = 2; d < args.rank; d++) {
		const strided_dim &dim = args.dim[d];
		q = divide_by(number, &args.by[d]);
		int64_t index = (int64_t)(number - q * (uint64_t)dim.n);

		number = q;
		t.dst += (uint64_t)(index * dim.dst);
		t.src += (uint64_t)((index - dim.before) * dim.src);
		t.inside = t.inside && in_window(dim, index);
	}
	t.src +=
	    (uint64_t)((t.x - shape::margin - along.before) * along.src + (t.y - across.before) * across.src);
	t.dst += (uint64_t)(t.x * along.dst + t.y * across.dst);
	t.low = t.x < shape::margin ? shape::margin - (int)t.x : 0;
	t.high =
	    along.n - t.x < shape::rows - shape::margin ? (int)(along.n - t.x) + shape::margin : shape::rows;
	t.ny = across.n - t.y < shape::most_y ? (int)(across.n - t.y) : shape::most_y;
	if (!block.there)
		t.low = t.high = t.ny = 0;
	return t;
}

/* The ways to read a tile: by elements, by words of which some may be missing, or by words that all exist. */
enum tile_kind { TILE_ODD, TILE_PART, TILE_FULL };

/* Returns how a tile is read. It is read by words if its rows consist of words and are inside the window, and
 * by words without tests if the words around them may be read as well. */
template <int E> DEVICE tile_kind kind_of(const strided_args &args, const tile &t)
{
	using shape = strided_shape<E>;
	const strided_dim &along = args.dim[0], &across = args.dim[1];
	const int64_t first = t.x - shape::margin + t.low, last = t.x - shape::margin + t.high - 1;
	const bool plain = t.inside && t.low < t.high && in_window(along, first) && in_window(along, last) &&
	                   in_window(across, t.y) && in_window(across, t.y + t.ny - 1);
	bool full = t.low == 0 && t.high == shape::rows && t.ny == shape::most_y;

	if (!plain || (E < 4 && across.src != E))
		return TILE_ODD;
	if (E < 4) {
		const uint64_t a = t.src, b = t.src + (uint64_t)((shape::rows - 1) * along.src);

		full = full && (a < b ? a : b) >= t.bottom + 3 &&
		       (a < b ? b : a) + (uint64_t)t.ny * E + 8 <= t.top;
	}
	return full ? TILE_FULL : TILE_PART;
}

/* ---- In --------------------------------------------------------------------------------------------------
 */

/* Returns the place in shared memory of transposed element j of column c. Neighbouring columns are
 * neighbouring rows there. */
template <int E> DEVICE uint32_t tile_word(int c, int j, int group)
{
	using shape = strided_shape<E>;

	return (uint32_t)((j * shape::columns + c) * shape::pitch + group) * sizeof(typename shape::word);
}

/* Returns the place of the first byte of row y. */
template <int E> DEVICE uint32_t tile_row(int y)
{
	return tile_word<E>(y / strided_shape<E>::some, y % strided_shape<E>::some, 0);
}

template <int E> DEVICE void tile_in_slowly(const strided_args &args, const tile &t, unsigned char *shared)
{
	using type = typename element<E>::type;
	const strided_dim &along = args.dim[0], &across = args.dim[1];
	const int64_t x = t.x - strided_shape<E>::margin;

	for (int y = threadIdx.x % 32; y < t.ny; y += 32)
		for (int first = t.low + threadIdx.x / 32; first < t.high;
		     first += tiles_warps * TILES_BATCH(E)) {
			type value[TILES_BATCH(E)];

#pragma unroll
			for (int u = 0; u < TILES_BATCH(E); u++) {
				const int r = first + u * tiles_warps;

				value[u] = *(const type *)args.pattern;
				if (r < t.high && t.inside && in_window(along, x + r) &&
				    in_window(across, t.y + y))
					value[u] =
					    global_read((const type *)(t.src + (uint64_t)(r * along.src +
					                                                  y * across.src)));
			}
#pragma unroll
			for (int u = 0; u < TILES_BATCH(E); u++)
				if (first + u * tiles_warps < t.high)
					*(type *)(shared + tile_row<E>(y) + (first + u * tiles_warps) * E) =
					    value[u];
		}
}

/* Returns the word at `from`. Its bytes outside [low, high) are not read, but set to 0. */
DEVICE uint32_t careful_word(uint64_t low, uint64_t high, uint64_t from)
{
	uint32_t word = 0;

	if (from >= low && from + 4 <= high)
		return global_read((const uint32_t *)from);
	for (uint32_t i = 0; i < 4; i++)
		if (from + i >= low && from + i < high)
			word |= (uint32_t)global_read((const uint8_t *)(from + i)) << i * 8;
	return word;
}

/* Transposes a square of words, as many as a word has elements: out[j] gets element j of each. */
template <int E, typename WORD>
DEVICE void transpose_words(const WORD (&in)[strided_shape<E>::some], WORD (&out)[strided_shape<E>::some])
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

/* The words of a tile that a thread holds, so that those of the next tile are on their way while this one is
 * written. Rows that begin within a word are read as the aligned words around them. The last word of a row
 * has no next word, so no complete word is made of it. */
template <int E> struct held_words {
	using shape = strided_shape<E>;
	using type = typename shape::word;

	type word[shape::groups][shape::some][shape::across];

	template <bool FULL> DEVICE_MEMBER void read(const strided_args &args, const tile &t)
	{
		const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
		const uint64_t step = (uint64_t)args.dim[0].src, next = E < 4 ? 4 : (uint64_t)args.dim[1].src;
		uint64_t at = t.src + (uint64_t)(warp * shape::some) * step;

#pragma unroll
		for (int g = 0; g < shape::groups; g++) {
#pragma unroll
			for (int s = 0; s < shape::some; s++, at += step) {
				const int r = (warp + g * tiles_warps) * shape::some + s;
				const uint64_t from =
				    (E < 4 ? at & ~UINT64_C(3) : at) + (uint64_t)lane * next;
				const int used = E < 4 ? ((int)(at & 3) + t.ny * E + 3) / 4 : t.ny;

#pragma unroll
				for (int w = 0; w < shape::across; w++) {
					const uint64_t here = from + (uint64_t)(w * 32) * next;

					if (!FULL && (r < t.low || r >= t.high || w * 32 + lane >= used))
						continue;
					if constexpr (!FULL && E < 4)
						word[g][s][w] = careful_word(t.bottom, t.top, here);
					else
						word[g][s][w] = global_read((const type *)here);
				}
			}
			at += (uint64_t)((tiles_warps - 1) * shape::some) * step;
		}
	}

	DEVICE_MEMBER void keep(const strided_args &args, const tile &t, unsigned char *shared)
	{
		const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
		const uint32_t step = (uint32_t)args.dim[0].src;
		const uint32_t first = (uint32_t)t.src + (uint32_t)(warp * shape::some) * step;

#pragma unroll
		for (int g = 0; g < shape::groups; g++)
#pragma unroll
			for (int w = 0; w < shape::across; w++) {
				type in[shape::some], out[shape::some];

#pragma unroll
				for (int s = 0; s < shape::some; s++) {
					in[s] = word[g][s][w];
					if constexpr (E < 4) {
						const int last = w + 1 < shape::across ? w + 1 : w;
						const uint32_t phase =
						    first +
						    (uint32_t)(g * tiles_warps * shape::some + s) * step;
						uint32_t next = lane ? in[s] : word[g][s][last];

						next = from_lane(next, lane + 1);
						in[s] = shift_words(in[s], next, phase * 8);
					}
				}
				transpose_words<E, type>(in, out);
#pragma unroll
				for (int j = 0; j < shape::some; j++)
					*(type *)(shared + tile_word<E>(w * 32 + lane, j,
					                                warp + g * tiles_warps)) = out[j];
			}
	}
};

/* ---- Out -------------------------------------------------------------------------------------------------
 */

/* Returns the 16 bytes at offset `at`, which is a multiple of E. */
template <int E> DEVICE uint4 tile_chunk(const unsigned char *row, uint32_t at)
{
	if constexpr (E == 16) {
		return *(const uint4 *)(row + at);
	} else if constexpr (E == 8) {
		uint2 a = *(const uint2 *)(row + at), b = *(const uint2 *)(row + at + 8);

		return make_uint4(a.x, a.y, b.x, b.y);
	} else {
		const uint32_t *w = (const uint32_t *)(row + (at & ~3u));

		if constexpr (E == 4)
			return make_uint4(w[0], w[1], w[2], w[3]);
		return make_uint4(shift_words(w[0], w[1], at * 8), shift_words(w[1], w[2], at * 8),
		                  shift_words(w[2], w[3], at * 8), shift_words(w[3], w[4], at * 8));
	}
}

template <int E, bool FULL>
DEVICE void tile_out_chunks(const strided_args &args, const tile &t, const unsigned char *shared)
{
	using shape = strided_shape<E>;
	const uint32_t k = threadIdx.x % shape::lanes;
	const int ny = FULL ? shape::most_y : t.ny;

	if (k >= shape::chunks)
		return;
#pragma unroll 4
	for (int y = threadIdx.x / shape::lanes; y < ny; y += tiles_threads / shape::lanes) {
		const uint64_t row = t.dst + (uint64_t)(y * args.dim[1].dst);
		const uint32_t before = (uint32_t)row % TILES_ALIGN(E);
		const uint4 v = tile_chunk<E>(shared + tile_row<E>(y), shape::margin * E - before + 16 * k);
		const uint64_t to = row - before + 16 * k;

		if (FULL)
			global_write((uint4 *)to, v);
		else
			chunk_write<E>(
			    chunk_from<E>(row - (uint64_t)(t.x * E), (uint64_t)(args.dim[0].n * E), to), v);
	}
}

/* Writes the tile element by element. This is seldom needed, so the loops are not unrolled, which would only
 * cost registers. */
template <int E>
DEVICE void tile_out_elements(const strided_args &args, const tile &t, const unsigned char *shared)
{
	using type = typename element<E>::type;
	constexpr int margin = strided_shape<E>::margin;

#pragma unroll 1
	for (int y = threadIdx.x / 32; y < t.ny; y += tiles_warps)
#pragma unroll 1
		for (int r = margin + threadIdx.x % 32; r < t.high; r += 32)
			global_write((type *)(t.dst + (uint64_t)((r - margin) * args.dim[0].dst +
			                                         y * args.dim[1].dst)),
			             *(const type *)(shared + tile_row<E>(y) + r * E));
}

template <int E>
DEVICE void tile_out(const strided_args &args, const tile &t, tile_kind kind, const unsigned char *shared)
{
	if (args.dim[0].dst != E)
		tile_out_elements<E>(args, t, shared);
	else if (kind == TILE_FULL)
		tile_out_chunks<E, true>(args, t, shared);
	else
		tile_out_chunks<E, false>(args, t, shared);
}

/* ---- Tile by tile --------------------------------------------------------------------------------- */

template <int E> DEVICE void tiles(const many_move &move, const share &own, unsigned char *shared)
{
	const strided_args &args = move.move;
	held_words<E> held;
	tile now, next = tile_of<E>(move, own.number, false);
	tile_kind kind, next_kind = TILE_ODD;

	for (uint64_t number = own.number; number < args.slots + own.of; number += own.of) {
		const bool first = number == own.number;

		now = next;
		kind = next_kind;
		if (!first) {
			if (kind == TILE_ODD)
				tile_in_slowly<E>(args, now, shared);
			else
				held.keep(args, now, shared);
			__syncthreads();
		}
		if (number < args.slots) {
			next = tile_of<E>(move, number, threadIdx.x == 0);
			next_kind = kind_of<E>(args, next);
			if (next_kind == TILE_FULL)
				held.template read<true>(args, next);
			else if (next_kind == TILE_PART)
				held.template read<false>(args, next);
		}
		if (!first) {
			tile_out<E>(args, now, kind, shared);
			__syncthreads();
		}
	}
}

} // namespace

#define MANY_TILES(name, e, blocks)                                                         \
	KERNEL(tiles_threads, blocks) name##_##e(const GRID_CONSTANT struct many_args args) \
	{                                                                                   \
		DYNAMIC_SHARED(shared);                                                     \
		grid_wait();                                                                \
		take_moves(args, shared, [&](const share &own, const turn &) {              \
			tiles<e>(*(const many_move *)shared, own, shared + MANY_SHARED);    \
		});                                                                         \
	}
#define MANY_TILES_BOTH(e) MANY_TILES(many_tiles, e, TILES_BLOCKS)
BY_ELEMENT(MANY_TILES_BOTH)
