/* SPDX-License-Identifier: Apache-2.0 */
/* Transposes: dimension 0 is contiguous in the source, dimension 1 in the destination.
 *
 * One thread of the last warp makes the TMA load tiles of X rows of 128 bytes, swizzled. The other warps read
 * squares of 16 / E rows by 16 bytes, transpose them in registers and write 16 bytes of each of their 16 / E
 * rows of the destination.
 *
 *     shared memory                       registers              destination
 *     row x:   [c0][c1] .. [c7]           16 / E vectors  ->     row y:   .. [16 bytes at x] ..
 *     row x+1: [c1][c0] .. [c6]                                  row y+1: .. [16 bytes at x] ..
 *
 * Axes:
 *     y   dimension 0, along the source: columns of a row in shared memory, rows of the destination
 *     x   dimension 1, along the destination: rows in shared memory, columns of a row of the destination
 *     z   dimension 2: a tile's rows continue along it where dimension 1 is short (args.shift_x)
 *     w   dimension 3: a tile's boxes continue along it where dimension 0 is short (args.shift_y)
 * A uint4's .x .y .z .w are its four words and no axes.
 *
 * The swizzle (chunk c of row x lies in column c ^ (x & 7)) spreads the reads of a warp over the banks. A
 * warp takes 16 squares that are neighbours along x in each of 2 columns of chunks, so that its 16-byte
 * writes fill 256 bytes of a row. Writing whole lines matters more than reading without bank conflicts
 * (tests/bench/EXPERIMENTS.md).
 */
#include "pipeline.cuh"
#include "square.cuh"
#include "kernels/cuda/strategy/tuning.h"

