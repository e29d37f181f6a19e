/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of loaded modules, as kernel launches use them. */
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
	struct context *context; /* the module's context */
	uint32_t shared_bytes;   /* most dynamic shared memory that a launch may ask for, in bytes */
	uint64_t id;             /* unique among the functions of the process */
};

/* Returns NULL if the handle is no function of the current context. */
struct function *function_find(CUfunction handle);

/* Returns whether the module of the function with this id is still loaded. */
bool function_is_loaded(uint64_t id);

#endif
