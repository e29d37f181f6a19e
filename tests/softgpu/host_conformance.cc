/* SPDX-License-Identifier: Apache-2.0 */
/* The conformance run's kernels, compiled for the host. */
#include "tests/gpu/conformance/conformance.cu"

#include "host.hh"

extern "C" const struct model_kernel model_conformance_kernels[] = {
	HOST_KERNEL(conformance_load, conformance_args) HOST_KERNEL(conformance_store, conformance_args)
	    HOST_KERNEL(conformance_cluster, conformance_cluster_args){ nullptr, 0, 0, nullptr },
};
