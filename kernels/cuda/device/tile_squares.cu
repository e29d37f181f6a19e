/* SPDX-License-Identifier: Apache-2.0 */
/* Moves tiles of many axes square by square. The runs of both sides consist of whole, aligned chunks and
 * share no dimension.
 *
 * The threads load the source's runs into shared memory, chunk by chunk. Each then reads a square of 16 / E
 * loads by 16 bytes, transposes it in registers, and writes 16 bytes of each of 16 / E rows:
 *
 *     shared memory              registers              destination
 *     load l:   .. [chunk] ..    16 / E vectors  ->     row r:   .. [chunk] ..
 *     load l+1: .. [chunk] ..                           row r+1: .. [chunk] ..
 *
 * The slots are ordered by the place of their load in a square: first the first loads of all squares, then
 * the second ones. The pitch is an odd number of chunks. Neighbouring lanes, which read the same place of
 * neighbouring squares, therefore find their chunks in different banks.
 *
 * Thread blocks are small, and a multiprocessor holds many: while one waits for its loads, others write. This
 * is faster than a ring of tiles that the TMA loads (tests/bench/EXPERIMENTS.md).
 */
#include "permute.cuh"
#include "square.cuh"

namespace
{

/* The number of words of each row of a square that a thread takes. Tiles of narrow elements have fewer
 * squares, each of which takes more registers, so two threads share a square. */
template <int E> constexpr uint32_t square_words = E <= 2 ? 2 : 4;

template <int E> DEVICE uint32_t slot_of_square(const permute_args &args, uint32_t load)
{
	constexpr uint32_t side = 16 / E;

	return (load % side * (args.loads / side) + load / side) * args.pitch;
}

/* Loads the whole tile in one batch, so that no thread waits for anything but its own chunks. */
template <int E> DEVICE void load_chunks(const permute_args &args, const permute_tile &t, unsigned char *tile)
{
	constexpr uint32_t batch = SQUARES_BATCH(E), none = UINT32_MAX;
	const uint32_t chunks = (uint32_t)args.by_parts.n, all = args.loads * chunks;
	uint32_t to[batch];
	uint4 v[batch];

#pragma unroll
	for (uint32_t k = 0; k < batch; k++) {
		const uint32_t i = threadIdx.x + k * blockDim.x;
		const uint32_t load = divide_u32(i, &args.by_parts), c = i - load * chunks;
		uint64_t src;

		to[k] = none;
		v[k] = make_uint4(0, 0, 0, 0);
		if (i >= all || c * 16 >= t.load_bytes || !find_load<false>(args, t, load, src))
			continue;
		to[k] = slot_of_square<E>(args, load) + c * 16;
		v[k] = global_read((const uint4 *)(src + c * 16));
	}
#pragma unroll
	for (uint32_t k = 0; k < batch; k++)
		if (to[k] != none)
			tile_write<uint4>(tile + to[k], v[k]);
}

/* Notes where each row begins, counted from the tile's lowest address. */
DEVICE void place_rows(const permute_args &args, unsigned char *rows)
{
	for (uint32_t i = threadIdx.x; i < args.rows; i += blockDim.x) {
		uint64_t dst = args.row_lead;
		uint32_t number = i;

#pragma unroll 1
		for (uint32_t d = 0; d < args.n_row; d++) {
			const permute_axis &axis = args.row[d];
			const uint32_t q = d + 1 < args.n_row ? divide_u32(number, &axis.by) : 0;

			dst += (uint64_t)((number - q * (uint32_t)axis.by.n) * axis.dst);
			number = q;
		}
		tile_write<uint32_t>(rows + i * PERMUTE_SQUARES_NOTE, (uint32_t)dst);
	}
}

/* Writes the squares of the tile. Neighbouring lanes write neighbouring chunks of a row. */
template <int E>
DEVICE void write_squares(const permute_args &args, const permute_tile &t, const unsigned char *tile,
                          const unsigned char *rows)
{
	constexpr uint32_t side = 16 / E, words = square_words<E>, parts = 4 / words,
			   part_rows = side / parts;
	const uint32_t chunks = (uint32_t)args.by_chunks.n, all = parts * chunks * (uint32_t)args.by_parts.n;
	const uint32_t row_bytes = args.row_split ? args.row_unit * t.n_dst : args.row_bytes;
	const uint32_t step = args.loads / side * args.pitch;

	for (uint32_t i = threadIdx.x; i < all; i += blockDim.x) {
		const uint32_t part = i % parts, c = divide_u32(i / parts, &args.by_chunks);
		const uint32_t y = i / parts - c * chunks, row = c * side + part * part_rows;
		const unsigned char *const from = tile + y * args.pitch + c * 16 + part * words * 4;
		uint32_t in[side][words], out[part_rows][4];

		if (y * 16 >= row_bytes || c * 16 >= t.load_bytes)
			continue;
#pragma unroll
		for (uint32_t j = 0; j < side; j++)
			read_words(from + j * step, in[j]);
		transpose_square<E, words>(in, out);
#pragma unroll
		for (uint32_t j = 0; j < part_rows; j++) {
			const uint32_t at = tile_read<uint32_t>(rows + (row + j) * PERMUTE_SQUARES_NOTE);

			global_write((uint4 *)(t.dst + at + y * 16), chunk_of_words(out[j]));
		}
	}
}

template <int E>
DEVICE void move_squares_of(const permute_args &args, unsigned char *shared, const turn &turn)
{
	unsigned char *const rows = shared + args.rows_at, *const tile = shared + PERMUTE_SLOTS_AT;
	const permute_tile t = find_tile<false>(args, turn.number);

	grid_wait();
	load_chunks<E>(args, t, tile);
	place_rows(args, rows);
	__syncthreads();
	launch_dependents(turn);
	write_squares<E>(args, t, tile, rows);
}

template <int E> DEVICE void move_squares(const permute_args &args, unsigned char *shared)
{
	take_turns(args.tiles, [&](const turn &turn) { move_squares_of<E>(args, shared, turn); });
}

static_assert(SQUARES_TILE_BYTES(1) == 16 * SQUARES_BATCH(1) * SQUARES_MOST_THREADS &&
                  SQUARES_TILE_BYTES(16) == 16 * SQUARES_BATCH(16) * SQUARES_MOST_THREADS,
              "the threads of a block load all of its tile");

} // namespace

#define TILE_SQUARES(name, e, blocks)                                                                 \
	KERNEL(SQUARES_MOST_THREADS, blocks) name##_##e(const GRID_CONSTANT struct permute_args args) \
	{                                                                                             \
		DYNAMIC_SHARED(shared);                                                               \
		move_squares<e>(args, shared);                                                        \
	}
#define TILE_SQUARES_BOTH(e) TILE_SQUARES(tile_squares, e, SQUARES_BLOCKS(e))
BY_ELEMENT(TILE_SQUARES_BOTH)
