/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels whose instructions are counted, compiled for the host. */
#include "counted.cu"

#include "host.hh"

extern "C" const struct model_kernel model_counted_kernels[] = {
	HOST_KERNEL(counted, counted_args)
	    HOST_KERNEL(counted_cluster, counted_args){ nullptr, 0, 0, nullptr },
};
