/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles of many axes of elements of one or two bytes, four or two rows at a time. The rows of a group are
 * neighbours in the source, so that each word of the slots has an element of each. Byte permutes turn sixteen
 * words, or eight, into a chunk of each row.
 *
 * These chunks count from the row's first element. The destination's aligned chunks lie p bytes ahead of them
 * if the row begins p bytes past an aligned address; the bytes that are missing come from the lane with the
 * chunk before.
 */
#include "permute_table.cuh"

namespace
{

/* Four bytes of the slots, from any place on. */
template <bool ALIGNED, bool SKEWED>
DEVICE uint32_t read_word(const unsigned char *slots, uint32_t at, uint32_t skew)
{
	if (ALIGNED)
		return tile_read_around<uint32_t>(slots + skewed<SKEWED>(at, skew), false);
	const uint32_t low = at & ~3u;

	return shift_words(tile_read_around<uint32_t>(slots + skewed<SKEWED>(low, skew), false),
	                   tile_read_around<uint32_t>(slots + skewed<SKEWED>(low + 4, skew), false),
	                   at % 4 * 8);
}

/* Byte r of word i becomes byte i of word r. */
DEVICE void transpose_words(uint32_t (&w)[4])
{
	const uint32_t a = pick_bytes(w[0], w[1], 0x5140), b = pick_bytes(w[2], w[3], 0x5140),
		       c = pick_bytes(w[0], w[1], 0x7362), d = pick_bytes(w[2], w[3], 0x7362);

	w[0] = pick_bytes(a, b, 0x5410);
	w[1] = pick_bytes(a, b, 0x7632);
	w[2] = pick_bytes(c, d, 0x5410);
	w[3] = pick_bytes(c, d, 0x7632);
}

/* Word i of row r of a group's chunk is v[i][r]. */
template <bool ALIGNED, bool SKEWED>
DEVICE void gather_group(const unsigned char *slots, uint32_t skew, uint32_t at, const uint16_t *offsets,
                         uint32_t (&v)[4][2])
{
	const uint4 o = tile_read<uint4>(offsets);
	const uint32_t pairs[4] = { o.x, o.y, o.z, o.w };

#pragma unroll
	for (int i = 0; i < 4; i++) {
		const uint32_t a = read_word<ALIGNED, SKEWED>(slots, at + (pairs[i] & 0xffff), skew),
			       b = read_word<ALIGNED, SKEWED>(slots, at + (pairs[i] >> 16), skew);

		v[i][0] = pick_bytes(a, b, 0x5410);
		v[i][1] = pick_bytes(a, b, 0x7632);
	}
}

template <bool ALIGNED, bool SKEWED>
DEVICE void gather_group(const unsigned char *slots, uint32_t skew, uint32_t at, const uint16_t *offsets,
                         uint32_t (&v)[4][4])
{
#pragma unroll
	for (int half = 0; half < 2; half++) {
		const uint4 o = tile_read<uint4>(offsets + 8 * half);
		const uint32_t pairs[4] = { o.x, o.y, o.z, o.w };

#pragma unroll
		for (int i = 0; i < 4; i++) {
			v[2 * half + i / 2][i % 2 * 2] =
			    read_word<ALIGNED, SKEWED>(slots, at + (pairs[i] & 0xffff), skew);
			v[2 * half + i / 2][i % 2 * 2 + 1] =
			    read_word<ALIGNED, SKEWED>(slots, at + (pairs[i] >> 16), skew);
		}
	}
#pragma unroll
	for (int i = 0; i < 4; i++)
		transpose_words(v[i]);
}

/* The destination's chunk of a row that begins p bytes past an aligned address; lane `before` has the chunk
 * before. */
DEVICE uint4 shift_row(const uint4 &own, uint32_t p, uint32_t before)
{
	const uint32_t lane = p ? before : threadIdx.x % 32;
	const uint4 last = make_uint4(from_lane(own.x, lane), from_lane(own.y, lane), from_lane(own.z, lane),
	                              from_lane(own.w, lane));

	return shift_chunk(last, own, -p & 15);
}

/* A warp has 1 << log_side groups side by side, and 32 >> log_side chunks of each. The first chunk of each
 * serves only the lane after it, unless the row begins with it. */
template <int E, bool ALIGNED, bool PADDED, bool SKEWED>
DEVICE void write_groups(const permute_args &args, const permute_tile &t, const unsigned char *shared)
{
	constexpr int group = 4 / E;

	const unsigned char *const rows = shared + args.rows_at, *const slots = shared + args.tile_at;
	const uint16_t *const table = (const uint16_t *)(shared + args.table_at) + PERMUTE_LEAD,
			      *const masks = (const uint16_t *)(shared + args.masks_at);
	const uint32_t side = args.log_side, chunks = (uint32_t)args.by_chunks.n, lane = threadIdx.x % 32;
	const uint32_t items = (args.row_notes / group >> side) * chunks << side, step = 32 - (1u << side);
	const uint64_t base = t.dst & ~UINT64_C(31);
	const uint32_t lead = t.margin * args.row_unit;
	const uint32_t low_mask = t.first || args.exact ? ~0u : ~31u,
		       high_mask = t.last || args.exact ? ~0u : ~31u;

	for (uint32_t i = threadIdx.x / 32 * step; i < items; i += PERMUTE_THREADS / 32 * step) {
		const uint32_t own = i + lane - (1u << side); /* before the first: past the last */
		const bool is_new = lane >> side && own < items;
		const uint32_t item = own < items ? own : 0, column = item >> side;
		const uint32_t block = divide_u32(column, &args.by_chunks), c = column - block * chunks;
		const unsigned char *const notes =
		    rows + ((block << side) + (item & ((1u << side) - 1))) * (group * PERMUTE_WORDS_NOTE);
		uint32_t starts[group], ends[group], v[4][group];

#pragma unroll
		for (int r = 0; r < group; r += 2) {
			const uint4 pair = tile_read<uint4>(notes + r * PERMUTE_WORDS_NOTE);

			starts[r] = pair.x;
			ends[r] = pair.y;
			starts[r + 1] = pair.z;
			ends[r + 1] = pair.w;
		}
		const uint32_t at = ends[0] & 0xffff;

		gather_group<ALIGNED, SKEWED>(slots, args.skew, PADDED && at == PERMUTE_BORDER ? 0 : at,
		                              table + 16 / E * c, v);
#pragma unroll
		for (int r = 0; r < group; r++) {
			const uint32_t start = starts[r], p = start & 15, bytes = ends[r] >> 16;
			const uint32_t low = (start + lead) & low_mask, high = (start + bytes) & high_mask;
			const uint32_t chunk = (start & ~15u) + 16 * c;
			uint4 out = make_uint4(v[0][r], v[1][r], v[2][r], v[3][r]);

			if (args.ragged)
				out = shift_row(out, p, lane - (1u << side));
			if (!is_new || bytes == 0 || chunk + 16 <= low || chunk >= high)
				continue;
			if (PADDED) {
				const bool border = (ends[r] & 0xffff) == PERMUTE_BORDER;
				const uint32_t mask = border ? 0xffff : border_of(masks + c, p);

				if (mask)
					out = set_border(out, args.pattern, mask);
			}
			if (chunk >= low && chunk + 16 <= high)
				global_write((uint4 *)(base + chunk), out);
			else
				write_part<E>(base + chunk, out, chunk >= low ? 0 : low - chunk,
				              chunk + 16 <= high ? 16 : high - chunk);
		}
	}
}

template <int E, bool PADDED> DEVICE void move_words(const permute_args &args, unsigned char *shared)
{
	barrier *const arrived = (barrier *)shared;
	uint16_t *const table = (uint16_t *)(shared + args.table_at);
	const permute_tile t = find_tile<PADDED>(args);

	if (threadIdx.x == 0) {
		barrier_init(arrived, PERMUTE_THREADS);
		barrier_init_fence();
	}
	__syncthreads();
	grid_wait();
	load_runs<E, PADDED>(args, t, shared + args.tile_at, arrived);
	note_rows<NOTES_OF_WORDS, PADDED>(args, t, shared + args.rows_at);
	fill_table<E, PADDED>(args, t, table);
	__syncthreads();
	if (PADDED) {
		fill_masks<E>(args, table, (uint16_t *)(shared + args.masks_at));
		__syncthreads();
	}
	barrier_wait(arrived, 0);
	grid_launch_dependents();
	if (args.skew != PERMUTE_NO_SKEW && args.aligned)
		write_groups<E, true, PADDED, true>(args, t, shared);
	else if (args.skew != PERMUTE_NO_SKEW)
		write_groups<E, false, PADDED, true>(args, t, shared);
	else if (args.aligned)
		write_groups<E, true, PADDED, false>(args, t, shared);
	else
		write_groups<E, false, PADDED, false>(args, t, shared);
}

} // namespace

#define MOVE_WORDS(name, e, padded)                                                              \
	KERNEL(PERMUTE_THREADS, WORDS_BLOCKS) name(const GRID_CONSTANT struct permute_args args) \
	{                                                                                        \
		DYNAMIC_SHARED(shared);                                                          \
		move_words<e, padded>(args, shared);                                             \
	}
MOVE_WORDS(tile_words_1, 1, false)
MOVE_WORDS(tile_words_2, 2, false)
MOVE_WORDS(padded_words_1, 1, true)
MOVE_WORDS(padded_words_2, 2, true)
