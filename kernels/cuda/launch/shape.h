/* A launch: which kernel, and how many threads and bytes of shared memory of it. */
#ifndef KERNELS_CUDA_LAUNCH_SHAPE_H
#define KERNELS_CUDA_LAUNCH_SHAPE_H

#include <stdint.h>

#include "kernels/cuda/driver.h"
#include "kernels.h"

struct device;

struct shape {
	uint32_t kernel; /* enum kernel_id */
	uint64_t blocks; /* at most as many; persistent kernels take what the device can run at once */
	uint32_t threads;
	uint32_t shared;
	uint32_t a_multiprocessor; /* blocks; 0: as many as there are */
};

/* Which of a family's kernels: 1, 2, 4, 8, 16. */
static inline uint32_t by_element(enum kernel_id first, uint32_t element)
{
	return (uint32_t)first + (uint32_t)__builtin_ctz(element);
}

/* How many blocks are launched. */
uint64_t shape_blocks(const struct shape *shape, const struct device *device);

/* args: what the kernel takes; copied. */
int shape_launch(const struct shape *shape, const struct device *device, CUstream stream, void *args,
                 struct error *err);

#endif
