/* SPDX-License-Identifier: Apache-2.0 */
/* Copies whose inner dimension is contiguous on both sides: the unit moves tiles in and out, and no thread
 * touches a byte. One thread a block keeps AHEAD loads in flight and stores what has arrived; zero pads are
 * what a load brings from outside of the source, crops are shifted coordinates.
 *
 * A block has STAGES tiles. While tile i is stored, tiles i + 1 to i + AHEAD arrive, and the STAGES - AHEAD
 * before it may still be read by their stores.
 */
#include "pipeline.cuh"
#include "kernels/plan/tuning.h"

namespace
{

/* In and out: the stage of tile i + COPY_AHEAD is free once the store before the last has read its own. */
template <typename WALK> DEVICE void copy_tiles(tile_ring<COPY_STAGES> &ring, WALK &walk, uint32_t tiles)
{
	for (uint32_t i = 0; i < COPY_AHEAD && i < tiles; i++)
		walk.load(i);
	for (uint32_t i = 0; i < tiles; i++) {
		store_wait_read<COPY_STAGES - COPY_AHEAD - 1>();
		if (i + COPY_AHEAD < tiles)
			walk.load(i + COPY_AHEAD);
		ring.wait_full(i);
		walk.store(i);
	}
	store_wait_read<0>();
}

struct copy_walk {
	const tile_copy_args &args;
	tile_ring<COPY_STAGES> &ring;

	DEVICE_MEMBER void load(uint32_t i)
	{
		uint32_t index[ARGS_MAP_RANK];
		int32_t at[ARGS_MAP_RANK];

		tile_index(blockIdx.x + i * gridDim.x, args.grid, index);
#pragma unroll
		for (int d = 0; d < ARGS_MAP_RANK; d++)
			at[d] = (int32_t)index[d] * args.load_step[d] + args.load_shift[d];
		barrier_arrive_expect(ring.arrival(i), args.load_bytes);
		load_tile(ring.tile(i), &args.load, args.rank, at, ring.arrival(i));
	}

	/* Once, or for each index of the broadcast dimensions: what was read once is written often. */
	DEVICE_MEMBER void store(uint32_t i)
	{
		uint32_t index[ARGS_MAP_RANK], again[ARGS_MAP_RANK];
		int32_t at[ARGS_MAP_RANK];

		tile_index(blockIdx.x + i * gridDim.x, args.grid, index);
		for (uint32_t r = 0; r < args.repeats; r++) {
			tile_index(r, args.repeat, again);
#pragma unroll
			for (int d = 0; d < ARGS_MAP_RANK; d++)
				at[d] = (int32_t)index[d] * args.store_step[d] + args.store_shift[d] +
				        (int32_t)again[d];
			store_tile(&args.store, args.rank, at, ring.tile(i));
		}
		store_commit();
	}
};

} // namespace

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
