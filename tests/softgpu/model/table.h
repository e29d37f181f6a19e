/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of kernels compiled for the host. Each table ends with an entry whose name is NULL. */
#ifndef TESTS_SOFTGPU_MODEL_TABLE_H
#define TESTS_SOFTGPU_MODEL_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct model_kernel {
	const char *name;
	size_t args_size;
	uint32_t threads;              /* launch bound: most threads of a block */
	void (*run)(const void *args); /* runs one thread of the kernel */
};

extern const struct model_kernel model_own_kernels[];         /* from kernels/cuda/launch/kernels.def */
extern const struct model_kernel model_seed_kernels[];        /* from tests/seeds/seeds.def */
extern const struct model_kernel model_broken_kernels[];      /* from tests/softgpu/broken.def */
extern const struct model_kernel model_counted_kernels[];     /* from tests/softgpu/counted.cu */
extern const struct model_kernel model_conformance_kernels[]; /* from tests/gpu/conformance/conformance.cu */
extern const struct model_kernel model_compute_kernels[];     /* from tests/gpu/bench/compute.cu */

#endif
