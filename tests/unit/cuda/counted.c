#include "counted.h"

#include "kernels/cuda/driver.h"

unsigned n_launches;

static __typeof__(driver.cuLaunchKernelEx) launch_kernel;

static CUresult count_launch(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
	n_launches++;
	return launch_kernel(config, function, params, extra);
}

void count_launches(void)
{
	launch_kernel = driver.cuLaunchKernelEx;
	driver.cuLaunchKernelEx = count_launch;
}
