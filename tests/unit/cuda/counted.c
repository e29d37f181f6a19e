/* SPDX-License-Identifier: Apache-2.0 */
#include "counted.h"

#include <stdbool.h>

#include "kernels/cuda/driver/driver.h"

unsigned n_launches;
unsigned n_late_launches;
unsigned n_sends;

static __typeof__(driver.cuLaunchKernelEx) launch_kernel;
static __typeof__(driver.cuMemcpyHtoDAsync) send_bytes;

static bool may_start_early(const CUlaunchConfig *config)
{
	for (unsigned i = 0; i < config->numAttrs; i++)
		if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
			return config->attrs[i].value.programmaticStreamSerializationAllowed;
	return false;
}

static CUresult count_launch(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
	n_launches++;
	n_late_launches += !may_start_early(config);
	return launch_kernel(config, function, params, extra);
}

static CUresult count_send(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
	n_sends++;
	return send_bytes(to, from, bytes, stream);
}

void count_launches(void)
{
	send_bytes = driver.cuMemcpyHtoDAsync;
	driver.cuMemcpyHtoDAsync = count_send;
	launch_kernel = driver.cuLaunchKernelEx;
	driver.cuLaunchKernelEx = count_launch;
}
