/* SPDX-License-Identifier: Apache-2.0 */
/* Code that the kernels for tiles of many axes share (kernels/cuda/strategy/permute_args.h). It finds the
 * place of a thread block's tile, loads its runs, makes the notes of its rows, and writes the ends of rows.
 *
 * A thread block moves one tile at a time. While it waits, other thread blocks of its multiprocessor work.
 * Threads compute the places of the rows while the TMA brings the runs of the source. Rows are written in
 * chunks of 16 bytes that are aligned in the destination, and as whole sectors of 32 bytes. A tile also
 * writes the bytes of the tile before it that share a sector with its own; the margin is for those. It leaves
 * the bytes that share a sector with the next tile to that tile.
 */
#ifndef KERNELS_CUDA_DEVICE_PERMUTE_CUH
#define KERNELS_CUDA_DEVICE_PERMUTE_CUH

#include "pad.cuh"
#include "strided.cuh"
#include "turns.cuh"

/* A thread block's tile. Indices are those of the destination and begin with the margin. from_dst and
 * from_src are the lowest indices of the source that the tile reads along a split dimension that is
 * padded. */
struct permute_tile {
	uint64_t dst; /* address of the destination's element at the first index; src: that of the source's */
	uint64_t src;
	uint32_t n_dst; /* number of indices along the split dimensions */
	uint32_t n_src;
	uint32_t n_stack;
	int start_dst;
	int start_src;
	int start_stack;
	int from_dst;
	int from_src;
	uint32_t margin;
	uint32_t base;     /* offset of a row's first element from its slot */
	uint32_t row_base; /* permute_args.row_base, and the share along split_dst */
	uint32_t load_bytes;
	bool first;   /* the destination's runs begin in this tile */
	bool last;    /* the destination's runs end in this tile */
	bool outside; /* the whole tile is border */
};

/* Replaces an index of the destination by the index of the source that it reads. Returns false if there is
 * none, because the index is border. */
template <bool PADDED> DEVICE bool find_index(const permute_args &args, const permute_axis &axis, int &i)
{
	if (!PADDED)
		return true;
	i -= axis.before;
	if ((uint32_t)i < (uint32_t)axis.source)
		return true;
	if (args.mode == PAD_RULE_CONSTANT)
		return false;
	/* For most of a border the index turns only once at an end of the window, which takes no division. */
	const uint32_t n = (uint32_t)axis.source, at = (uint32_t)i;
	const uint32_t turned = args.mode == PAD_RULE_WRAP        ? (i < 0 ? at + n : at - n)
	                        : args.mode == PAD_RULE_REFLECT   ? (i < 0 ? 0 - at : 2 * n - 2 - at)
	                        : args.mode == PAD_RULE_SYMMETRIC ? (i < 0 ? ~at : 2 * n - 1 - at)
	                                                          : (i < 0 ? 0 : n - 1);

	if (turned < n) {
		i = (int)turned;
		return true;
	}
	strided_dim dim = {};

	dim.source = axis.source;
	i = (int)source_index(dim, args.mode, i);
	return true;
}

/* Returns the number of source indices from the lowest to the highest that destination indices [start,
 * start + n) read, and sets `from` to the lowest. */
DEVICE uint32_t find_hull(const permute_args &args, const permute_axis &axis, int start, uint32_t n,
                          int &from)
{
	const int end = start + (int)n, window_end = axis.before + axis.source;
	const int first = max(start, axis.before), last = min(end, window_end) - 1;
	int low = first <= last ? first - axis.before : axis.source,
	    high = first <= last ? last - axis.before : -1;

	if (args.mode != PAD_RULE_CONSTANT) {
		/* On either side of the window, the source's index only rises or only falls, so its extremes
		 * are at the ends. */
		const int ends[4] = { start, end - 1, min(end, axis.before) - 1, max(start, window_end) };

		for (int k = 0; k < 4; k++) {
			int i = ends[k];

			if (i < start || i >= end)
				continue;
			find_index<true>(args, axis, i);
			low = min(low, i);
			high = max(high, i);
		}
	}
	from = low;
	return high < low ? 0 : (uint32_t)(high - low + 1);
}

