/* SPDX-License-Identifier: Apache-2.0 */
/* A ring of tiles in shared memory, each with the barrier that says that it has arrived; and the order in which a
 * block of threads goes through the tiles of a grid.
 *
 * Tile i lies in stage i % STAGES, and its barrier completes there for the (i / STAGES)th time, which gives the
 * parity.
 */
#ifndef KERNELS_CUDA_DEVICE_PIPELINE_CUH
#define KERNELS_CUDA_DEVICE_PIPELINE_CUH

#include "args.h"
#include "kernels/cuda/strategy/tuning.h"
#include "tma.cuh"

static_assert(sizeof(barrier) == BARRIER_BYTES, "RING_BYTES asks for as much");

/* The tiles of this block: blockIdx.x, then every gridDim.x-th. Neighbours run side by side. */
DEVICE uint32_t own_tiles(uint32_t tiles)
{
	return tiles > blockIdx.x ? (tiles - blockIdx.x - 1) / gridDim.x + 1 : 0;
}

/* Number to index, dimension 0 fastest. The grid is 1 past the rank. */
template <int RANK>
DEVICE void tile_index(uint32_t number, const uint32_t (&grid)[RANK], uint32_t (&ret)[RANK])
{
#pragma unroll
	for (int d = 0; d < RANK; d++) {
		uint32_t n = grid[d];

		ret[d] = n > 1 ? number % n : 0;
		number = n > 1 ? number / n : number;
	}
}

template <int STAGES> struct tile_ring {
	unsigned char *tiles;
	uint32_t tile_bytes;
	barrier *full;  /* a stage: its tile has arrived */
	barrier *empty; /* a stage: its tile has been read */

	DEVICE_MEMBER tile_ring(unsigned char *shared, uint32_t bytes)
	    : tiles(shared), tile_bytes(bytes), full((barrier *)(shared + STAGES * bytes)),
	      empty(full + STAGES)
	{
	}

	/* By one thread; all others wait for it. readers: how many threads say that they have read a tile. */
	DEVICE_MEMBER void init(uint32_t readers)
	{
		for (int s = 0; s < STAGES; s++) {
			barrier_init(&full[s], 1);
			barrier_init(&empty[s], readers);
		}
		barrier_init_fence();
	}

	DEVICE_MEMBER unsigned char *tile(uint32_t i)
	{
		return tiles + i % STAGES * tile_bytes;
	}

	DEVICE_MEMBER barrier *arrival(uint32_t i)
	{
		return &full[i % STAGES];
	}

	DEVICE_MEMBER void wait_full(uint32_t i)
	{
		barrier_wait(&full[i % STAGES], i / STAGES & 1);
	}

	DEVICE_MEMBER void release(uint32_t i)
	{
		barrier_arrive(&empty[i % STAGES]);
	}

	/* Until the stage of tile i is free: its tile before this one has been read. */
	DEVICE_MEMBER void wait_empty(uint32_t i)
	{
		if (i >= STAGES)
			barrier_wait(&empty[i % STAGES], (i / STAGES - 1) & 1);
	}
};

#endif
