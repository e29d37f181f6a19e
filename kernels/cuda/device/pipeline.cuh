/* SPDX-License-Identifier: Apache-2.0 */
/* A ring of tiles in shared memory, with a barrier for each tile that completes when the tile has arrived,
 * and the order in which a thread block goes through the tiles of a grid.
 *
 * Tile i lies in stage i % STAGES, whose barrier completes for the (i / STAGES)th time when the tile arrives;
 * that gives the parity.
 */
#ifndef KERNELS_CUDA_DEVICE_PIPELINE_CUH
#define KERNELS_CUDA_DEVICE_PIPELINE_CUH

#include "args.h"
#include "kernels/cuda/strategy/tuning.h"
#include "tma.cuh"

static_assert(sizeof(barrier) == BARRIER_BYTES, "RING_BYTES asks for as much");

/* Returns the number of tiles of this thread block: number blockIdx.x and every gridDim.x-th after it.
 * Neighbouring tiles are moved at the same time. */
DEVICE uint32_t own_tiles(uint32_t tiles)
{
	return tiles > blockIdx.x ? (tiles - blockIdx.x - 1) / gridDim.x + 1 : 0;
}

/* Splits the number of a tile into its indices; dimension 0 varies fastest. `grid` must be 1 beyond the
 * rank. */
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
	barrier *full;  /* the barrier of each stage completes when the stage's tile has arrived */
	barrier *empty; /* the barrier of each stage completes when the stage's tile has been read */

	DEVICE_MEMBER tile_ring(unsigned char *shared, uint32_t bytes)
	    : tiles(shared), tile_bytes(bytes), full((barrier *)(shared + STAGES * bytes)),
	      empty(full + STAGES)
	{
	}

	/* Initializes the barriers. One thread calls it, and all others wait for that thread. `readers` is
	 * the number of threads that call release for each tile. */
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

	/* Waits until the stage of tile i is free, because all readers have released the tile before it. */
	DEVICE_MEMBER void wait_empty(uint32_t i)
	{
		if (i >= STAGES)
			barrier_wait(&empty[i % STAGES], (i / STAGES - 1) & 1);
	}
};

#endif
