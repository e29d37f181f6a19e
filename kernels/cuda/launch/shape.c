/* Launches, all by one call of the driver's. */
#include "shape.h"

#include "kernels/cuda/device.h"

uint64_t shape_blocks(const struct shape *shape, const struct device *device)
{
	const uint64_t most =
	    shape->a_multiprocessor ? (uint64_t)shape->a_multiprocessor * device->processors : INT32_MAX;

	return shape->blocks < most ? shape->blocks : most;
}

int shape_launch(const struct shape *shape, const struct device *device, CUstream stream, void *args,
                 struct error *err)
{
	CUlaunchConfig config = {
		.gridDimX = (unsigned)shape_blocks(shape, device),
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = shape->threads,
		.blockDimY = 1,
		.blockDimZ = 1,
		.sharedMemBytes = shape->shared,
		.hStream = stream,
	};
	void *params[] = { args };

	return driver_call(err, cuLaunchKernelEx, (&config, device->function[shape->kernel], params, NULL));
}
