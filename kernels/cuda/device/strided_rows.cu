/* SPDX-License-Identifier: Apache-2.0 */
/* Moves rows that are contiguous on both sides, whatever their phases, direction and rank.
 *
 * The destination is written in aligned chunks of 16 bytes. A chunk is read as the two aligned chunks of the
 * source around it, which are then shifted into place. A constant border is written in such chunks as well.
 * The elements before and after the chunks, and the border of other modes, are moved one by one.
 */
#include "pad.cuh"
#include "row_copy.cuh"

namespace
{

/* The address of a row of the destination, and that of the source's row, which is read from the start of the
 * window on. */
struct row_place {
	uint64_t dst;
	uint64_t src;
	/* The row is inside the windows of the outer dimensions. In modes other than constant, all rows
	 * are. */
	bool inside;
};

template <bool MODES> DEVICE row_place row_of(const strided_args &args, const list_place &block, uint64_t row)
{
	row_place place = { block.dst, block.src, true };

#pragma unroll 1
	for (uint32_t d = 1; d < args.rank; d++) {
		const strided_dim &dim = args.dim[d];
		uint64_t q = d + 1 < args.rank ? divide_by(row, &args.by[d]) : 0;
		int64_t index = (int64_t)(row - q * (uint64_t)dim.n);

		row = q;
		place.dst += (uint64_t)(index * dim.dst);
		if (!MODES) {
			place.src += (uint64_t)((index - dim.before) * dim.src);
			place.inside = place.inside && in_window(dim, index);
		} else {
			place.src += (uint64_t)(source_index(dim, args.mode, index) * dim.src);
		}
	}
	return place;
}

/* Returns the part of a row with elements [first, last). Chunks whose surroundings in the source may not be
 * read are left to be moved as elements. */
template <int E>
DEVICE row_part part_of(const strided_dim &inner, const list_place &block, const row_place &place,
                        int64_t first, int64_t last)
{
	const bool back = inner.src < 0;
	/* The chunk at address a of the destination is read from address here + a, or here - a if the source
	 * runs backwards. */
	const uint64_t zero = place.src - (uint64_t)(inner.before * inner.src);
	const uint64_t here = back ? zero + place.dst + E - 16 : zero - place.dst;
	int64_t low = first > inner.before ? first : inner.before;
	int64_t high = last < inner.before + inner.source ? last : inner.before + inner.source;
	row_part part = { 0, 0, (uint32_t)here & 15, 0, first, first, first, last };

	if (!place.inside || low >= high)
		return part;
	uint64_t start = (place.dst + (uint64_t)(low * E) + 15) & ~UINT64_C(15);
	uint64_t end = (place.dst + (uint64_t)(high * E)) & ~UINT64_C(15);

	if (start < end && !chunk_is_readable(block, back ? here - start : here + start))
		start += 16;
	if (start < end && !chunk_is_readable(block, back ? here - end + 16 : here + end - 16))
		end -= 16;
	if (start >= end)
		return part;
	part.to = start;
	part.from = (back ? here - start : here + start) & ~UINT64_C(15);
	part.chunks = (uint32_t)((end - start) / 16);
	part.chunks_first = (int64_t)(start - place.dst) / E;
	part.chunks_last = (int64_t)(end - place.dst) / E;
	return part;
}

/* Moves elements [first, last) one by one. The ends of a row seldom leave more than one element for a lane,
 * so the loop is not unrolled, which would only take registers from the chunks. */
template <int E, bool MODES>
DEVICE void copy_elements(const strided_args &args, const row_place &place, uint32_t rotation, int64_t first,
                          int64_t last)
{
	using type = typename element<E>::type;
	const strided_dim &inner = args.dim[0];

#pragma unroll 1
	for (int64_t i = first + threadIdx.x % 32; i < last; i += 32) {
		uint64_t to = place.dst + (uint64_t)(i * E);
		type value = *(const type *)((const char *)args.pattern + (to - rotation) % 16);

		if (place.inside && in_window(inner, i))
			value = global_read(
			    (const type *)(place.src + (uint64_t)((i - inner.before) * inner.src)));
		else if (MODES)
			value = global_read(
			    (const type *)(place.src +
			                   (uint64_t)(source_index(inner, args.mode, i) * inner.src)));
		global_write((type *)to, value);
	}
}

/* Writes elements [first, last), which are all border. */
template <int E>
DEVICE void fill_border(const strided_args &args, const row_place &place, uint32_t rotation, int64_t first,
                        int64_t last)
{
	const uint64_t start = (place.dst + (uint64_t)(first * E) + 15) & ~UINT64_C(15),
		       end = (place.dst + (uint64_t)(last * E)) & ~UINT64_C(15);

	if (start < end) {
		const uint4 v = pattern_of(args.pattern, rotation);

#pragma unroll 1
		for (uint64_t to = start + threadIdx.x % 32 * 16; to < end; to += 32 * 16)
			global_write((uint4 *)to, v);
		copy_elements<E, false>(args, place, rotation, first, (int64_t)(start - place.dst) / E);
		first = (int64_t)(end - place.dst) / E;
	}
	copy_elements<E, false>(args, place, rotation, first, last);
}

/* Moves elements [first, last), which the chunks of the window have left. */
template <int E, bool MODES>
DEVICE void copy_rest(const strided_args &args, const row_place &place, uint32_t rotation, int64_t first,
                      int64_t last)
{
	const strided_dim &inner = args.dim[0];

	if (!MODES && first < last) {
		const int64_t before = place.inside ? max(first, min(inner.before, last)) : last;
		const int64_t after =
		    place.inside ? max(before, min(inner.before + inner.source, last)) : last;

		fill_border<E>(args, place, rotation, first, before);
		fill_border<E>(args, place, rotation, after, last);
		first = before;
		last = after;
	}
	copy_elements<E, MODES>(args, place, rotation, first, last);
}

/* Copies a warp's chunks by the variant of copy_chunks for the number of whole words in their phase. Both
 * sides are aligned to an element, so the phase is a multiple of E, and wide elements need only few
 * variants. */
template <int E, int STEP> DEVICE void copy_part(const row_part &part)
{
	if (E == 16 || part.phase == 0)
		copy_chunks<E, -1, STEP>(part);
	else if (E < 4 && part.phase < 4)
		copy_chunks<E, 0, STEP>(part);
	else if (E < 8 && part.phase < 8)
		copy_chunks<E, 1, STEP>(part);
	else if (E == 8 || part.phase < 12)
		copy_chunks<E, 2, STEP>(part);
	else
		copy_chunks<E, 3, STEP>(part);
}

/* Moves rows. Each warp takes a row, or a part of ROW_BYTES of a longer one. */
template <int E, bool MODES, typename MOVE> DEVICE void rows(const MOVE &move, const share &own)
{
	const strided_args &args = args_of(move);
	constexpr int64_t part_elements = ROW_BYTES / E;
	constexpr uint32_t warps = ROWS_THREADS / 32;
	const uint64_t parts = args.by_slots.n;

	for (uint64_t slot = (uint64_t)own.number * warps + threadIdx.x / 32; slot < args.slots;
	     slot += (uint64_t)own.of * warps) {
		uint64_t number = slot;
		const list_place block = find_block(move, number, threadIdx.x % 32 == 0);

		if (!block.there)
			continue;
		uint64_t row = divide_by(number, &args.by_slots);
		int64_t first = (int64_t)(number - row * parts) * part_elements;
		int64_t last = args.dim[0].n - first < part_elements ? args.dim[0].n : first + part_elements;
		const row_place place = row_of<MODES>(args, block, row);
		const row_part part = part_of<E>(args.dim[0], block, place, first, last);

		if (args.dim[0].src < 0)
			copy_part<E, -1>(part);
		else
			copy_part<E, 1>(part);
		copy_rest<E, MODES>(args, place, block.rotation, part.first, part.chunks_first);
		copy_rest<E, MODES>(args, place, block.rotation, part.chunks_last, part.last);
	}
}

} // namespace

