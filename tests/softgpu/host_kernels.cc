/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's kernels, from their own sources. */
#include "kernels/cuda/device/kernels.cu"

#include "host.hh"

extern "C" const struct model_kernel model_own_kernels[] = {
#define KERNEL(name, args) HOST_KERNEL(name, args)
#include "kernels/cuda/launch/kernels.def"
	{ nullptr, 0, 0, nullptr },
};
