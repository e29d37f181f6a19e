/* SPDX-License-Identifier: Apache-2.0 */
/* Converts by scales that it computes, scaling block by scaling block and element by element, for all types
 * and strides. Each element is read twice. A team, which is a warp or a thread block, works on each scaling
 * block. If there are two passes, scaling blocks are done in parts. */
#include "amax.cuh"

namespace
{

/* A part of a scaling block. */
struct amax_box {
	/* Place of the scaling block's first element, even if the tensor does not have that element. */
	convert_place place;
	amax_place block;
	/* First index of the scaling block; negative if the block begins before the first element. */
	int64_t start[ARGS_MAX_RANK];
	uint64_t from; /* elements [from, end) of the scaling block */
	uint64_t end;
	bool there;
};

DEVICE void find_box(const amax_args &args, uint64_t item, amax_box &box)
{
	list_place source;

	box.there = item < args.move.slots;
	box.from = box.end = 0;
	box.block = { args.scale, args.inverse, 0 };
	if (!box.there)
		return;
	uint64_t number = divide_by(item, &args.by_parts);

	box.from = (item - number * args.by_parts.n) * AMAX_PART;
	box.end = args.by_parts.n > 1 ? min(box.from + AMAX_PART, args.elements) : args.elements;
	box.place = find_place(args.move, item, false, source);
#pragma unroll 1
	for (uint32_t d = 0; d < args.move.rank; d++) {
		const amax_dim &dim = args.dim[d];
		const uint64_t rest = d + 1 < args.move.rank ? divide_by(number, &args.move.by[d]) : 0;
		const int64_t block = (int64_t)(number - rest * args.move.by[d].n);

		box.start[d] = block * (int64_t)dim.by_block.n - dim.skew;
		box.place.step(args.move.dim[d], box.start[d]);
		box.block.step(args, d, block);
		number = rest;
	}
}

/* Calls visit(place) for this thread's elements of a box. */
template <typename VISIT>
DEVICE void visit_elements(const amax_args &args, const amax_box &box, const VISIT &visit)
{
	if (!box.there)
		return;
#pragma unroll 1
	for (uint64_t i = box.from + threadIdx.x % args.move.team; i < box.end; i += args.move.team) {
		convert_place place = box.place;
		uint64_t number = i;
		bool is_inside = true;

#pragma unroll 1
		for (uint32_t d = 0; d < args.move.rank; d++) {
			const amax_dim &dim = args.dim[d];
			const uint64_t rest = d + 1 < args.move.rank ? divide_by(number, &dim.by_block) : 0;
			const int64_t k = (int64_t)(number - rest * dim.by_block.n), at = box.start[d] + k;

			is_inside = is_inside && at >= 0 && at < args.move.dim[d].n;
			place.step(args.move.dim[d], k);
			number = rest;
		}
		if (is_inside)
			visit(place);
	}
}

DEVICE uint32_t element_bits(const convert_args &move, const convert_place &place)
{
	return (uint32_t)read_bits(place.src, move.from_bytes, move.from_unit);
}

/* Finds the largest magnitude of each team's box, and stores it in `own`, the team's word in shared
 * memory. */
DEVICE void reduce_box(const amax_args &args, const amax_box &box, unsigned char *own)
{
	uint32_t largest = 0;

	if (threadIdx.x % args.move.team == 0)
		tile_write<uint32_t>(own, 0);
	__syncthreads();
	visit_elements(args, box, [&](const convert_place &place) {
		largest = max(largest, magnitude_of(element_bits(args.move, place), args.move.from_bytes));
	});
	tile_max(own, largest);
	__syncthreads();
}

DEVICE void convert_box(const amax_args &args, const amax_box &box, float inverse, uint32_t &changed)
{
	const convert_args &move = args.move;

	visit_elements(args, box, [&](const convert_place &place) {
		const float lane =
		    scaled(lane_load(float(), element_bits(move, place), move.from, move.lossy), inverse);
		const uint64_t out = lane_store(lane, move.to, move.clamps);

		changed += move.changed && is_changed(move, 0, lane, out);
		write_bits(place.dst, out, move.to_bytes, move.to_unit);
	});
}

} // namespace

KERNEL(ROWS_THREADS, 2) amax_boxes(const GRID_CONSTANT struct amax_args args)
{
	DYNAMIC_SHARED(shared);
	const uint32_t teams = ROWS_THREADS / args.move.team, team = threadIdx.x / args.move.team;
	unsigned char *own = shared + 4 * team;
	uint32_t changed = 0;

	grid_wait();
#pragma unroll 1
	for (uint64_t first = blockIdx.x * (uint64_t)teams; first < args.move.slots;
	     first += (uint64_t)gridDim.x * teams) {
		amax_box box;
		uint32_t magnitude = 0;

		find_box(args, first + team, box);
		if (args.pass != AMAX_PASS_CONVERT) {
			reduce_box(args, box, own);
			magnitude = widened(args.move, tile_read<uint32_t>(own));
			__syncthreads();
		}
		if (!box.there)
			continue;
		if (args.pass == AMAX_PASS_REDUCE) {
			if (threadIdx.x % args.move.team == 0)
				global_max(magnitude_at(args, box.block), magnitude);
			continue;
		}
		if (args.pass == AMAX_PASS_CONVERT)
			magnitude = global_read(magnitude_at(args, box.block));
		const float inverse = take_scale(args, box.block, magnitude,
		                                 threadIdx.x % args.move.team == 0 && box.from == 0);

		convert_box(args, box, inverse, changed);
	}
	add_changed(args.move, changed);
}
