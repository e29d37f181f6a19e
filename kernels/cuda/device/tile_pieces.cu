/* SPDX-License-Identifier: Apache-2.0 */
/* Moves tiles of many axes that have the same innermost axis on both sides. Rows then consist of pieces that
 * are contiguous in the slots. A chunk of a row is read as the two aligned chunks around it, wherever it
 * begins, so neither phases nor the size of elements matter. */
#include "permute_table.cuh"

namespace
{

/* Sets the offset of each piece of a row from the row's offset. A piece that is border, or past the end, gets
 * PERMUTE_BORDER, or 0 if nothing is padded. */
template <bool PADDED>
DEVICE void fill_pieces(const permute_args &args, const permute_tile &t, uint16_t *pieces)
{
	for (uint32_t i = threadIdx.x; i < args.pieces; i += PERMUTE_THREADS) {
		uint32_t at;
		const bool there = find_element<PADDED>(args, t, args.piece_rank, i, at);

		tile_write<uint16_t>(pieces + i, there ? (uint16_t)at : PADDED ? PERMUTE_BORDER : 0);
	}
}

/* Returns the 16 bytes at offset `at`, from the two aligned chunks around them. */
DEVICE uint4 take_chunk(const unsigned char *from, uint32_t at)
{
	const unsigned char *const around = from + (at & ~15u);

	return shift_chunk(tile_read_around<uint4>(around, false),
	                   tile_read_around<uint4>(around + 16, false), at & 15);
}

/* Returns a's bytes below byte k, and b's from there on. */
DEVICE uint32_t join_words(uint32_t a, uint32_t b, int k)
{
	const uint32_t low = k <= 0 ? 0 : k >= 4 ? ~0u : (1u << k * 8) - 1;

	return (a & low) | (b & ~low);
}

DEVICE uint4 join_chunks(const uint4 &a, const uint4 &b, int k)
{
	return make_uint4(join_words(a.x, b.x, k), join_words(a.y, b.y, k - 4), join_words(a.z, b.z, k - 8),
	                  join_words(a.w, b.w, k - 12));
}

/* Returns the 16 bytes that begin `within` bytes into piece q. They may begin before the piece, and some may
 * be past its end. `row` is the offset in the slots of the row's first byte, counted from `from`. */
template <bool PADDED>
DEVICE uint4 take_piece(const permute_args &args, const unsigned char *from, uint32_t row,
                        const uint16_t *pieces, uint32_t q, int within)
{
	const uint32_t offset = tile_read<uint16_t>(pieces + q);

	if (PADDED && offset == PERMUTE_BORDER)
		return pattern_of(args.pattern, 0);
	return take_chunk(from, row + offset + (uint32_t)within);
}

/* Writes the rows. 16 bytes before `from` and 32 bytes past the slots must be readable. */
template <bool PADDED>
DEVICE void write_pieces(const permute_args &args, const permute_tile &t, const unsigned char *from,
                         const uint4 *rows, const uint16_t *pieces)
{
	const uint32_t chunks = (uint32_t)args.by_chunks.n, slots = args.rows * chunks;
	const uint64_t base = t.dst & ~UINT64_C(31);
	const int piece = (int)(uint32_t)args.by_piece.n;

	for (uint32_t i = threadIdx.x; i < slots; i += PERMUTE_THREADS) {
		const uint32_t r = divide_u32(i, &args.by_chunks), c = i - r * chunks;
		const uint4 note = tile_read<uint4>(rows + r);
		const uint32_t n = note.y >> 16;

		if (c >= n)
			continue;
		const int j = (int)((note.z & 0xffff) + 16 * c) - 16;
		uint32_t q = args.pieces > 1 && j > 0 ? divide_u32((uint32_t)j, &args.by_piece) : 0;
		const int within = j - (int)q * piece;
		/* This counts from 16 bytes before `from`, so that it is never negative. */
		const uint32_t row = (note.y & 0xffff) + 16;
		uint4 v;

		if (PADDED && note.w >> 24) {
			v = pattern_of(args.pattern, 0);
		} else {
			v = take_piece<PADDED>(args, from - 16, row, pieces, q, within);
			for (int k = piece - within; k < 16 && ++q < args.pieces; k += piece)
				v = join_chunks(v, take_piece<PADDED>(args, from - 16, row, pieces, q, -k),
				                k);
		}
		const uint32_t low = c == 0 ? note.w & 0xff : 0, end = c + 1 == n ? note.w >> 8 & 0xff : 16;
		const uint64_t to = base + note.x + 16 * c;

		if (end - low == 16)
			global_write((uint4 *)to, v);
		else
			write_part<1>(to, v, low, end);
	}
}

/* ---- Kernels ------------------------------------------------------------------------------------------- */

DEVICE void begin_loads(barrier *arrived, const turn &turn)
{
	if (turn.first && threadIdx.x == 0) {
		barrier_init(arrived, PERMUTE_THREADS);
		barrier_init_fence();
	}
	__syncthreads();
}

template <bool PADDED>
DEVICE void move_pieces_of(const permute_args &args, unsigned char *shared, const turn &turn)
{
	barrier *const arrived = (barrier *)shared;
	uint16_t *const pieces = (uint16_t *)(shared + args.table_at);
	unsigned char *const tile = shared + PERMUTE_SLOTS_AT;
	const permute_tile t = find_tile<PADDED>(args, turn.number);

	begin_loads(arrived, turn);
	grid_wait();
	load_runs<1, PADDED>(args, t, tile, arrived);
	note_rows<NOTES_OF_PIECES, PADDED>(args, t, shared + args.rows_at);
	fill_pieces<PADDED>(args, t, pieces);
	__syncthreads();
	barrier_wait(arrived, turn.parity);
	launch_dependents(turn);
	write_pieces<PADDED>(args, t, tile, (const uint4 *)(shared + args.rows_at), pieces);
}

template <bool PADDED> DEVICE void move_pieces(const permute_args &args, unsigned char *shared)
{
	take_turns(args.tiles, [&](const turn &turn) { move_pieces_of<PADDED>(args, shared, turn); });
}

} // namespace

#define MOVE_PIECES(name, blocks, padded)                                                  \
	KERNEL(PERMUTE_THREADS, blocks) name(const GRID_CONSTANT struct permute_args args) \
	{                                                                                  \
		DYNAMIC_SHARED(shared);                                                    \
		move_pieces<padded>(args, shared);                                         \
	}
MOVE_PIECES(tile_pieces, PERMUTE_BLOCKS, false)
MOVE_PIECES(padded_pieces, PADDED_BLOCKS, true)
