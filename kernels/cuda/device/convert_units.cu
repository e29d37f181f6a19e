/* SPDX-License-Identifier: Apache-2.0 */
/* Converts rows that are contiguous and aligned on both sides, with a scale and a bias that are the same for
 * all of them. A unit is 16 bytes on the side with the longer elements. A thread reads several units before
 * it writes. */
#include "convert_chunk.cuh"

namespace
{

/* A unit of n elements, which begins at these addresses. n is 0 if there is no unit. */
struct convert_unit {
	uint64_t dst;
	uint64_t src;
	uint32_t n;
	uint64_t left; /* number of elements from the unit's first to the end of its row */
};

template <int S, int D> DEVICE convert_unit find_unit(const convert_args &args, uint64_t number, bool counts)
{
	constexpr uint32_t n = CONVERT_UNIT(S, D);

	if (number >= args.slots)
		return { 0, 0, 0, 0 };
	list_place block;
	convert_place place = find_place(args, number, counts, block);
	const uint64_t outer = divide_by(number, &args.by_chunks),
		       first = (number - outer * args.by_chunks.n) * n;

	visit_convert(args, 1, args.rank, outer, [&](const convert_dim &dim, int64_t i) {
		place.dst += (uint64_t)(i * dim.dst);
		place.src += (uint64_t)(i * dim.src);
	});
	const uint64_t left = place.there ? (uint64_t)args.dim[0].n - first : 0;

	return { place.dst + first * D, place.src + first * S, (uint32_t)min((uint64_t)n, left), left };
}

/* Finds unit k of a thread, given its first unit. It is in the same row unless that row ends before it. */
template <int S, int D>
DEVICE convert_unit find_next(const convert_args &args, const convert_unit &first, uint64_t number,
                              uint32_t k)
{
	constexpr uint32_t n = CONVERT_UNIT(S, D), step = n * ROWS_THREADS;

	if (first.left < (uint64_t)(k * step + n))
		return find_unit<S, D>(args, number + k * ROWS_THREADS, true);
	return { first.dst + k * step * D, first.src + k * step * S, n, 0 };
}

/* Returns the operands, which all elements share. */
DEVICE chunk_operands operands_of(const convert_args &args)
{
	return { args.scale.address, args.bias.address, 0, 0 };
}

template <int S, int D> DEVICE void convert_all_units(const convert_args &args)
{
	constexpr uint32_t n = CONVERT_UNIT(S, D), batch = CONVERT_UNITS(S, D), own = batch * ROWS_THREADS;
	constexpr uint32_t words = n * S / 4, out_words = n * D / 4;

#pragma unroll 1
	for (uint64_t first = blockIdx.x * (uint64_t)own + threadIdx.x; first < args.slots;
	     first += (uint64_t)gridDim.x * own) {
		const convert_unit start = find_unit<S, D>(args, first, true);
		uint64_t dst[batch];
		/* Bit k of `whole` says that unit k is complete; bit k of `rest` leaves unit k to
		 * convert_exactly. */
		uint32_t raw[batch * words], whole = 0, rest = 0;
		float lane[batch * n];

#pragma unroll
		for (uint32_t k = 0; k < batch; k++) {
			const convert_unit unit = k ? find_next<S, D>(args, start, first, k) : start;

			dst[k] = unit.dst;
			if (unit.n == n) {
				read_aligned_words<words>(unit.src, raw + k * words);
				whole |= 1u << k;
			} else {
#pragma unroll
				for (uint32_t w = 0; w < words; w++)
					raw[k * words + w] = 0;
				rest |= (uint32_t)(unit.n > 0) << k;
			}
		}
		with_words<S>(args.from, [&](const auto &load) {
#pragma unroll
			for (uint32_t w = 0; w < batch * words; w++)
				load(raw[w], lane + w * (4 / S));
		});
		calculate_row<batch * n>(args, lane, args.scale.address, args.bias.address);
#pragma unroll
		for (uint32_t k = 0; k < batch; k++) {
			if (!are_easy<n>(args, lane + k * n) && whole >> k & 1) {
				rest |= 1u << k;
				whole &= ~(1u << k);
			}
		}
		with_numbers<D>(args.to, args.clamps, [&](const auto &store) {
#pragma unroll
			for (uint32_t k = 0; k < batch; k++) {
				uint32_t out[out_words];

#pragma unroll
				for (uint32_t w = 0; w < out_words; w++)
					out[w] = store(lane + k * n + w * (4 / D));
				if (whole >> k & 1)
					write_aligned_words<out_words>(dst[k], out);
			}
		});
#pragma unroll 1
		for (uint32_t k = 0; rest >> k; k++) {
			if (!(rest >> k & 1))
				continue;
			const convert_unit unit = find_unit<S, D>(args, first + k * ROWS_THREADS, false);

			convert_exactly<D>(args, unit.dst, (int)unit.n, operands_of(args),
			                   global_elements<S>{ unit.src, S, S });
		}
	}
}

} // namespace

#define BY_UNITS(s, d)                                                        \
	KERNEL(ROWS_THREADS, 4)                                               \
	convert_units_##s##_##d(const GRID_CONSTANT struct convert_args args) \
	{                                                                     \
		grid_wait();                                                  \
		convert_all_units<s, d>(args);                                \
	}
BY_UNITS(1, 1)
BY_UNITS(1, 2)
BY_UNITS(1, 4)
BY_UNITS(2, 1)
BY_UNITS(2, 2)
BY_UNITS(2, 4)
BY_UNITS(4, 1)
BY_UNITS(4, 2)
BY_UNITS(4, 4)
