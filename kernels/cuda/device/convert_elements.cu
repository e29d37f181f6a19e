/* SPDX-License-Identifier: Apache-2.0 */
/* Converts elements one by one, whatever their types, strides and pads. Neighbouring lanes of a warp write
 * neighbouring elements of the destination. */
#include "convert.cuh"

namespace
{

struct converted_element {
	convert_place place;
	uint64_t bits;
	bool is_read;
};

/* Finds an element and reads it. `counts` is as in find_item. */
DEVICE converted_element find_element(const convert_args &args, uint64_t number, bool counts)
{
	list_place block;
	converted_element e = { find_place(args, number, counts, block), 0, true };

	if (!e.place.there)
		return e;
	visit_convert(args, 0, args.rank, number, [&](const convert_dim &dim, int64_t i) {
		const strided_dim window = { dim.n, dim.dst, dim.src, dim.before, dim.source };
		const int64_t at = i - dim.before;

		e.place.dst += (uint64_t)(i * dim.dst);
		if (at >= 0 && at < dim.source) {
			e.place.step_source(dim, at);
			return;
		}
		e.is_read = e.is_read && args.mode != PAD_RULE_CONSTANT;
		e.place.step_source(dim, source_index(window, args.mode, i));
	});
	if (e.is_read)
		e.bits = read_bits(e.place.src, args.from_bytes, args.from_unit);
	return e;
}

template <typename LANE_> DEVICE void convert_elements_as(const convert_args &args)
{
	operand_lanes<LANE_> scale(args.scale), bias(args.bias);
	uint32_t changed = 0;

#pragma unroll 1
	for (uint64_t first = blockIdx.x * (uint64_t)CONVERT_ELEMENTS; first < args.slots;
	     first += (uint64_t)gridDim.x * CONVERT_ELEMENTS) {
		converted_element e[CONVERT_BATCH];

#pragma unroll
		for (uint32_t k = 0; k < CONVERT_BATCH; k++) {
			const uint64_t number = first + k * ROWS_THREADS + threadIdx.x;

			e[k] = find_element(args, min(number, args.slots - 1), number < args.slots);
		}
#pragma unroll
		for (uint32_t k = 0; k < CONVERT_BATCH; k++) {
			const convert_place &place = e[k].place;
			uint64_t out = args.value;

			if (!place.there || first + k * ROWS_THREADS + threadIdx.x >= args.slots)
				continue;
			if (e[k].is_read) {
				const LANE_ lane =
				    calculated(args, lane_load(LANE_(), e[k].bits, args.from, args.lossy),
				               scale, bias, place.scale, place.bias);

				out = lane_store(lane, args.to, args.clamps);
				changed += args.changed && is_changed(args, e[k].bits, lane, out);
			}
			write_bits(place.dst, out, args.to_bytes, args.to_unit);
		}
	}
	add_changed(args, changed);
}

} // namespace

KERNEL(ROWS_THREADS, 2) convert_elements(const GRID_CONSTANT struct convert_args args)
{
	grid_wait();
	switch (args.lane) {
	case LANE_TYPE_FLOAT32:
		return convert_elements_as<float>(args);
	case LANE_TYPE_FLOAT64:
		return convert_elements_as<double>(args);
	default:
		return convert_elements_as<int64_t>(args);
	}
}
