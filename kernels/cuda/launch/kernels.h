/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels, numbered in the order of kernels.def. */
#ifndef KERNELS_CUDA_LAUNCH_KERNELS_H
#define KERNELS_CUDA_LAUNCH_KERNELS_H

enum kernel_id {
#define KERNEL(name, args) KERNEL_##name,
#include "kernels.def"
	KERNEL_COUNT
};

#endif
