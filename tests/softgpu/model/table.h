/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels that were compiled for the host. A table ends with a NULL name. */
#ifndef TESTS_SOFTGPU_MODEL_TABLE_H
#define TESTS_SOFTGPU_MODEL_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct model_kernel {
	const char *name;
	size_t args_size;
	uint32_t threads;              /* of a block, at most: its launch bound */
	void (*run)(const void *args); /* one thread of it */
};

extern const struct model_kernel model_own_kernels[];         /* kernels/cuda/launch/kernels.def */
extern const struct model_kernel model_seed_kernels[];        /* tests/seeds/seeds.def */
extern const struct model_kernel model_broken_kernels[];      /* tests/softgpu/broken.def */
extern const struct model_kernel model_counted_kernels[];     /* tests/softgpu/counted.cu */
extern const struct model_kernel model_conformance_kernels[]; /* tests/gpu/conformance/conformance.cu */
extern const struct model_kernel model_compute_kernels[];     /* tests/gpu/bench/compute.cu */

#endif
