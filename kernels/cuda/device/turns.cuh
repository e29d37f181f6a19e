/* SPDX-License-Identifier: Apache-2.0 */
/* A block of threads moves its own tile and every gridDim.x-th tile after it, so a grid may be as small as
 * its launch has to be. Most grids have as many blocks as there are tiles, and each block takes one turn. */
#ifndef KERNELS_CUDA_DEVICE_TURNS_CUH
#define KERNELS_CUDA_DEVICE_TURNS_CUH

#include <stdint.h>

#include "tma.cuh"

struct turn {
	uint32_t number; /* of the tile */
	uint32_t parity; /* of the phase of a barrier that completes one phase a turn */
	bool first;
	bool last;
};

/* Calls move(turn) for each tile of this block. `all` is the number of tiles of the grid, which has no more
 * blocks than that. Between two turns no thread touches shared memory, and what threads wrote there is
 * visible to the unit.
 *
 * A turn's number and parity share a register, since some kernels have none to spare. A kernel must
 * initialize on every path what it reads on any, or the value stays live in registers from one turn to the
 * next.
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
