/* SPDX-License-Identifier: Apache-2.0 */
/* Modules and their functions. Each belongs to one context and cannot be used in another. The image has to be
 * a fatbin; its kernels are looked up by name in the model's tables. */
#include <stdlib.h>
#include <string.h>

#include "call.h"
#include "launch.h"
#include "tests/softgpu/model.h"
#include "softgpu.h"

#define FATBIN_MAGIC   0xba55ed50u
#define DEFAULT_SHARED (48u << 10) /* dynamic shared memory of a function unless the attribute raises it */
#define MOST_THREADS   2048        /* threads that can reside on a multiprocessor */
#define MOST_BLOCKS    32
#define BLOCK_RESERVED 1024u /* bytes of shared memory that the system reserves for each block */

struct module {
	TAILQ_ENTRY(module) entry;
	struct context *context;
	TAILQ_HEAD(, function) functions;
};

static uint64_t last_id; /* id of the function made last */
static TAILQ_HEAD(, module) modules = TAILQ_HEAD_INITIALIZER(modules);

static struct module *find(CUmodule handle)
{
	struct module *module;
	TAILQ_FOREACH(module, &modules, entry)
		if ((CUmodule)module == handle)
			return module;
	return NULL;
}

struct function *function_find(CUfunction handle)
{
	struct module *module;
	struct function *function;
	TAILQ_FOREACH(module, &modules, entry)
		TAILQ_FOREACH(function, &module->functions, entry)
			if ((CUfunction)function == handle && function->context == context_current())
				return function;
	return NULL;
}

bool function_is_loaded(uint64_t id)
{
	const struct module *module;
	const struct function *function;
	TAILQ_FOREACH(module, &modules, entry)
		TAILQ_FOREACH(function, &module->functions, entry)
			if (function->id == id)
				return true;
	return false;
}

size_t module_live(void)
{
	const struct module *module;
	size_t n = 0;
	TAILQ_FOREACH(module, &modules, entry)
		n++;
	return n;
}

static CUresult load(CUmodule *ret, const void *image)
{
	uint32_t word;
	if (!ret || !image)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&word, image, sizeof word);
	if (word != FATBIN_MAGIC)
		return CUDA_ERROR_INVALID_IMAGE;
	struct module *module = malloc(sizeof *module);
	if (!module)
		return CUDA_ERROR_OUT_OF_MEMORY;
	module->context = context_current();
	TAILQ_INIT(&module->functions);
	TAILQ_INSERT_HEAD(&modules, module, entry);
	*ret = (CUmodule)module;
	return CUDA_SUCCESS;
}

static void module_free(struct module *module)
{
	struct function *function;
	while ((function = TAILQ_FIRST(&module->functions))) {
		TAILQ_REMOVE(&module->functions, function, entry);
		free(function);
	}
	TAILQ_REMOVE(&modules, module, entry);
	free(module);
}

void modules_destroy(const struct context *context)
{
	struct module *module, *next;
	for (module = TAILQ_FIRST(&modules); module; module = next) {
		next = TAILQ_NEXT(module, entry);
		if (module->context == context)
			module_free(module);
	}
}

static CUresult unload(CUmodule handle)
{
	struct module *module = find(handle);
	if (!module)
		return CUDA_ERROR_INVALID_VALUE;
	if (module->context != context_current())
		return CUDA_ERROR_INVALID_CONTEXT;
	int device = module->context->ordinal;
	CUresult result = queue_drain(device_bit(device), device);
	if (result != CUDA_SUCCESS)
		return result;
	module_free(module);
	return CUDA_SUCCESS;
}

static CUresult get_function(CUfunction *ret, CUmodule handle, const char *name)
{
	struct module *module = find(handle);
	struct function *function;
	if (!ret || !module || !name)
		return CUDA_ERROR_INVALID_VALUE;
	if (module->context != context_current())
		return CUDA_ERROR_INVALID_CONTEXT;
	const struct model_kernel *kernel = model_find(name);
	if (!kernel)
		return CUDA_ERROR_NOT_FOUND;
	function = malloc(sizeof *function);
	if (!function)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*function = (struct function){
		.kernel = kernel, .context = module->context, .shared_bytes = DEFAULT_SHARED, .id = ++last_id
	};
	TAILQ_INSERT_HEAD(&module->functions, function, entry);
	*ret = (CUfunction)function;
	return CUDA_SUCCESS;
}

static CUresult set_attribute(CUfunction handle, CUfunction_attribute attribute, int value)
{
	struct function *function = function_find(handle);
	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
	    value > (int)SHARED_BYTES)
		return CUDA_ERROR_INVALID_VALUE;
	function->shared_bytes = (uint32_t)value;
	return CUDA_SUCCESS;
}

static CUresult get_occupancy(int *ret, CUfunction handle, int threads, size_t shared)
{
	const struct function *function = function_find(handle);
	if (!ret || threads <= 0 || threads > 1024)
		return CUDA_ERROR_INVALID_VALUE;
	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	*ret = 0;
	if (shared > function->shared_bytes)
		return CUDA_SUCCESS;
	int by_threads = MOST_THREADS / threads;
	int by_shared = (int)((SHARED_BYTES + BLOCK_RESERVED) / (shared + BLOCK_RESERVED));
	int blocks = by_threads < by_shared ? by_threads : by_shared;
	*ret = blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleLoadData(CUmodule *ret, const void *image)
{
	return leave(enter(ENTRY_cuModuleLoadData) ?: load(ret, image));
}

CUresult CUDAAPI cuModuleUnload(CUmodule module)
{
	return leave(enter(ENTRY_cuModuleUnload) ?: unload(module));
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction *ret, CUmodule module, const char *name)
{
	return leave(enter(ENTRY_cuModuleGetFunction) ?: get_function(ret, module, name));
}

CUresult CUDAAPI cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
	return leave(enter(ENTRY_cuFuncSetAttribute) ?: set_attribute(function, attribute, value));
}

CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessor(int *ret, CUfunction function, int threads,
                                                             size_t shared)
{
	return leave(enter(ENTRY_cuOccupancyMaxActiveBlocksPerMultiprocessor)
	                 ?: get_occupancy(ret, function, threads, shared));
}
