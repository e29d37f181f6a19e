/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel of the process that computes beside a service, compiled for the host. */
#include "tests/gpu/bench/compute.cu"

#include "host.hh"

extern "C" const struct model_kernel model_compute_kernels[] = {
	HOST_KERNEL(compute, compute_args){ nullptr, 0, 0, nullptr },
};
