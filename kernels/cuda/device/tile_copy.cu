/* SPDX-License-Identifier: Apache-2.0 */
/* Copies tensors that are contiguous along the same innermost dimension on both sides. The TMA moves the
 * tiles in and out, and no thread touches a byte. A load returns zeros for what lies outside the source,
 * which makes zero pads. A crop only shifts the coordinates of the loads. */
#include "tile_copy.cuh"

KERNEL(WARP_THREADS, 1) tile_copy(const GRID_CONSTANT struct tile_copy_args args)
{
	DYNAMIC_SHARED(shared);
	tile_ring<COPY_STAGES> ring(shared, args.tile_bytes);
	copy_walk walk = { args, ring };
	uint32_t tiles = own_tiles(args.tiles);

	if (threadIdx.x != 0)
		return;
	tensor_map_prefetch(&args.load);
	tensor_map_prefetch(&args.store);
	ring.init(1);
	grid_wait();
	copy_tiles(ring, walk, tiles);
}

/* ---- Runs: no map, any rank -------------------------------------------------------------------------- */

namespace
{

struct run_walk {
	const bulk_copy_args &args;
	tile_ring<COPY_STAGES> &ring;

	struct piece {
		uint64_t dst;
		uint64_t src;
		uint32_t bytes;
	};

	DEVICE_MEMBER piece get(uint32_t i)
	{
		uint64_t number = blockIdx.x + (uint64_t)i * gridDim.x, row = number / args.chunks;
		uint64_t start = (number - row * args.chunks) * args.chunk;
		piece p = { args.dst + start, args.src + start,
			    (uint32_t)(args.run - start < args.chunk ? args.run - start : args.chunk) };

#pragma unroll 1
		for (uint32_t d = 0; d < args.rank; d++) {
			uint64_t index = row % args.n[d];

			row /= args.n[d];
			p.dst += (uint64_t)((int64_t)index * args.dst_stride[d]);
			p.src += (uint64_t)((int64_t)index * args.src_stride[d]);
		}
		return p;
	}

	DEVICE_MEMBER void load(uint32_t i)
	{
		piece p = get(i);

		barrier_arrive_expect(ring.arrival(i), p.bytes);
		load_bulk(ring.tile(i), (const void *)p.src, p.bytes, ring.arrival(i));
	}

	DEVICE_MEMBER void store(uint32_t i)
	{
		piece p = get(i);

		store_bulk((void *)p.dst, ring.tile(i), p.bytes);
		store_commit();
	}
};

} // namespace

KERNEL(WARP_THREADS, 1) bulk_copy(const GRID_CONSTANT struct bulk_copy_args args)
{
	DYNAMIC_SHARED(shared);
	tile_ring<COPY_STAGES> ring(shared, args.chunk);
	run_walk walk = { args, ring };
	uint32_t tiles = own_tiles((uint32_t)args.tiles);

	if (threadIdx.x != 0)
		return;
	ring.init(1);
	grid_wait();
	copy_tiles(ring, walk, tiles);
}
