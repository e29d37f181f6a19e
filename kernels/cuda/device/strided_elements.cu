/* SPDX-License-Identifier: Apache-2.0 */
/* Moves wide elements one by one, whatever the strides. Neighbouring lanes write neighbouring elements of the
 * destination, and so do consecutive rounds of a thread block. If they read several elements of one line of
 * the source, that line is therefore still in the multiprocessor's cache after the first read. */
#include "strided.cuh"

namespace
{

/* The number of dimensions whose loop is unrolled, so that their arguments are at constant addresses. */
constexpr uint32_t unrolled = 4;

template <typename VISIT>
DEVICE uint32_t visit_index(const strided_args &args, uint32_t d, uint32_t number, const VISIT &visit)
{
	const uint32_t rest = divide_u32(number, &args.by[d]);

	visit(args.dim[d], number - rest * (uint32_t)args.by[d].n);
	return rest;
}

/* Calls visit(dim, index) for each dimension of an element, given its number in the destination's order. */
template <typename VISIT>
DEVICE void visit_indices(const strided_args &args, uint32_t number, const VISIT &visit)
{
	const uint32_t last = args.rank - 1;

#pragma unroll
	for (uint32_t d = 0; d < unrolled; d++) {
		if (d == last) {
			visit(args.dim[d], number);
			return;
		}
		number = visit_index(args, d, number, visit);
	}
#pragma unroll 1
	for (uint32_t d = unrolled; d < last; d++)
		number = visit_index(args, d, number, visit);
	visit(args.dim[last], number);
}

/* Returns the address of an element in the source, and sets `inside` to whether it is in the window. An
 * element of the border gets the address of the first element, which is safe to read. */
template <bool PADDED> DEVICE uint64_t source_of(const strided_args &args, uint32_t number, bool &inside)
{
	uint64_t src = args.src;

	inside = true;
	visit_indices(args, number, [&](const strided_dim &dim, uint32_t index) {
		const int i = PADDED ? (int)index - (int)dim.before : (int)index;

		inside = inside && (!PADDED || (uint32_t)i < (uint32_t)dim.source);
		src += (uint64_t)(i * dim.src);
	});
	return !PADDED || inside ? src : args.src;
}

template <int E> DEVICE uint64_t destination_of(const strided_args &args, uint32_t number)
{
	uint64_t dst = args.dst;

	if (args.run == args.rank)
		return dst + (uint64_t)number * E;
	visit_indices(args, number,
	              [&](const strided_dim &dim, uint32_t index) { dst += (uint64_t)(index * dim.dst); });
	return dst;
}

/* Moves a batch of elements. All reads come first, and none depends on a branch. */
template <int E, bool PADDED> DEVICE void move_batch(const strided_args &args, uint32_t block)
{
	using type = typename element<E>::type;
	constexpr uint32_t batch = ELEMENTS_BATCH(E);
	const uint32_t first = block * (batch * ROWS_THREADS) + threadIdx.x - args.lead;
	const uint32_t count = (uint32_t)args.slots;
	bool inside[batch];
	type v[batch];

#pragma unroll
	for (uint32_t k = 0; k < batch; k++) {
		const uint32_t number = first + k * ROWS_THREADS;

		v[k] = global_read((const type *)source_of<PADDED>(args, min(number, count - 1), inside[k]));
	}
#pragma unroll
	for (uint32_t k = 0; k < batch; k++) {
		const uint32_t number = first + k * ROWS_THREADS;

		if (number >= count)
			continue;
		const uint64_t dst = destination_of<E>(args, number);

		global_write((type *)dst,
		             !PADDED || inside[k] ? v[k] : pattern_at<E>(pattern_of(args.pattern, 0), dst));
	}
}

template <int E> DEVICE void move_elements(const strided_args &args)
{
	constexpr uint32_t own = ELEMENTS_BATCH(E) * ROWS_THREADS;

	take_turns((uint32_t)((args.slots + args.lead + own - 1) / own), [&](const turn &turn) {
		if (args.whole)
			move_batch<E, false>(args, turn.number);
		else
			move_batch<E, true>(args, turn.number);
	});
}

} // namespace

#define STRIDED_ELEMENTS(e)                                                \
	KERNEL(ROWS_THREADS, ELEMENTS_BLOCKS(e))                           \
	strided_elements_##e(const GRID_CONSTANT struct strided_args args) \
	{                                                                  \
		grid_wait();                                               \
		move_elements<e>(args);                                    \
	}
STRIDED_ELEMENTS(4)
STRIDED_ELEMENTS(8)
STRIDED_ELEMENTS(16)
