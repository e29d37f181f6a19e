/* SPDX-License-Identifier: Apache-2.0 */
/* Moves short rows that are contiguous on both sides, whatever their phases. The part of a row's cost that
 * does not depend on its length is shared by all threads of a thread block.
 *
 *     source rows          shared memory                         destination
 *     at any phase   ->    the aligned 16 bytes around,    ->    aligned chunks of 16 bytes, shifted out;
 *                          by the TMA                            then the elements that are left
 *
 * A thread block moves one tile: a number of rows in the order of the destination. Each row has a slot in
 * shared memory. Rows that follow each other in the source are loaded together with the first of them, and
 * lie in shared memory as they do in the source. Apart from the source's rows, only the bytes between them
 * are read. A single move is launched with the same kernel, as the only move of the launch.
 */
#include "pad.cuh"
#include "strided.cuh"

namespace
{

/* A row, and where it is read from. */
struct short_row {
	/* Address of the row's window in the destination, or of the whole row if the row is outside the outer
	 * windows. */
	uint64_t start;
	uint32_t at;    /* offset in the tile of the window's lowest byte */
	uint32_t state; /* ROW_INSIDE and ROW_SKIPPED; bits 8 and up have the list block's rotation */
};

constexpr uint32_t ROW_INSIDE = 1;  /* the row is inside the outer dimensions' windows */
constexpr uint32_t ROW_SKIPPED = 2; /* the row's list entry names no block */

/* The load that a row's thread starts, for this row and for those after it. */
struct short_load {
	uint64_t from;
	uint32_t at;
	uint32_t bytes;
};

static_assert(sizeof(struct short_row) == SHORT_NOTE_BYTES, "as much is asked for");

/* Copies the bytes in [low, high) of a chunk at either end of the source, which the TMA may not load because
 * it lies partly outside the readable memory. */
template <int E> DEVICE void take_chunk(uint64_t chunk, uint64_t low, uint64_t high, unsigned char *to)
{
	using type = typename element<E>::type;

	tile_write<uint4>(to, make_uint4(0, 0, 0, 0));
	for (uint32_t i = 0; i < 16; i += E)
		if (chunk + i >= low && chunk + i < high)
			tile_write<type>(to + i, global_read((const type *)(chunk + i)));
}

/* Finds row `own` of a tile of `rows` rows. It is row `number` of its block. Returns the load that the row's
 * thread has to start. */
template <int E>
DEVICE short_load find_row(const strided_args &args, const list_place &block, uint64_t number, uint32_t own,
                           uint32_t rows, unsigned char *tile, short_row &row)
{
	const strided_dim &inner = args.dim[0];
	const uint64_t bytes = (uint64_t)(inner.source * E);
	uint64_t dst = block.dst, src = block.src, below = 0, above = 0, step = 0;
	bool inside = true;

#pragma unroll 1
	for (uint32_t d = 1; d < args.rank; d++) {
		const strided_dim &dim = args.dim[d];
		const uint64_t q = d + 1 < args.rank ? divide_by(number, &args.by[d]) : 0;
		const int64_t index = (int64_t)(number - q * (uint64_t)dim.n), at = index - dim.before;
		const bool is_in = at >= 0 && at < dim.source;

		number = q;
		dst += (uint64_t)(index * dim.dst);
		if (is_in || args.mode == PAD_RULE_CONSTANT)
			src += (uint64_t)(at * dim.src);
		else
			src += (uint64_t)(source_index(dim, args.mode, index) * dim.src);
		inside = inside && (is_in || args.mode != PAD_RULE_CONSTANT);
		if (d == 1 && is_in && args.follow) {
			step = (uint64_t)dim.src;
			below = at < own ? (uint64_t)at : own;
			above = dim.source - 1 - at < rows - 1 - own ? (uint64_t)(dim.source - 1 - at)
			                                             : rows - 1 - own;
		}
	}
	row.start = dst + (inside ? (uint64_t)(inner.before * E) : 0);
	row.state = inside | block.rotation << 8;
	if (!inside)
		return { 0, 0, 0 };

	const uint64_t low = inner.src < 0 ? src - (bytes - E) : src;
	/* Address of the first row that is loaded together with this one, rounded down. */
	const uint64_t lowest = (low - below * step) & ~UINT64_C(15);
	unsigned char *const slot = tile + (own - below) * args.pitch;

	row.at = (uint32_t)(slot - tile + (low - lowest));
	if (below > 0)
		return { 0, 0, 0 };
	const uint64_t high = low + above * step + bytes;
	uint64_t from = lowest, end = (high + 15) & ~UINT64_C(15);

	if (from < block.low) {
		take_chunk<E>(from, low, high, slot);
		from += 16;
	}
	if (end > block.high && end > from) {
		end -= 16;
		take_chunk<E>(end, low, high, slot + (end - lowest));
	}
	return { from, (uint32_t)(slot - tile + (from - lowest)), (uint32_t)(end - from) };
}

/* Returns the 16 bytes at offset `at`, which is a multiple of E. */
template <int E> DEVICE uint4 short_chunk(const unsigned char *tile, uint32_t at)
{
	const unsigned char *around = tile + (at & ~15u);
	const uint32_t phase = at & (16 - E);
	const uint4 a = tile_read<uint4>(around);

	if (phase == 0)
		return a;
	return shift_chunk(a, tile_read<uint4>(around + 16), phase);
}

/* Writes the whole chunks of the windows, and those of the rows outside. */
template <int E>
DEVICE void write_chunks(const strided_args &args, uint32_t rows, const unsigned char *tile,
                         const short_row *notes)
{
	const uint32_t chunks = (uint32_t)args.by_slots.n;
	const bool back = args.dim[0].src < 0;

	for (uint32_t i = threadIdx.x; i < rows * chunks; i += ROWS_THREADS) {
		const uint32_t r = (uint32_t)divide_by(i, &args.by_slots), k = i - r * chunks;
		const short_row row = notes[r];
		const bool inside = row.state & ROW_INSIDE;
		const uint32_t bytes = (uint32_t)(inside ? args.dim[0].source : args.dim[0].n) * E;
		const uint32_t at = (-(uint32_t)row.start & 15) + k * 16;

		if (at + 16 > bytes || row.state & ROW_SKIPPED)
			continue;
		uint4 v = pattern_of(args.pattern, row.state >> 8);
		if (inside && back)
			v = reverse_elements<E>(short_chunk<E>(tile, row.at + bytes - 16 - at));
		else if (inside)
			v = short_chunk<E>(tile, row.at + at);
		global_write((uint4 *)(row.start + at), v);
	}
}

/* Writes the elements before and after those chunks: pads and parts of chunks. A row has at most by_rest.n of
 * them, `head` of which precede the chunks. */
template <int E>
DEVICE void write_rest(const strided_args &args, uint32_t rows, const unsigned char *tile,
                       const short_row *notes)
{
	using type = typename element<E>::type;
	const strided_dim &inner = args.dim[0];
	const uint32_t rest = (uint32_t)args.by_rest.n, head = (uint32_t)inner.before + 16 / E - 1;
	const uint32_t n = (uint32_t)inner.n, source = (uint32_t)inner.source;

	for (uint32_t i = threadIdx.x; i < rows * rest; i += ROWS_THREADS) {
		const uint32_t r = (uint32_t)divide_by(i, &args.by_rest), e = i - r * rest;
		const short_row row = notes[r];
		const bool inside = row.state & ROW_INSIDE;
		const uint32_t before = inside ? (uint32_t)inner.before : 0;
		const uint32_t bytes = (inside ? source : n) * E, lead = -(uint32_t)row.start & 15;
		const uint32_t first = min(before + lead / E, n);
		const uint32_t last = first + (bytes > lead ? (bytes - lead) / 16 * (16 / E) : 0);
		const int32_t x = (int32_t)(e < head ? e : n - rest + e);

		if ((e < head ? x >= (int32_t)first : x < (int32_t)last) || row.state & ROW_SKIPPED)
			continue;
		const uint64_t to = row.start + (uint64_t)((x - (int32_t)before) * E);
		const uint64_t rotation = row.state >> 8;
		type value = *(const type *)((const char *)args.pattern + (to - rotation) % 16);

		if (inside && (args.mode != PAD_RULE_CONSTANT || in_window(inner, x))) {
			const uint32_t from = (uint32_t)source_index(inner, args.mode, x);

			value =
			    tile_read<type>(tile + row.at + (inner.src < 0 ? source - 1 - from : from) * E);
		}
		global_write((type *)to, value);
	}
}

/* The offset of the barrier, behind the maximum number of rows and notes. */
constexpr uint32_t short_barrier_at = SHORT_TILE_BYTES + ROWS_THREADS * SHORT_NOTE_BYTES;

/* Initializes the thread block's barrier. The __syncthreads() in take_move makes all threads wait for it. */
DEVICE void begin_short(unsigned char *shared)
{
	if (threadIdx.x == 0) {
		barrier_init((barrier *)(shared + MANY_SHARED + short_barrier_at), ROWS_THREADS);
		barrier_init_fence();
	}
}

template <int E>
DEVICE void short_rows(const many_move &move, const share &own, unsigned char *shared, uint32_t parity)
{
	const strided_args &args = move.move;
	const uint64_t first = (uint64_t)own.number * args.rows;
	const uint32_t rows = args.slots - first < args.rows ? (uint32_t)(args.slots - first) : args.rows;
	short_row *notes = (short_row *)(shared + args.rows * args.pitch);
	barrier *arrived = (barrier *)(shared + short_barrier_at);
	short_load load = { 0, 0, 0 };

	if (threadIdx.x < rows) {
		uint64_t number = first + threadIdx.x;
		const list_place block = find_block(move, number, true);

		if (block.there)
			load =
			    find_row<E>(args, block, number, threadIdx.x, rows, shared, notes[threadIdx.x]);
		else
			notes[threadIdx.x] = { 0, 0, ROW_SKIPPED };
	}
	__syncthreads();
	barrier_arrive_expect(arrived, load.bytes);
	if (load.bytes > 0)
		load_bulk(shared + load.at, (const void *)load.from, load.bytes, arrived);
	barrier_wait(arrived, parity);
	write_chunks<E>(args, rows, shared, notes);
	write_rest<E>(args, rows, shared, notes);
}

} // namespace

#define MANY_SHORT(name, e, blocks)                                                                        \
	KERNEL(ROWS_THREADS, blocks) name##_##e(const GRID_CONSTANT struct many_args args)                 \
	{                                                                                                  \
		DYNAMIC_SHARED(shared);                                                                    \
		grid_wait();                                                                               \
		begin_short(shared);                                                                       \
		take_moves(args, shared, [&](const share &own, const turn &turn) {                         \
			short_rows<e>(*(const many_move *)shared, own, shared + MANY_SHARED, turn.parity); \
		});                                                                                        \
	}
#define MANY_SHORT_BOTH(e) MANY_SHORT(many_short, e, SHORT_BLOCKS)
BY_ELEMENT(MANY_SHORT_BOTH)
