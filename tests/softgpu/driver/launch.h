/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel of a module. */
#ifndef TESTS_SOFTGPU_LAUNCH_H
#define TESTS_SOFTGPU_LAUNCH_H

#include <cuda.h>
#include <stdint.h>
#include <sys/queue.h>

struct context;
struct model_kernel;

struct function {
	TAILQ_ENTRY(function) entry;
	const struct model_kernel *kernel;
	struct context *context; /* its module's */
	uint32_t shared_bytes;   /* dynamic, that it may be given */
};

/* NULL when it is no handle of the current context. */
struct function *function_find(CUfunction handle);

#endif
