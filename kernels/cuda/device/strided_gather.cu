/* SPDX-License-Identifier: Apache-2.0 */
/* Moves elements whatever the source's strides: negative ones, steps, and runs that are too short for rows or
 * tiles.
 *
 * A thread writes aligned chunks of 16 bytes of the destination. If the elements of a chunk follow each other
 * in the source, forwards or backwards, they are read at once, as the two aligned chunks around them.
 * Otherwise they are read one by one.
 */
#include "strided.cuh"

namespace
{

/* A chunk, and the place of its first element in its run. A run spans up to three dimensions that follow each
 * other in the destination; x, y and z are the indices of dimensions 0, 1 and 2. (A uint4's .x .y .z .w are
 * its four words.) */
struct gathered {
	row_chunk c;
	int64_t x;
	int64_t y;
	int64_t z;
	uint64_t from;     /* address of the first element in the source */
	uint32_t rotation; /* rotation of the list block's fill pattern in bytes */
	bool outside;      /* the run is outside the window of a dimension around it */
	bool inside;       /* the first element is inside the windows of all dimensions but dimension 0 */
};

template <int E> DEVICE gathered chunk_at(const strided_args &args, const list_place &block, uint64_t number)
{
	const strided_dim &first = args.dim[0];
	uint64_t left = divide_by(number, &args.by_slots), k = number - left * args.by_slots.n;
	uint64_t dst = block.dst;
	gathered g;

	g.from = block.src;
	g.rotation = block.rotation;
	g.outside = false;
#pragma unroll 1
	for (uint32_t d = args.run; d < args.rank; d++) {
		const strided_dim &dim = args.dim[d];
		uint64_t q = divide_by(left, &args.by[d]);
		int64_t index = (int64_t)(left - q * (uint64_t)dim.n);

		left = q;
		dst += (uint64_t)(index * dim.dst);
		g.from += (uint64_t)((index - dim.before) * dim.src);
		g.outside = g.outside || !in_window(dim, index);
	}
	g.inside = !g.outside;
	g.c = chunk_of<E>(dst, args.run_bytes, k);
	g.y = g.z = 0;
	g.x = g.c.first;
	if (args.run > 1) {
		const strided_dim &second = args.dim[1];

		g.y = (int64_t)divide_by((uint64_t)g.x, &args.by[0]);
		g.x -= g.y * first.n;
		if (args.run > 2) {
			const strided_dim &third = args.dim[2];

			g.z = (int64_t)divide_by((uint64_t)g.y, &args.by[1]);
			g.y -= g.z * second.n;
			g.from += (uint64_t)((g.z - third.before) * third.src);
			g.inside = g.inside && in_window(third, g.z);
		}
		g.from += (uint64_t)((g.y - second.before) * second.src);
		g.inside = g.inside && in_window(second, g.y);
	}
	g.from += (uint64_t)((g.x - first.before) * first.src);
	return g;
}

/* ---- At once ---------------------------------------------------------------------------------------------
 */

/* Returns the address of the source's 16 bytes. */
template <int E> DEVICE uint64_t wide_start(const strided_args &args, const gathered &g)
{
	return args.dim[0].src > 0 ? g.from : g.from - (16 - E);
}

/* Returns whether the chunk is one piece of the source and the aligned chunks around it may be read. */
template <int E> DEVICE bool is_wide(const strided_args &args, const list_place &block, const gathered &g)
{
	const strided_dim &first = args.dim[0];

	return (first.src == E || first.src == -E) && g.c.whole && g.inside && g.x >= first.before &&
	       g.x + 16 / E <= first.before + first.source &&
	       chunk_is_readable(block, wide_start<E>(args, g));
}

/* ---- One by one ------------------------------------------------------------------------------------------
 */

/* Returns the elements of a chunk. The place of the first one in the run is known, and is carried on from
 * element to element. */
template <int E> DEVICE uint4 take_elements(const strided_args &args, const gathered &g)
{
	const strided_dim &first = args.dim[0], &second = args.dim[args.run > 1 ? 1 : 0],
			  &third = args.dim[args.run > 2 ? 2 : 0];
	const uint4 fill = pattern_of(args.pattern, g.rotation);
	uint32_t words[4] = { fill.x, fill.y, fill.z, fill.w };
	int64_t x = g.x, y = g.y, z = g.z;
	uint64_t from = g.from;
	bool inside = g.inside;

#pragma unroll
	for (uint32_t i = 0; i < 16 / E; i++) {
		if (i < g.c.skip / E || (int64_t)(i - g.c.skip / E) >= g.c.last - g.c.first)
			continue;
		if (inside && in_window(first, x))
			chunk_take<E>(words, i, from);
		from += (uint64_t)first.src;
		if (++x < first.n)
			continue;
		x = 0;
		from += (uint64_t)(second.src - first.n * first.src);
		if (++y == second.n && args.run > 2) {
			y = 0;
			from += (uint64_t)(third.src - second.n * second.src);
			z++;
		}
		inside = (args.run < 2 || in_window(second, y)) && (args.run < 3 || in_window(third, z));
	}
	return make_uint4(words[0], words[1], words[2], words[3]);
}

/* Does the same for a chunk that belongs to the row entirely, if no dimension is padded, with less work for
 * each element. */
template <int E> DEVICE uint4 take_elements_whole(const strided_args &args, const gathered &g)
{
	const uint32_t n = (uint32_t)args.dim[0].n, m = args.run > 1 ? (uint32_t)args.dim[1].n : ~0u;
	const uint64_t step = (uint64_t)args.dim[0].src;
	const uint64_t carry =
	    args.run > 1 ? (uint64_t)(args.dim[1].src - args.dim[0].n * args.dim[0].src) : 0;
	const uint64_t carry2 =
	    args.run > 2 ? (uint64_t)(args.dim[2].src - args.dim[1].n * args.dim[1].src) : 0;
	uint32_t x = (uint32_t)g.x, y = (uint32_t)g.y;
	uint64_t src = g.from;
	uint32_t words[4];

#pragma unroll
	for (uint32_t i = 0; i < 16 / E; i++) {
		chunk_take<E>(words, i, src);
		src += step;
		if (++x == n && i + 1 < 16 / E) {
			x = 0;
			src += carry;
			if (++y == m) {
				y = 0;
				src += carry2;
			}
		}
	}
	return make_uint4(words[0], words[1], words[2], words[3]);
}

template <int E> DEVICE void write_elements(const strided_args &args, const gathered &g)
{
	if (g.c.whole && args.whole)
		global_write((uint4 *)g.c.address, take_elements_whole<E>(args, g));
	else if (g.c.first < g.c.last)
		chunk_write<E>(g.c,
		               g.outside ? pattern_of(args.pattern, g.rotation) : take_elements<E>(args, g));
}

/* ---- GATHER_BATCH chunks a thread ----------------------------------------------------------------- */

/* Moves GATHER_BATCH chunks. `a` and `b` are defined for every chunk: registers that only some paths define
 * would be held from the start. */
template <int E, typename MOVE> DEVICE void gather(const MOVE &move, const share &own)
{
	const strided_args &args = args_of(move);
	const uint64_t start = (uint64_t)own.number * (ROWS_THREADS * GATHER_BATCH) + threadIdx.x;
	gathered g[GATHER_BATCH];
	uint4 a[GATHER_BATCH], b[GATHER_BATCH];
	bool wide[GATHER_BATCH];

#pragma unroll
	for (int u = 0; u < GATHER_BATCH; u++) {
		uint64_t number = start + (uint64_t)u * ROWS_THREADS;

		g[u] = {};
		wide[u] = false;
		if (number < args.slots) {
			const list_place block = find_block(move, number, true);

			if (block.there) {
				g[u] = chunk_at<E>(args, block, number);
				wide[u] = is_wide<E>(args, block, g[u]);
			}
		}
		const uint64_t at = wide_start<E>(args, g[u]);
		const uint4 *around = (const uint4 *)(at & ~UINT64_C(15));
		const uint4 nothing = make_uint4(0, 0, 0, 0);

		a[u] = wide[u] ? global_read(around) : nothing;
		b[u] = wide[u] && at % 16 ? global_read(around + 1) : nothing;
	}
#pragma unroll
	for (int u = 0; u < GATHER_BATCH; u++) {
		if (!wide[u]) {
			write_elements<E>(args, g[u]);
			continue;
		}
		const uint4 v = shift_chunk(a[u], b[u], (uint32_t)wide_start<E>(args, g[u]) & 15);

		global_write((uint4 *)g[u].c.address, args.dim[0].src > 0 ? v : reverse_elements<E>(v));
	}
}

template <int E> DEVICE void gather_all(const strided_args &args)
{
	constexpr uint32_t own = ROWS_THREADS * GATHER_BATCH;

	take_turns((uint32_t)((args.slots + own - 1) / own), [&](const turn &turn) {
		gather<E>(args, share{ turn.number, gridDim.x });
	});
}

} // namespace

#define STRIDED_GATHER(e)                                                                        \
	KERNEL(ROWS_THREADS, 4) strided_gather_##e(const GRID_CONSTANT struct strided_args args) \
	{                                                                                        \
		grid_wait();                                                                     \
		gather_all<e>(args);                                                             \
	}
BY_ELEMENT(STRIDED_GATHER)

#define MANY_GATHER(e)                                                                     \
	KERNEL(ROWS_THREADS, 2) many_gather_##e(const GRID_CONSTANT struct many_args args) \
	{                                                                                  \
		DYNAMIC_SHARED(shared);                                                    \
		grid_wait();                                                               \
		take_moves(args, shared, [&](const share &own, const turn &) {             \
			gather<e>(*(const many_move *)shared, own);                        \
		});                                                                        \
	}
BY_ELEMENT(MANY_GATHER)
