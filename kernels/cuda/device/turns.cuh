/* SPDX-License-Identifier: Apache-2.0 */
/* A thread block moves the tile with its own number and every gridDim.x-th after it, so a launch may have
 * fewer thread blocks than tiles. Most grids have as many thread blocks as tiles, and each block takes one
 * turn. */
#ifndef KERNELS_CUDA_DEVICE_TURNS_CUH
#define KERNELS_CUDA_DEVICE_TURNS_CUH

#include <stdint.h>

#include "tma.cuh"

struct turn {
	uint32_t number; /* number of the tile */
	/* Parity of the phase of a barrier that completes one phase in each turn. */
	uint32_t parity;
	bool first;
	bool last;
};

/* Calls move(turn) for each tile of this thread block. `all` is the number of tiles of the grid; the grid
 * must not have more thread blocks than that. Between two turns no thread touches shared memory, and what
 * threads wrote there is visible to the TMA.
 *
 * A turn's number and parity share a register, because some kernels have none to spare. For the same reason,
 * a kernel must initialize on every path what it reads on any path; otherwise the value would occupy
 * registers from one turn to the next.
 */
template <typename MOVE> DEVICE void take_turns(uint32_t all, const MOVE &move)
{
	uint32_t at = blockIdx.x * 2; /* twice the turn's number, plus its parity */

#pragma unroll 1
	while (true) {
		const uint32_t number = at >> 1;
		const bool last = all - number <= gridDim.x;

		move(turn{ number, at & 1, number == blockIdx.x, last });
		if (last)
			return;
		at = (at + gridDim.x * 2) ^ 1;
		fence_proxy_async();
		__syncthreads();
	}
}

#endif