/* Finds the tile's index along each dimension of the grid. If the tile is padded, set_loads handles the
 * source's side of split dimensions. */
template <bool PADDED> DEVICE void set_place(const permute_args &args, uint32_t number, permute_tile &t)
{
	uint32_t at_dst = 0;

#pragma unroll 1
	for (uint32_t d = 0; d < args.n_grid; d++) {
		const permute_axis &axis = args.grid[d];
		const uint32_t q = d + 1 < args.n_grid ? divide_u32(number, &axis.by) : 0;
		const uint32_t index = number - q * (uint32_t)axis.by.n;
		bool is_split = true;
		int i = (int)index;

		number = q;
		t.dst += (uint64_t)(index * axis.dst);
		if (d == args.split_dst.axis) {
			at_dst = index;
		} else if (d == args.split_src.axis) {
			t.start_src = (int)(index * args.split_src.tile);
			t.n_src = min(args.split_src.tile, args.split_src.n - (uint32_t)t.start_src);
		} else if (d == args.split_stack.axis) {
			t.start_stack = (int)(index * args.split_stack.tile);
			t.n_stack = min(args.split_stack.tile, args.split_stack.n - (uint32_t)t.start_stack);
		} else {
			is_split = false;
		}
		if (PADDED && is_split)
			continue;
		if (!find_index<PADDED>(args, axis, i))
			t.outside = true;
		t.src += (uint64_t)(i * axis.src);
	}
	if (args.split_dst.axis != PERMUTE_NONE) {
		const permute_split &split = args.split_dst;
		const uint32_t start = at_dst * split.tile, end = min(start + split.tile, split.n);

		t.margin = min(start, args.margin);
		t.n_dst = end - start + t.margin;
		t.first = start == 0;
		t.last = end == split.n;
		t.dst -= (uint64_t)(t.margin * split.dst);
		t.start_dst = (int)(start - t.margin);
		if (!PADDED)
			t.src -= (uint64_t)(t.margin * split.src);
	}
}

/* Sets the address at which the loads begin, and their bytes. */
template <bool PADDED> DEVICE void set_loads(const permute_args &args, permute_tile &t)
{
	const bool by_dst = args.load_by == PERMUTE_BY_SPLIT_DST;
	uint32_t n = by_dst ? t.n_dst : t.n_src;

	if (args.load_by == PERMUTE_BY_NONE)
		return;
	if (PADDED && by_dst) {
		n = find_hull(args, args.grid[args.split_dst.axis], t.start_dst, t.n_dst, t.from_dst);
		t.src += (uint64_t)(t.from_dst * args.split_dst.src);
	} else if (PADDED) {
		n = find_hull(args, args.grid[args.split_src.axis], t.start_src, t.n_src, t.from_src);
		t.src += (uint64_t)(t.from_src * args.split_src.src);
	} else if (args.back) {
		const int64_t reach = (int64_t)(t.n_dst - 1) * args.split_dst.src;

		t.src += (uint64_t)reach;
		t.base += (uint32_t)-reach;
		if (args.back_part) {
			const uint32_t rows = (t.n_dst - args.back_part) * (uint32_t)-args.split_dst.src;

			t.row_base += rows;
			t.base -= rows;
		}
	}
	if (n == 0)
		t.outside = true;
	t.load_bytes = t.load_bytes * n - args.load_gap;
}

/* Lets the stream's next grid start beside this one's last tiles. */
DEVICE void launch_dependents(const turn &turn)
{
	if (turn.last)
		grid_launch_dependents();
}

template <bool PADDED> DEVICE permute_tile find_tile(const permute_args &args, uint32_t number)
{
	permute_tile t = {};

	t.dst = args.dst;
	t.src = args.src;
	t.n_dst = t.n_src = t.n_stack = 1;
	t.first = t.last = true;
	t.base = args.run_base;
	t.row_base = args.row_base;
	t.load_bytes = args.load_bytes;
	set_place<PADDED>(args, number, t);
	set_loads<PADDED>(args, t);
	return t;
}

DEVICE uint32_t slot_of(const permute_args &args, uint32_t load)
{
	return load * args.pitch + (load >> args.pad_shift) * args.pad;
}

