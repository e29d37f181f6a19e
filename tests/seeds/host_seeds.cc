/* SPDX-License-Identifier: Apache-2.0 */
/* The seeds' kernels for the host. */
#include "seeds.cu"

#include "tests/softgpu/host.hh"

extern "C" const struct model_kernel model_seed_kernels[] = {
#define KERNEL(name, args) HOST_KERNEL(name, args)
#include "seeds.def"
	{ nullptr, 0, 0, nullptr },
};
