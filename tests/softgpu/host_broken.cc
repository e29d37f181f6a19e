/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels with mistakes, compiled for the host. */
#include "broken.cu"
#include "broken_grid.cu"

#include "host.hh"

extern "C" const struct model_kernel model_broken_kernels[] = {
	// clang-format off
	HOST_KERNEL(broken_pipeline, broken_args)
	HOST_KERNEL(broken_once, broken_args)
	HOST_KERNEL(broken_cluster, broken_args)
	HOST_KERNEL(broken_grid, broken_args)
	{ nullptr, 0, 0, nullptr },
	// clang-format on
};
