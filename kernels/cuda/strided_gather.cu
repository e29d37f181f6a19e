/* Whatever the source's strides are: negative ones, steps, runs too short for rows or tiles.
 *
 * A thread writes an aligned chunk of 16 bytes of the destination, and finds its elements one by one.
 */
#include "strided.cuh"

namespace
{

/* The run of a row is up to three dimensions that follow each other in the destination; where an element is
 * in them is found for the first of a chunk, and carried on. */
template <int E> DEVICE uint4 run_take(const strided_args &args, const row_chunk &c, uint64_t src)
{
	const strided_dim &first = args.dim[0], &second = args.dim[args.run > 1 ? 1 : 0],
			  &third = args.dim[args.run > 2 ? 2 : 0];
	uint32_t words[4] = { args.pattern[0], args.pattern[1], args.pattern[2], args.pattern[3] };
	uint64_t q = divide((uint64_t)c.first, (uint64_t)first.n);
	uint64_t r = args.run > 1 ? divide(q, (uint64_t)second.n) : 0;
	int64_t x = c.first - (int64_t)q * first.n, y = (int64_t)q - (int64_t)r * second.n, z = (int64_t)r;
	uint64_t from = src + (uint64_t)((x - first.before) * first.src);
	bool inside = true;

	if (args.run > 1) {
		from += (uint64_t)((y - second.before) * second.src);
		inside = in_window(second, y);
	}
	if (args.run > 2) {
		from += (uint64_t)((z - third.before) * third.src);
		inside = inside && in_window(third, z);
	}
#pragma unroll
	for (uint32_t i = 0; i < 16 / E; i++) {
		if (i < c.skip / E || (int64_t)(i - c.skip / E) >= c.last - c.first)
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

/* The same for a chunk that is all the row's, where no dimension is padded: little to do for an element. */
template <int E> DEVICE uint4 run_take_whole(const strided_args &args, const row_chunk &c, uint64_t src)
{
	const uint32_t n = (uint32_t)args.dim[0].n, m = args.run > 1 ? (uint32_t)args.dim[1].n : ~0u;
	const uint64_t step = (uint64_t)args.dim[0].src;
	const uint64_t turn =
	    args.run > 1 ? (uint64_t)(args.dim[1].src - args.dim[0].n * args.dim[0].src) : 0;
	const uint64_t turn2 =
	    args.run > 2 ? (uint64_t)(args.dim[2].src - args.dim[1].n * args.dim[1].src) : 0;
	uint64_t q = divide((uint64_t)c.first, n), r = args.run > 2 ? divide(q, m) : 0;
	uint32_t x = (uint32_t)((uint64_t)c.first - q * n), y = (uint32_t)(q - r * m);
	uint32_t words[4];

	src += x * step;
	if (args.run > 1)
		src += (uint64_t)(y * args.dim[1].src);
	if (args.run > 2)
		src += (uint64_t)((int64_t)r * args.dim[2].src);
#pragma unroll
	for (uint32_t i = 0; i < 16 / E; i++) {
		chunk_take<E>(words, i, src);
		src += step;
		if (++x == n && i + 1 < 16 / E) {
			x = 0;
			src += turn;
			if (++y == m) {
				y = 0;
				src += turn2;
			}
		}
	}
	return make_uint4(words[0], words[1], words[2], words[3]);
}

template <int E> DEVICE void gather(const strided_args &args)
{
	uint64_t row_bytes = E;

	for (uint32_t d = 0; d < args.run; d++)
		row_bytes *= (uint64_t)args.dim[d].n;
	const uint64_t chunks = row_chunks(row_bytes);

	for (uint64_t number = (uint64_t)blockIdx.x * ROWS_THREADS + threadIdx.x; number < args.slots;
	     number += (uint64_t)gridDim.x * ROWS_THREADS) {
		uint64_t row = divide(number, chunks), left = row, dst = args.dst, src = args.src;
		bool inside = true;

		for (uint32_t d = args.run; d < args.rank; d++) {
			const strided_dim &dim = args.dim[d];
			uint64_t q = divide(left, (uint64_t)dim.n);
			int64_t index = (int64_t)(left - q * (uint64_t)dim.n);

			left = q;
			dst += (uint64_t)(index * dim.dst);
			src += (uint64_t)((index - dim.before) * dim.src);
			inside = inside && in_window(dim, index);
		}
		row_chunk c = chunk_of<E>(dst, row_bytes, number - row * chunks);

		if (c.whole && args.whole)
			global_write((uint4 *)c.address, run_take_whole<E>(args, c, src));
		else if (c.first < c.last)
			chunk_write<E>(c, inside ? run_take<E>(args, c, src) : pattern_of(args));
	}
}

} // namespace

#define STRIDED_GATHER(e)                                                                        \
	KERNEL(ROWS_THREADS, 1) strided_gather_##e(const GRID_CONSTANT struct strided_args args) \
	{                                                                                        \
		gather<e>(args);                                                                 \
	}
BY_ELEMENT(STRIDED_GATHER)
