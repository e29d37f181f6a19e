/* SPDX-License-Identifier: Apache-2.0 */
/* Which tiles a block of threads moves: one, with a grid of as many blocks as there are tiles; or, of a
 * bounded kernel, its own and every gridDim.x-th that follows. The former compiles to nothing.
 */
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

/* Calls move(turn) for each tile of this block, of `all` in the grid. Between two turns no thread touches
 * shared memory, and what threads wrote there is visible to the unit. */
template <bool BOUNDED, typename MOVE> DEVICE void take_turns(uint32_t all, const MOVE &move)
{
	if constexpr (BOUNDED) {
		uint32_t number = blockIdx.x, parity = 0;

#pragma unroll 1
		while (number < all) {
			const bool last = all - number <= gridDim.x;

			move(turn{ number, parity, number == blockIdx.x, last });
			number = last ? all : number + gridDim.x;
			parity ^= 1;
			fence_proxy_async();
			__syncthreads();
		}
	} else {
		move(turn{ blockIdx.x, 0, true, true });
	}
}

#endif
