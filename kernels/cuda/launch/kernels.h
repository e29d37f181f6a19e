/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels and the images that hold them are numbered in the order of kernels.def. */
#ifndef KERNELS_CUDA_LAUNCH_KERNELS_H
#define KERNELS_CUDA_LAUNCH_KERNELS_H

enum kernel_id {
#define KERNEL(name, args) KERNEL_##name,
#include "kernels.def"
	KERNEL_COUNT
};

enum kernel_unit {
#define UNIT(name) UNIT_##name,
#include "kernels.def"
	UNIT_COUNT
};

#endif
