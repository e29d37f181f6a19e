/* SPDX-License-Identifier: Apache-2.0 */
/* The loop of kernels that copy tiles by the TMA. One thread of each thread block keeps COPY_AHEAD loads in
 * flight and stores the tiles that have arrived.
 *
 * A thread block has COPY_STAGES tiles. While tile i is stored, tiles i + 1 to i + COPY_AHEAD arrive, and the
 * stores of the COPY_STAGES - COPY_AHEAD - 1 tiles before i may still be reading.
 */
#ifndef KERNELS_CUDA_DEVICE_TILE_COPY_CUH
#define KERNELS_CUDA_DEVICE_TILE_COPY_CUH

#include "kernels/cuda/strategy/tuning.h"
#include "pipeline.cuh"

namespace
{

/* Loads and stores the tiles of this thread block. The stage of tile i + COPY_AHEAD is free once the tile
 * that had it before, i + COPY_AHEAD - COPY_STAGES, has been read by its store. */
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

	/* Stores the tile once, or once for each index of the broadcast dimensions. The tile is loaded only
	 * once. */
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

#endif
