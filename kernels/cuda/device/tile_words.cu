/* SPDX-License-Identifier: Apache-2.0 */
/* Moves tiles of many axes whose elements have one or two bytes, several rows at a time: as many as fill one
 * or two words. The rows of such a group are neighbours in the source, so the words at an entry's place in
 * the slots hold an element of each row. Byte permutes turn the words of sixteen entries (of one byte) or
 * eight (of two) into a chunk of each row.
 *
 * These chunks are counted from the row's first element. If the row begins p bytes past an aligned address,
 * the destination's aligned chunks lie p bytes before them. The missing bytes come from the lane that has the
 * chunk before.
 */
#include "permute_table.cuh"

namespace
{

constexpr uint32_t past_all = 0xffe0; /* an offset at which no row has a chunk */

/* ---- Chunks -------------------------------------------------------------------------------------------- */

/* The divisor of a row's chunks is kept in shared memory: it depends on the tile, and registers are
 * scarce. */
constexpr uint32_t by_chunks_at = 16;
static_assert(by_chunks_at + 16 <= PERMUTE_SLOTS_AT, "the slots come after it");

DEVICE const divisor &chunks_of(const permute_args &args, const permute_tile &t)
{
	return t.last ? args.by_chunks : args.by_inner_chunks;
}

DEVICE void note_chunks(const permute_args &args, const permute_tile &t, unsigned char *shared)
{
	const divisor &by = chunks_of(args, t);

	tile_write<uint4>(shared + by_chunks_at, make_uint4((uint32_t)by.n, by.factor, by.shift, 0));
}

DEVICE divisor noted_chunks(const unsigned char *shared)
{
	const uint4 by = tile_read<uint4>(shared + by_chunks_at);

	return { by.x, by.y, by.z };
}

/* ---- Reading ------------------------------------------------------------------------------------------- */

/* Reads W words of the slots. Only the lower 16 bits of `place` count. ALIGN is the alignment of the words in
 * bytes; 8 helps only if W is 2. */
template <int W, int ALIGN, bool SKEWED>
DEVICE void read_words(const unsigned char *slots, uint32_t place, uint32_t skew, uint32_t (&words)[W])
{
	const uint32_t at = place & (ALIGN >= 4 ? 0xffff : 0xfffc);

	if constexpr (ALIGN == 8 && W == 2) {
		const uint2 both = tile_read_around<uint2>(slots + skewed<SKEWED>(at, skew), false);

		words[0] = both.x;
		words[1] = both.y;
		return;
	}
	uint32_t before = tile_read_around<uint32_t>(slots + skewed<SKEWED>(at, skew), false);

#pragma unroll
	for (uint32_t w = 0; w < W; w++) {
		uint32_t after = 0;

		if (w + 1 < W || ALIGN < 4)
			after =
			    tile_read_around<uint32_t>(slots + skewed<SKEWED>(at + 4 + 4 * w, skew), false);
		words[w] = ALIGN < 4 ? shift_words(before, after, place * 8) : before;
		before = after;
	}
}

/* Transposes four words: byte r of word i becomes byte i of word r. */
DEVICE void transpose_words(uint32_t (&w)[4])
{
	const uint32_t a = pick_bytes(w[0], w[1], 0x5140), b = pick_bytes(w[2], w[3], 0x5140),
		       c = pick_bytes(w[0], w[1], 0x7362), d = pick_bytes(w[2], w[3], 0x7362);

	w[0] = pick_bytes(a, b, 0x5410);
	w[1] = pick_bytes(a, b, 0x7632);
	w[2] = pick_bytes(c, d, 0x5410);
	w[3] = pick_bytes(c, d, 0x7632);
}

/* Reads a chunk of each row of a group of W words; v[r][i] becomes word i of row r's chunk. `at` holds the
 * place of the group's rows in both of its 16-bit halves, so that one addition gives the places of two
 * entries. No place exceeds 16 bits. */
template <int E, int W, int ALIGN, bool SKEWED>
DEVICE void gather_chunks(const unsigned char *slots, uint32_t skew, uint32_t at, const uint16_t *offsets,
                          uint32_t (&v)[8 / E][4])
{
	constexpr int entries = 4 / E; /* entries that make a word of a row */

#pragma unroll
	for (int half = 0; half < 2 / E; half++) {
		const uint4 o = tile_read<uint4>(offsets + 8 * half);
		const uint32_t pairs[4] = { o.x + at, o.y + at, o.z + at, o.w + at };

#pragma unroll
		for (int i = 0; i < 8 / entries; i++) {
			uint32_t words[entries][W];

#pragma unroll
			for (int k = 0; k < entries; k++) {
				const uint32_t pair = pairs[(i * entries + k) / 2];

				read_words<W, ALIGN, SKEWED>(slots, k % 2 ? pair >> 16 : pair, skew,
				                             words[k]);
			}
#pragma unroll
			for (int w = 0; w < W; w++) {
				if constexpr (E == 2) {
					v[2 * w][i] = pick_bytes(words[0][w], words[1][w], 0x5410);
					v[2 * w + 1][i] = pick_bytes(words[0][w], words[1][w], 0x7632);
				} else {
					uint32_t square[4] = { words[0][w], words[1][w], words[2][w],
						               words[3][w] };

					transpose_words(square);
#pragma unroll
					for (int r = 0; r < 4; r++)
						v[4 * w + r][2 * half + i] = square[r];
				}
			}
		}
	}
}

template <int E, int W, bool SKEWED>
DEVICE void gather_aligned(const permute_args &args, const unsigned char *slots, uint32_t at,
                           const uint16_t *offsets, uint32_t (&v)[8 / E][4])
{
	if (W == 2 && args.aligned == 8)
		gather_chunks<E, W, 8, SKEWED>(slots, args.skew, at, offsets, v);
	else if (args.aligned >= 4)
		gather_chunks<E, W, 4, SKEWED>(slots, args.skew, at, offsets, v);
	else
		gather_chunks<E, W, 1, SKEWED>(slots, args.skew, at, offsets, v);
}

template <int E, int W>
DEVICE void gather_group(const permute_args &args, const unsigned char *slots, uint32_t at,
                         const uint16_t *offsets, uint32_t (&v)[8 / E][4])
{
	if (args.skew == PERMUTE_NO_SKEW)
		gather_aligned<E, W, false>(args, slots, at, offsets, v);
	else
		gather_aligned<E, W, true>(args, slots, at, offsets, v);
}

/* ---- Writing ------------------------------------------------------------------------------------------- */

/* Returns bit n of `value` as a mask. A select by a mask compiles to shorter code than one by a condition. */
DEVICE uint32_t mask_of(uint32_t value, uint32_t n)
{
	return (uint32_t)((int32_t)(value << (31 - n)) >> 31);
}

DEVICE uint32_t choose(uint32_t mask, uint32_t a, uint32_t b)
{
	return (a & mask) | (b & ~mask);
}

/* Turns v, a chunk of a row that begins `start` bytes past an aligned address, into the destination's aligned
 * chunk. Lane `before` has the chunk before it. The result is made of five consecutive words of the two
 * chunks. The first of them precedes the last by four words, so it is the word that is the last one for lane
 * `before`. */
DEVICE void shift_row(uint32_t (&v)[4], uint32_t start, uint32_t before)
{
	const uint32_t two = mask_of(start, 3), one = mask_of(start, 2);
	const uint32_t p2 = choose(two, from_lane(v[2], before), v[0]),
		       p3 = choose(two, from_lane(v[3], before), v[1]), p4 = choose(two, v[0], v[2]),
		       p5 = choose(two, v[1], v[3]), last = choose(one, p4, p5);
	const uint32_t w[5] = { from_lane(last, before), choose(one, from_lane(p5, before), p2),
		                choose(one, p2, p3), choose(one, p3, p4), last };

#pragma unroll
	for (int i = 0; i < 4; i++)
		v[i] = shift_words_up(w[i], w[i + 1], start * 8);
}

/* The chunk of each row of a group that a lane writes. */
struct lane_chunk {
	uint64_t base; /* address of the tile's first sector */
	/* Offset of the chunk from a row's first chunk, or past_all if the lane only provides bytes for the
	 * next lane. */
	uint32_t from;
	bool border; /* the rows consist of border only */
};

/* Writes the chunk of one row. `start` and `bounds` are the two words of the row's note (permute_args.h).
 * `masks` is used only if PADDED: it holds the border masks of the row's chunks. */
template <int E, bool PADDED>
DEVICE void write_chunk(const permute_args &args, const lane_chunk &chunk, const uint16_t *masks,
                        uint32_t start, uint32_t bounds, const uint32_t (&v)[4])
{
	const uint32_t from = chunk.from, end = from + 16, low = bounds & 0xffff, high = bounds >> 16;
	/* This is end <= high, without a shift for each row. */
	const bool whole = from >= low && bounds >= end << 16;
	const uint64_t to = chunk.base + ((start & ~15u) + from);
	uint4 out = make_uint4(v[0], v[1], v[2], v[3]);

	if (!whole && (end <= low || from >= high))
		return;
	if (PADDED) {
		const uint32_t mask = chunk.border ? 0xffff : border_of(masks + from / 16, start & 15);

		if (mask)
			out = set_border(out, args.pattern, mask);
	}
	if (whole)
		global_write((uint4 *)to, out);
	else
		write_part<E>(to, out, from >= low ? 0 : low - from, end <= high ? 16 : high - from);
}

/* Writes all groups. A warp has 1 << log_side groups side by side, and 32 >> log_side chunks of each. Where
 * rows are ragged, the first chunk of each group only provides bytes for the lane after it, unless a row
 * begins with it. */
template <int E, bool PADDED>
DEVICE void write_groups(const permute_args &args, const permute_tile &t, const unsigned char *shared)
{
	constexpr uint32_t most = 8 / E; /* maximum number of rows of a group */

	const unsigned char *const rows = shared + args.rows_at, *const slots = shared + PERMUTE_SLOTS_AT;
	const uint16_t *const table = (const uint16_t *)(shared + args.table_at) + PERMUTE_LEAD,
			      *const masks = (const uint16_t *)(shared + args.masks_at),
			      *const places = (const uint16_t *)(rows + args.row_notes * PERMUTE_WORDS_NOTE);
	const uint32_t side = args.log_side, lane = threadIdx.x % 32;
	const uint32_t chunks = (uint32_t)chunks_of(args, t).n;
	const uint32_t helpers = args.ragged << side, step = 32 - helpers;
	const uint32_t items = (args.row_notes >> args.log_group >> side) * chunks << side;
	const bool wide = 1u << args.log_group == most;
	const uint64_t base = t.dst & ~UINT64_C(31);

	for (uint32_t i = threadIdx.x / 32 * step; i < items; i += PERMUTE_THREADS / 32 * step) {
		/* For lanes before the first chunk, this wraps around to a number past the last chunk. */
		const uint32_t own = i + lane - helpers;
		const bool is_new = lane >= helpers && own < items;
		const uint32_t item = own < items ? own : 0, column = item >> side;
		const divisor by_chunks = noted_chunks(shared);
		const uint32_t block = divide_u32(column, &by_chunks),
			       c = column - block * (uint32_t)by_chunks.n;
		const uint32_t first = ((block << side) + (item & ((1u << side) - 1))) << args.log_group;
		const unsigned char *const notes = rows + first * PERMUTE_WORDS_NOTE;
		const uint32_t place = tile_read<uint16_t>(places + first);
		const uint32_t at = PADDED && place == PERMUTE_BORDER ? 0 : place * 0x10001;
		const uint32_t from = is_new ? 16 * c : past_all;
		const lane_chunk chunk = { base, from, place == PERMUTE_BORDER };
		uint32_t v[most][4];

		if (wide)
			gather_group<E, 2>(args, slots, at, table + 16 / E * c, v);
		else
			gather_group<E, 1>(args, slots, at, table + 16 / E * c, v);
		if (args.ragged) {
#pragma unroll
			for (uint32_t r = 0; r < most && (wide || r < most / 2); r += 2) {
				const uint4 pair = tile_read<uint4>(notes + r * PERMUTE_WORDS_NOTE);

				shift_row(v[r], pair.x, lane - helpers);
				shift_row(v[r + 1], pair.z, lane - helpers);
			}
		}
#pragma unroll
		for (uint32_t r = 0; r < most && (wide || r < most / 2); r += 2) {
			const uint4 pair = tile_read<uint4>(notes + r * PERMUTE_WORDS_NOTE);

			write_chunk<E, PADDED>(args, chunk, masks, pair.x, pair.y, v[r]);
			write_chunk<E, PADDED>(args, chunk, masks, pair.z, pair.w, v[r + 1]);
		}
	}
}

template <int E, bool PADDED>
DEVICE void move_words_of(const permute_args &args, unsigned char *shared, const turn &turn)
{
	barrier *const arrived = (barrier *)shared;
	uint16_t *const table = (uint16_t *)(shared + args.table_at);
	const permute_tile t = find_tile<PADDED>(args, turn.number);

	if (threadIdx.x == 0) {
		if (turn.first) {
			barrier_init(arrived, PERMUTE_THREADS);
			barrier_init_fence();
		}
		note_chunks(args, t, shared);
	}
	__syncthreads();
	grid_wait();
	load_runs<E, PADDED>(args, t, shared + PERMUTE_SLOTS_AT, arrived);
	note_rows<NOTES_OF_WORDS, PADDED>(args, t, shared + args.rows_at);
	fill_table<E, PADDED>(args, t, table);
	__syncthreads();
	if (PADDED) {
		fill_masks<E>(args, table, (uint16_t *)(shared + args.masks_at));
		__syncthreads();
	}
	barrier_wait(arrived, turn.parity);
	launch_dependents(turn);
	write_groups<E, PADDED>(args, t, shared);
}

template <int E, bool PADDED> DEVICE void move_words(const permute_args &args, unsigned char *shared)
{
	take_turns(args.tiles, [&](const turn &turn) { move_words_of<E, PADDED>(args, shared, turn); });
}

} // namespace

#define MOVE_WORDS(name, e, blocks, padded)                                                \
	KERNEL(PERMUTE_THREADS, blocks) name(const GRID_CONSTANT struct permute_args args) \
	{                                                                                  \
		DYNAMIC_SHARED(shared);                                                    \
		move_words<e, padded>(args, shared);                                       \
	}
MOVE_WORDS(tile_words_1, 1, WORDS_BLOCKS, false)
MOVE_WORDS(tile_words_2, 2, WORDS_BLOCKS, false)
MOVE_WORDS(padded_words_1, 1, WORDS_BLOCKS, true)
MOVE_WORDS(padded_words_2, 2, WORDS_BLOCKS, true)
