/* SPDX-License-Identifier: Apache-2.0 */
/* How the grids of a stream overlap: blocks of a grid may start while the grid before it ends (launch.c), so
 * that a launch, and what a kernel does before it touches memory, take no time of their own.
 *
 * Every kernel calls grid_launch_dependents() when it starts, and each of its threads that touches global
 * memory calls grid_wait() first. So a grid also ends after those before it, and to wait for it is to wait
 * for them all.
 */
#ifndef KERNELS_CUDA_DEVICE_GRID_CUH
#define KERNELS_CUDA_DEVICE_GRID_CUH

#include "tma.cuh"

/* Both, in a kernel that has nothing to do in between. */
DEVICE void grid_begin()
{
	grid_launch_dependents();
	grid_wait();
}

#endif
