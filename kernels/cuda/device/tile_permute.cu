/* SPDX-License-Identifier: Apache-2.0 */
/* Moves tiles of many axes element by element, for any permutation and any pad.
 *
 * Each thread assembles a chunk of a row from elements whose offsets are in the table. There is a copy of the
 * table for each phase (address modulo 16) that a row may have. For elements of 1 and 2 bytes there are only
 * four copies, and chunks of rows that begin within a word are shifted.
 */
#include "permute_table.cuh"

namespace
{

/* ---- Rows ---------------------------------------------------------------------------------------------- */

/* Reads elements of a row. If `whole` is false, some of the chunk's elements do not exist and may be read
 * from anywhere. */
template <bool SKEWED> struct row_elements {
	const unsigned char *slots;
	uint32_t at;
	uint32_t skew;
	bool whole;

	template <typename T> DEVICE_MEMBER T take(uint32_t offset) const
	{
		return tile_read_around<T>(slots + skewed<SKEWED>(at + offset, skew), whole);
	}
};

/* Returns a word of two or four elements, whose offsets are in `pairs`. */
template <int E, typename ROW> DEVICE uint32_t gather_word(const ROW &row, uint2 pairs)
{
	if constexpr (E == 2) {
		return pick_bytes(row.template take<uint16_t>(pairs.x & 0xffff),
		                  row.template take<uint16_t>(pairs.x >> 16), 0x5410);
	} else {
		const uint32_t low = pick_bytes(row.template take<uint8_t>(pairs.x & 0xffff),
		                                row.template take<uint8_t>(pairs.x >> 16), 0x0040);
		const uint32_t high = pick_bytes(row.template take<uint8_t>(pairs.y & 0xffff),
		                                 row.template take<uint8_t>(pairs.y >> 16), 0x0040);

		return pick_bytes(low, high, 0x5410);
	}
}

/* Returns a chunk of elements, each of which is at its offset. */
template <int E, typename ROW> DEVICE uint4 gather_chunk(const ROW &row, const uint16_t *offsets)
{
	if constexpr (E == 16) {
		return row.template take<uint4>(tile_read<uint16_t>(offsets));
	} else if constexpr (E == 8) {
		const uint32_t o = tile_read<uint32_t>(offsets);
		const uint2 a = row.template take<uint2>(o & 0xffff), b = row.template take<uint2>(o >> 16);

		return make_uint4(a.x, a.y, b.x, b.y);
	} else if constexpr (E == 4) {
		const uint2 o = tile_read<uint2>(offsets);

		return make_uint4(
		    row.template take<uint32_t>(o.x & 0xffff), row.template take<uint32_t>(o.x >> 16),
		    row.template take<uint32_t>(o.y & 0xffff), row.template take<uint32_t>(o.y >> 16));
	} else if constexpr (E == 2) {
		const uint4 o = tile_read<uint4>(offsets);

		return make_uint4(
		    gather_word<2>(row, make_uint2(o.x, 0)), gather_word<2>(row, make_uint2(o.y, 0)),
		    gather_word<2>(row, make_uint2(o.z, 0)), gather_word<2>(row, make_uint2(o.w, 0)));
	} else {
		const uint4 o = tile_read<uint4>(offsets), p = tile_read<uint4>(offsets + 8);

		return make_uint4(
		    gather_word<1>(row, make_uint2(o.x, o.y)), gather_word<1>(row, make_uint2(o.z, o.w)),
		    gather_word<1>(row, make_uint2(p.x, p.y)), gather_word<1>(row, make_uint2(p.z, p.w)));
	}
}

/* Returns a chunk of a row that begins `past` bytes, less than a word, after the phase of the table's
 * copy. */
template <int E, typename ROW>
DEVICE uint4 gather_past(const ROW &row, const uint16_t *offsets, uint32_t past)
{
	uint4 v = gather_chunk<E>(row, offsets);

	if constexpr (E < 4) {
		if (past) {
			const uint2 o = E == 1 ? tile_read<uint2>(offsets - 4)
			                       : make_uint2(tile_read<uint32_t>(offsets - 2), 0);
			const uint32_t before = gather_word<E>(row, o), bits = 32 - 8 * past;

			v = make_uint4(shift_words(before, v.x, bits), shift_words(v.x, v.y, bits),
			               shift_words(v.y, v.z, bits), shift_words(v.z, v.w, bits));
		}
	}
	return v;
}

/* Writes the rows. A warp has 1 << log_side rows side by side, and 32 >> log_side chunks of each. */
template <int E, bool PADDED, bool SKEWED>
DEVICE void write_rows(const permute_args &args, const permute_tile &t, const unsigned char *shared)
{
	const unsigned char *const rows = shared + args.rows_at, *const table = shared + args.table_at,
				   *const masks = shared + args.masks_at,
				   *const tile = shared + PERMUTE_SLOTS_AT;
	const divisor &by_chunks = t.first || t.last ? args.by_chunks : args.by_inner_chunks;
	const uint32_t side = args.log_side, chunks = (uint32_t)by_chunks.n;
	const uint32_t slots = (args.row_notes >> side) * chunks << side;
	const uint64_t base = t.dst & ~UINT64_C(31);

	for (uint32_t i = threadIdx.x; i < slots; i += PERMUTE_THREADS) {
		const uint32_t column = i >> side, group = divide_u32(column, &by_chunks);
		const uint32_t r = (group << side) + (i & ((1u << side) - 1)), c = column - group * chunks;
		const uint4 note = tile_read<uint4>(rows + 16 * r);
		const uint32_t n = note.y >> 16, past = E < 4 ? note.w >> 16 & 3 : 0;

		if (c >= n)
			continue;
		const uint16_t *const offsets = (const uint16_t *)(table + (note.z & 0xffff) + c * (32 / E));
		const row_elements<SKEWED> row = { tile, note.y & 0xffff, args.skew,
			                           !PADDED && c > 1 && c + 2 < n };
		const uint32_t at = c == 0 ? note.w & 0xff : 0, end = c + 1 == n ? note.w >> 8 & 0xff : 16;
		const uint64_t to = base + note.x + 16 * c;
		uint4 v;

		if (PADDED) {
			const uint32_t mask =
			    note.w >> 24
				? 0xffff
				: border_of((const uint16_t *)(masks + (note.z >> 16) + 2 * c), past);

			v = make_uint4(0, 0, 0, 0);
			if (mask != 0xffff)
				v = gather_past<E>(row, offsets, past);
			if (mask)
				v = set_border(v, args.pattern, mask);
		} else {
			v = gather_past<E>(row, offsets, past);
		}
		if (end - at == 16)
			global_write((uint4 *)to, v);
		else
			write_part<E>(to, v, at, end);
	}
}

template <int E, bool PADDED>
DEVICE void permute_one(const permute_args &args, unsigned char *shared, const turn &turn)
{
	barrier *const arrived = (barrier *)shared;
	uint16_t *const table = (uint16_t *)(shared + args.table_at);
	uint16_t *const masks = (uint16_t *)(shared + args.masks_at);
	unsigned char *const tile = shared + PERMUTE_SLOTS_AT;
	const permute_tile t = find_tile<PADDED>(args, turn.number);

	if (turn.first && threadIdx.x == 0) {
		barrier_init(arrived, PERMUTE_THREADS);
		barrier_init_fence();
	}
	__syncthreads();
	grid_wait();
	load_runs<E, PADDED>(args, t, tile, arrived);
	note_rows<E, PADDED>(args, t, shared + args.rows_at);
	fill_table<E, PADDED>(args, t, table);
	__syncthreads();
	if (PADDED) {
		fill_masks<E>(args, table, masks);
		__syncthreads();
	}
	barrier_wait(arrived, turn.parity);
	launch_dependents(turn);
	if (args.skew == PERMUTE_NO_SKEW)
		write_rows<E, PADDED, false>(args, t, shared);
	else
		write_rows<E, PADDED, true>(args, t, shared);
}

template <int E, bool PADDED> DEVICE void permute(const permute_args &args, unsigned char *shared)
{
	take_turns(args.tiles, [&](const turn &turn) { permute_one<E, PADDED>(args, shared, turn); });
}

} // namespace

#define TILE_PERMUTE(name, e, blocks, padded)                                                    \
	KERNEL(PERMUTE_THREADS, blocks) name##_##e(const GRID_CONSTANT struct permute_args args) \
	{                                                                                        \
		DYNAMIC_SHARED(shared);                                                          \
		permute<e, padded>(args, shared);                                                \
	}
#define TILE_PERMUTES(e)                                          \
	TILE_PERMUTE(tile_permute, e, PERMUTE_MOST_BLOCKS, false) \
	TILE_PERMUTE(padded_permute, e, PADDED_BLOCKS, true)
BY_ELEMENT(TILE_PERMUTES)