/* Returns the offset of a load's first byte in its slot. */
DEVICE uint32_t phase_of(const permute_args &args, uint64_t src, uint32_t slot)
{
	return ((uint32_t)src - slot) & args.phase_mask;
}

/* Returns the place of a byte of the slots, skew included. */
template <bool SKEWED> DEVICE uint32_t skewed(uint32_t at, uint32_t skew)
{
	return SKEWED ? at + (at >> skew) * 16 : at;
}

/* ---- Loads --------------------------------------------------------------------------------------------- */

/* Sets src to the address at which a load begins. Returns false if the tile does not have the load. */
template <bool PADDED>
DEVICE bool find_load(const permute_args &args, const permute_tile &t, uint32_t number, uint64_t &src)
{
	bool there = !PADDED || !t.outside;

	src = t.src;
#pragma unroll 1
	for (uint32_t d = 0; d < args.n_load; d++) {
		const permute_axis &axis = args.load[d];
		const uint32_t q = d + 1 < args.n_load ? divide_u32(number, &axis.by) : 0;
		const uint32_t index = number - q * (uint32_t)axis.by.n;
		int i = (int)index + (!PADDED                  ? 0
		                      : d == args.limited_load ? t.start_dst
		                      : d == args.stack_split  ? t.start_stack
		                                               : 0);

		number = q;
		there = find_index<PADDED>(args, axis, i) && there;
		there = there && (d != args.limited_load || index < t.n_dst) &&
		        (d != args.stack_split || index < t.n_stack);
		src += (uint64_t)(i * axis.src);
	}
	return there;
}

/* Copies the bytes in [low, high) of a chunk that the TMA may not load because the chunk lies partly
 * outside the readable memory. This is seldom needed, so the loop is not unrolled, which would only cost
 * registers. */
template <int E> DEVICE void take_part(uint64_t chunk, uint64_t low, uint64_t high, unsigned char *to)
{
	using type = typename element<E>::type;

	tile_write<uint4>(to, make_uint4(0, 0, 0, 0));
#pragma unroll 1
	for (uint32_t i = 0; i < 16; i += E)
		if (chunk + i >= low && chunk + i < high)
			tile_write<type>(to + i, global_read((const type *)(chunk + i)));
}

/* Rounds the run [from, end) outwards to whole chunks, but leaves out those that lie partly outside the
 * readable memory, because the TMA may not load them. */
DEVICE void clip_load(const permute_args &args, uint64_t &from, uint64_t &end)
{
	from &= ~UINT64_C(15);
	end = (end + 15) & ~UINT64_C(15);
	if (from < args.low)
		from += 16;
	if (end > args.high && end > from)
		end -= 16;
}

/* Starts the loads of the tile's runs. Bytes may arrive before the barrier expects them: its phase ends only
 * when all threads have arrived, too. */
template <int E, bool PADDED>
DEVICE void load_runs(const permute_args &args, const permute_tile &t, unsigned char *tile, barrier *arrived)
{
	const uint32_t parts = (uint32_t)args.by_parts.n;
	uint32_t bytes = 0;
	uint64_t src;

	for (uint32_t i = threadIdx.x; i < args.loads * parts; i += PERMUTE_THREADS) {
		const uint32_t load = divide_u32(i, &args.by_parts), part = i - load * parts;

		if (!find_load<PADDED>(args, t, load, src))
			continue;
		const uint32_t stack = divide_u32(load, &args.by_loads);
		const uint32_t own = args.slot_lead + stack * args.stack_pitch +
		                     slot_of(args, load - stack * (uint32_t)args.by_loads.n);
		const uint64_t high = src + t.load_bytes, around = src & ~UINT64_C(15);
		const uint32_t slot = own + (phase_of(args, src, own) & ~15u);
		uint64_t from = src, end = high;

		clip_load(args, from, end);
		if (part == 0 && from > around)
			take_part<E>(around, src, high, tile + skewed<true>(slot, args.skew));
		if (part == 0 && end < high && end >= from)
			take_part<E>(end, src, high,
			             tile + skewed<true>(slot + (uint32_t)(end - around), args.skew));
		if (end <= from)
			continue;
		const uint32_t first = slot + (uint32_t)(from - around),
			       last = first + (uint32_t)(end - from);
		const uint32_t begin = ((first >> args.skew) + part) << args.skew;
		const uint32_t low = max(first, begin), n = min(last, begin + (1u << args.skew)) - low;

		if (low >= last)
			continue;
		load_bulk(tile + skewed<true>(low, args.skew), (const void *)(from + (low - first)), n,
		          arrived);
		bytes += n;
	}
	barrier_arrive_expect(arrived, bytes);
}

