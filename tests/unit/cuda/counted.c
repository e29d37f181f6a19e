/* SPDX-License-Identifier: Apache-2.0 */
#include "counted.h"

#include "kernels/cuda/driver.h"

unsigned n_launches;
unsigned n_sends;

static __typeof__(driver.cuLaunchKernelEx) launch_kernel;
static __typeof__(driver.cuMemcpyHtoDAsync) send_bytes;

static CUresult count_launch(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
	n_launches++;
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
