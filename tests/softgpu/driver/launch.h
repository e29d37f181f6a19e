/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel of a module. */
#ifndef TESTS_SOFTGPU_LAUNCH_H
#define TESTS_SOFTGPU_LAUNCH_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct context;
struct model_kernel;

struct function {
	TAILQ_ENTRY(function) entry;
	const struct model_kernel *kernel;
	struct context *context; /* its module's */
	uint32_t shared_bytes;   /* dynamic, that it may be given */
	uint64_t id;             /* no other function of the process ever has it */
};

/* NULL when it is no handle of the current context. */
struct function *function_find(CUfunction handle);

/* Whether the module of the function with that id is still loaded. */
bool function_is_loaded(uint64_t id);

#endif