/* ---- Notes --------------------------------------------------------------------------------------------- */

/* Values of E for the notes of PIECES and WORDS. For ELEMENTS, E is the size of an element. */
enum { NOTES_OF_PIECES = 0, NOTES_OF_WORDS = -1 };

/* Writes note i of the rows (permute_args.h). The row begins `dst` bytes past the tile's lowest address and
 * has `bytes` bytes; its first element is at offset `at` in the slots. `border` says whether all of it is
 * border. A row's first or last chunk is written in part if the row begins or ends within a sector and no
 * other tile writes that sector. */
template <int E>
DEVICE void write_note(const permute_args &args, const permute_tile &t, unsigned char *rows, uint32_t i,
                       uint32_t dst, uint32_t at, uint32_t bytes, bool border)
{
	unsigned char *const note = rows + i * (E == NOTES_OF_WORDS ? PERMUTE_WORDS_NOTE : PERMUTE_NOTE);
	const uint32_t start = ((uint32_t)t.dst & 31) + dst, lead = t.margin * args.row_unit;
	const uint32_t low = (start + lead) & (t.first || args.exact ? ~0u : ~31u),
		       high = (start + bytes) & (t.last || args.exact ? ~0u : ~31u), chunk = low & ~15u;
	const uint32_t number = (chunk - (start & ~15u)) / 16;
	const uint32_t n = bytes == 0 || low >= high ? 0 : (high - chunk + 15) / 16;
	const uint32_t head = low - chunk, tail = ((high - 1) & 15) + 1;

	at &= 0xffff;
	if constexpr (E == NOTES_OF_WORDS) {
		const uint32_t around = start & ~15u;

		tile_write<uint2>(note,
		                  make_uint2(start, n == 0 ? 0 : (low - around) | (high - around) << 16));
		tile_write<uint16_t>(rows + args.row_notes * PERMUTE_WORDS_NOTE + i * PERMUTE_WORDS_PLACE,
		                     (uint16_t)(bytes == 0 ? 0
		                                : border   ? PERMUTE_BORDER
		                                           : at));
	} else if constexpr (E == NOTES_OF_PIECES) {
		tile_write<uint4>(note, make_uint4(chunk, at | n << 16, 16 * (number + 1) - (start & 15),
		                                   head | tail << 8 | (uint32_t)border << 24));
	} else {
		const uint32_t phase = (start & 15) >> args.phase_shift, past = E < 4 ? start & 3 : 0;
		const uint32_t entry =
		    2 * (phase * (args.table + PERMUTE_LEAD) + PERMUTE_LEAD + number * (16 / E));
		const uint32_t mask = 2 * (phase * (args.table * E / 16) + number);

		tile_write<uint4>(note, make_uint4(chunk, at | n << 16, entry | mask << 16,
		                                   head | tail << 8 | past << 16 | (uint32_t)border << 24));
	}
}