/* There are two kernels, because the code for other modes would slow constant borders down. */
#define STRIDED_ROWS(e)                                                                         \
	KERNEL(ROWS_THREADS, 1) strided_rows_##e(const GRID_CONSTANT struct strided_args args)  \
	{                                                                                       \
		grid_wait();                                                                    \
		rows<e, false>(args, whole_grid());                                             \
	}                                                                                       \
	KERNEL(ROWS_THREADS, 1) strided_modes_##e(const GRID_CONSTANT struct strided_args args) \
	{                                                                                       \
		grid_wait();                                                                    \
		rows<e, true>(args, whole_grid());                                              \
	}
BY_ELEMENT(STRIDED_ROWS)

#define MANY_ROWS(name, e, modes)                                                                          \
	KERNEL(ROWS_THREADS, modes &&e != 8 ? 3 : 1) name##_##e(const GRID_CONSTANT struct many_args args) \
	{                                                                                                  \
		DYNAMIC_SHARED(shared);                                                                    \
		grid_wait();                                                                               \
		take_moves(args, shared, [&](const share &own, const turn &) {                             \
			rows<e, modes>(*(const many_move *)shared, own);                                   \
		});                                                                                        \
	}
#define MANY_ROWS_BOTH(e)              \
	MANY_ROWS(many_rows, e, false) \
	MANY_ROWS(many_modes, e, true)
BY_ELEMENT(MANY_ROWS_BOTH)

/* ---- Runs of a batch ----------------------------------------------------------------------------------- */

namespace
{

DEVICE void copy_bytes(const row_place &place, int64_t first, int64_t last)
{
#pragma unroll 1
	for (int64_t i = first + threadIdx.x % 32; i < last; i += 32)
		global_write((uint8_t *)place.dst + i, global_read((const uint8_t *)place.src + i));
}

} // namespace

KERNEL(ROWS_THREADS, 1) many_runs(const GRID_CONSTANT struct runs_args args)
{
	constexpr uint32_t warps = ROWS_THREADS / 32;

	grid_wait();
	for (uint64_t number = (uint64_t)blockIdx.x * warps + threadIdx.x / 32; number < args.parts;
	     number += (uint64_t)gridDim.x * warps) {
		const run_entry run = find_run(args, number);
		const int64_t first = (int64_t)(number - run.first) * ROW_BYTES, bytes = (int64_t)run.bytes;
		const int64_t last = bytes - first < ROW_BYTES ? bytes : first + ROW_BYTES;
		const strided_dim inner = { bytes, 1, 1, 0, bytes };
		const list_place block = { run.dst, run.src, run.src, run.src + run.bytes, 0, true };
		const row_place place = { run.dst, run.src, true };
		const row_part part = part_of<1>(inner, block, place, first, last);

		copy_part<1, 1>(part);
		copy_bytes(place, part.first, part.chunks_first);
		copy_bytes(place, part.chunks_last, part.last);
	}
}