namespace
{

constexpr int row_bytes = TRANSPOSE_ROW_BYTES;
constexpr int row_chunks_in_box = row_bytes / 16;

/* The shape of a tile of 32 KiB. It consists of `boxes` loads, each of tile_x rows of 128 bytes. Both sides
 * move whole lines. */
template <int E> struct transpose_shape {
	static constexpr int square = 16 / E;                /* rows and columns that one thread transposes */
	static constexpr int box_y = row_bytes / E;          /* elements of a row of a box */
	static constexpr int tile_x = TRANSPOSE_X_BYTES / E; /* elements along x: rows of a box */
	static constexpr int boxes = TRANSPOSE_TILE_BYTES / (tile_x * row_bytes);
	static constexpr int box_bytes = tile_x * row_bytes;
	static constexpr int tile_bytes = box_bytes * boxes;
	/* Number of squares in a tile. */
	static constexpr int squares = tile_x / square * row_chunks_in_box * boxes;
	static constexpr int readers = TRANSPOSE_READERS(E);

	static_assert(tile_bytes == TRANSPOSE_TILE_BYTES, "the launch asks for as much");
	static_assert(squares == TRANSPOSE_SQUARES(E) && squares % readers == 0,
	              "the readers take all of them in whole rounds");
	static_assert(readers % WARP_THREADS == 0, "the loading warp follows");
};

/* The coordinates of a tile's first element, by the destination's dimensions. */
struct tile_place {
	uint32_t at[ARGS_GRID_RANK];
};

/* Changes the order of the tiles along dimensions 0 and 1: the plane is divided into strips of WIDTH tiles
 * along dimension 1, and the tiles of a strip are numbered row by row along dimension 0. */
template <int WIDTH>
DEVICE void raster_index(const uint32_t (&grid)[ARGS_GRID_RANK], uint32_t (&at)[ARGS_GRID_RANK])
{
	const uint32_t number = at[1] * grid[0] + at[0], strip = number / (grid[0] * WIDTH) * WIDTH;
	const uint32_t left = number - strip * grid[0],
		       wide = grid[1] - strip < WIDTH ? grid[1] - strip : WIDTH;

	at[0] = left / wide;
	at[1] = strip + left % wide;
}

template <int E> DEVICE tile_place place_of(const tile_transpose_args &args, uint32_t i)
{
	using shape = transpose_shape<E>;
	tile_place place;

	tile_index(blockIdx.x + i * gridDim.x, args.grid, place.at);
	if (TRANSPOSE_RASTER(E) > 1)
		raster_index<TRANSPOSE_RASTER(E)>(args.grid, place.at);
	place.at[0] = place.at[0] * shape::box_y << args.shift_y;
	place.at[1] <<= args.shift_x;
	place.at[2] *= shape::tile_x >> args.shift_x;
	place.at[3] *= shape::boxes >> args.shift_y;
	return place;
}

/* Facts about a tile that its readers need. The thread that loads the tile computes them once. */
struct tile_note {
	uint64_t dst;  /* address of the tile's first element in the destination */
	uint32_t n[4]; /* number of indices from there to the end of dimensions 0 to 3 */
};

static_assert(sizeof(tile_note) == TRANSPOSE_NOTE_BYTES, "as much is asked for");

template <int E, int STAGES>
DEVICE void load_tiles(const tile_transpose_args &args, tile_ring<STAGES> &ring, tile_note *notes,
                       uint32_t tiles)
{
	using shape = transpose_shape<E>;
	/* The map counts an element of 16 bytes as two of 8. */
	constexpr int unit = E == 16 ? 2 : 1;

	tensor_map_prefetch(&args.load);
	for (uint32_t i = 0; i < tiles; i++) {
		tile_place place = place_of<E>(args, i);
		int32_t at[ARGS_MAP_RANK];
		tile_note note;

		note.dst = args.dst + (uint64_t)((int64_t)place.at[1] * E);
#pragma unroll
		for (int d = 0; d < ARGS_GRID_RANK; d++) {
			if (d != 1)
				note.dst += (uint64_t)((int64_t)place.at[d] * args.dst_stride[d]);
			if (d < 4)
				note.n[d] = args.n[d] - place.at[d];
		}
		at[1] = (int32_t)place.at[1] + args.load_shift[1];
#pragma unroll
		for (int d = 2; d < ARGS_GRID_RANK; d++) {
			const int32_t step = (int32_t)place.at[d] * args.load_step[d];

			if (d < ARGS_MAP_RANK)
				at[d] = step + args.load_shift[d];
			else
				at[ARGS_MAP_RANK - 1] += step;
		}
		ring.wait_empty(i);
		notes[i % STAGES] = note;
		barrier_arrive_expect(ring.arrival(i), shape::tile_bytes);
#pragma unroll
		for (int box = 0; box < shape::boxes; box++) {
			uint32_t y = box & ((1u << args.shift_y) - 1), w = box >> args.shift_y;
			int32_t box_at[ARGS_MAP_RANK] = { 0, at[1], at[2], at[3] + (int32_t)w, at[4] };

			box_at[0] = (int32_t)(place.at[0] + y * shape::box_y) * unit + args.load_shift[0];
			load_tile(ring.tile(i) + box * shape::box_bytes, &args.load, args.rank, box_at,
			          ring.arrival(i));
		}
	}
}

/* Writes 16 bytes of each of a square's 16 / E rows, as far as the destination has these rows. */
template <int E>
DEVICE void write_square(const tile_transpose_args &args, unsigned char *dst, uint32_t rows,
                         const uint32_t (&v)[16 / E][4])
{
#pragma unroll
	for (int j = 0; j < 16 / E; j++)
		if ((uint32_t)j < rows)
			global_write((uint4 *)(dst + (int64_t)j * args.dst_stride[0]),
			             chunk_of_words(v[j]));
}

/* The square of a tile that a thread transposes. TRANSPOSE_LANES_X neighbouring lanes of a warp take
 * neighbours along x, so that whole lines of a row are written. The other lanes take other chunks of the same
 * rows, which lie in other banks. */
template <int E> struct square_place {
	uint32_t chunk;
	uint32_t row;
	uint32_t box;

	DEVICE_MEMBER square_place(uint32_t number)
	{
		using shape = transpose_shape<E>;
		constexpr uint32_t across = shape::tile_x / shape::square,
				   lanes_x = TRANSPOSE_LANES_X < across ? TRANSPOSE_LANES_X : across,
				   lanes_c = 32 / lanes_x;
		uint32_t lane = number % 32, warp = number / 32;

		chunk = lane % lanes_c + warp / (across / lanes_x) % (row_chunks_in_box / lanes_c) * lanes_c;
		row = (lane / lanes_c + warp % (across / lanes_x) * lanes_x) * shape::square;
		box = warp / (across / lanes_x) / (row_chunks_in_box / lanes_c);
	}
};

template <int E, int STAGES>
DEVICE void transpose_tiles(const tile_transpose_args &args, tile_ring<STAGES> &ring, const tile_note *notes,
                            uint32_t tiles, uint32_t reader)
{
	using shape = transpose_shape<E>;

	for (uint32_t i = 0; i < tiles; i++) {
		ring.wait_full(i);
		const tile_note note = notes[i % STAGES];
#pragma unroll
		for (int s = 0; s < shape::squares; s += shape::readers) {
			const square_place<E> own(s + reader);
			const unsigned char *from = ring.tile(i) + own.box * shape::box_bytes;
			uint32_t in[shape::square][4], out[shape::square][4];

#pragma unroll
			for (int r = 0; r < shape::square; r++)
				read_words(from + (own.row + r) * row_bytes +
				               ((own.chunk ^ ((own.row + r) & 7)) << 4),
				           in[r]);
			if (s + shape::readers == shape::squares) {
				fence_proxy_async(); /* orders the reads before the TMA's next write */
				ring.release(i);
			}
			transpose_square<E, 4>(in, out);

			uint32_t x = own.row & ((1u << args.shift_x) - 1), z = own.row >> args.shift_x;
			uint32_t y =
			    (own.box & ((1u << args.shift_y) - 1)) * shape::box_y + own.chunk * shape::square;
			uint32_t w = own.box >> args.shift_y;

			if (x >= note.n[1] || y >= note.n[0] || z >= note.n[2] || w >= note.n[3])
				continue;
			unsigned char *dst =
			    (unsigned char *)note.dst + x * E + (int64_t)y * args.dst_stride[0] +
			    (int64_t)z * args.dst_stride[2] + (int64_t)w * args.dst_stride[3];

			write_square<E>(args, dst, note.n[0] - y, out);
			for (uint32_t r = 1; r < args.repeats; r++) {
				uint32_t again[ARGS_GRID_RANK];
				unsigned char *to = dst;

				tile_index(r, args.repeat, again);
#pragma unroll
				for (int d = 2; d < ARGS_GRID_RANK; d++)
					to += (int64_t)again[d] * args.dst_stride[d];
				write_square<E>(args, to, note.n[0] - y, out);
			}
		}
	}
}

template <int E> DEVICE void transpose(const tile_transpose_args &args, unsigned char *shared)
{
	using shape = transpose_shape<E>;
	tile_ring<TRANSPOSE_STAGES> ring(shared, shape::tile_bytes);
	tile_note *notes = (tile_note *)(ring.empty + TRANSPOSE_STAGES);
	uint32_t tiles = own_tiles(args.tiles);

	if (threadIdx.x == 0)
		ring.init(shape::readers);
	__syncthreads();
	grid_wait();
	if ((int)threadIdx.x >= shape::readers) {
		if (threadIdx.x == shape::readers)
			load_tiles<E>(args, ring, notes, tiles);
	} else {
		transpose_tiles<E>(args, ring, notes, tiles, threadIdx.x);
	}
}

} // namespace

#define TRANSPOSE_KERNEL(e)                                                     \
	KERNEL(TRANSPOSE_READERS(e) + WARP_THREADS, 1)                          \
	tile_transpose_##e(const GRID_CONSTANT struct tile_transpose_args args) \
	{                                                                       \
		DYNAMIC_SHARED(shared);                                         \
		transpose<e>(args, shared);                                     \
	}

TRANSPOSE_KERNEL(1)
TRANSPOSE_KERNEL(2)
TRANSPOSE_KERNEL(4)
TRANSPOSE_KERNEL(8)
TRANSPOSE_KERNEL(16)