template <int E, bool PADDED>
DEVICE void note_rows(const permute_args &args, const permute_tile &t, unsigned char *rows)
{
	for (uint32_t i = threadIdx.x; i < args.row_notes; i += PERMUTE_THREADS) {
		const uint32_t n = args.row_split ? t.n_dst : args.last_n;
		uint32_t number = i, at = t.row_base, bytes = i < args.rows ? args.row_bytes : 0, slot = 0;
		uint64_t src = t.src;
		uint64_t dst = args.row_lead;
		bool border = PADDED && t.outside;

		if (args.row_split && args.cut_row == PERMUTE_NONE && bytes)
			bytes = args.row_unit * t.n_dst;
#pragma unroll 1
		for (uint32_t d = 0; d < args.n_row; d++) {
			const permute_axis &axis = args.row[d];
			const uint32_t q = d + 1 < args.n_row ? divide_u32(number, &axis.by) : 0;
			const uint32_t index = number - q * (uint32_t)axis.by.n;
			/* Index in args.load of the stack's dimension. It is PERMUTE_NONE - 1 for other
			 * dimensions. */
			const uint32_t stack =
			    d < args.stack_row ? PERMUTE_NONE - 1 : args.stack_load + d - args.stack_row;
			int from = 0, s = (int)index;

			number = q;
			dst += (uint64_t)(index * axis.dst);
			if (PADDED && d == args.limited_row) {
				s += t.start_src;
				from = t.from_src;
			} else if (PADDED && d == args.split_row) {
				s += t.start_dst;
				from = t.from_dst;
			} else if (PADDED && stack == args.stack_split) {
				s += t.start_stack;
			}
			if (!find_index<PADDED>(args, axis, s))
				border = true;
			if (d >= args.stack_row) {
				slot += index * (uint32_t)axis.src;
				src += (uint64_t)(s * args.load[stack].src);
			} else {
				at += (uint32_t)(s - from) * (uint32_t)axis.src;
			}
			if ((d == args.limited_row && index >= t.n_src) ||
			    (d == args.split_row && index >= t.n_dst) ||
			    (stack == args.stack_split && index >= t.n_stack))
				bytes = 0;
			if (d == args.cut_row && bytes > 0)
				bytes = n > index * args.cut
				            ? args.row_unit * min(args.cut, n - index * args.cut)
				            : 0;
		}
		at += slot + (args.row_phase ? phase_of(args, src, slot) : 0);
		write_note<E>(args, t, rows, i, (uint32_t)dst, at, bytes, border);
	}
}

/* ---- Chunks ----------------------------------------------------------------------------------------------
 */

DEVICE uint32_t word_at(const uint4 &v, uint32_t at)
{
	const uint32_t low = at & 4 ? v.y : v.x, high = at & 4 ? v.w : v.z;

	return at & 8 ? high : low;
}

/* Returns whether all of [first, first + n) is in [at, end). */
DEVICE bool is_within(uint32_t first, uint32_t n, uint32_t at, uint32_t end)
{
	return first >= at && first + n <= end;
}

/* Writes the bytes of a word whose offsets in its chunk are in [at, end). The word begins at offset
 * `first`. */
template <int E>
DEVICE void write_part_of_word(uint64_t chunk, uint32_t word, uint32_t first, uint32_t at, uint32_t end)
{
#pragma unroll
	for (uint32_t i = first, k = 0; k < 2; i += 2, k++, word >>= 16) {
		if (is_within(i, 2, at, end)) {
			global_write((uint16_t *)(chunk + i), (uint16_t)word);
		} else if (E == 1) {
			if (is_within(i, 1, at, end))
				global_write((uint8_t *)(chunk + i), (uint8_t)word);
			if (is_within(i + 1, 1, at, end))
				global_write((uint8_t *)(chunk + i + 1), (uint8_t)(word >> 8));
		}
	}
}

/* Writes bytes [at, end) of a chunk: whole words, two at a time where possible, and the bytes of the first
 * and the last word. Each store costs the L2 a sector. */
template <int E> DEVICE void write_part(uint64_t chunk, const uint4 &v, uint32_t at, uint32_t end)
{
#pragma unroll
	for (uint32_t i = 0; i < 16; i += 8) {
		const uint32_t low = i ? v.z : v.x, high = i ? v.w : v.y;

		if (is_within(i, 8, at, end)) {
			global_write((uint2 *)(chunk + i), make_uint2(low, high));
		} else if (E <= 4) {
			if (is_within(i, 4, at, end))
				global_write((uint32_t *)(chunk + i), low);
			if (is_within(i + 4, 4, at, end))
				global_write((uint32_t *)(chunk + i + 4), high);
		}
	}
	if constexpr (E < 4) {
		const uint32_t head = at & ~3u, tail = end & ~3u;

		if (at & 3)
			write_part_of_word<E>(chunk, word_at(v, head), head, at, end);
		if ((end & 3) && (tail != head || (at & 3) == 0))
			write_part_of_word<E>(chunk, word_at(v, tail), tail, at, end);
	}
}

#endif
