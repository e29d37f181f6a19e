/* SPDX-License-Identifier: Apache-2.0 */
/* Launches. The argument is copied at the call, as the driver does it, and the model runs the kernel when its
 * turn comes. A fault is reported on stderr and sticks to the device: an illegal address for an access to
 * memory that the device may not access so, an illegal instruction for a broken rule of the TMA unit. Kernels
 * of several devices run one after the other on the host, but their least durations (call_launch_ns) overlap.
 */
#include "launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "call.h"
#include "capture.h"
#include "softgpu.h"
#include "tests/softgpu/model.h"

#define MOST_THREADS 1024
#define MOST_Z       64
#define MOST_CLUSTER 8
#define MOST_GRID_X  2147483647u
#define MOST_GRID_YZ 65535u
#define ALIGNMENT    128

struct launch {
	struct op op;
	const struct model_kernel *kernel;
	uint64_t function; /* id of the function */
	struct model_launch launch;
	void *argument; /* follows this structure in the same block of memory; launch.params points here */
};

/* The kernel that the calling thread runs. Aligned for clang's leak checker; context.c explains why. */
static _Thread_local _Alignas(64) struct {
	const struct context *context;
	bool reached_all; /* whether every access so far was allowed */
} running;

/* The model asks about a wide range first and about parts of it if that is refused; the last range refused is
 * the one that it reports. */
static bool check_memory(uint64_t address, uint64_t bytes, bool write)
{
	call_lock();
	running.reached_all =
	    range_reaches(running.context, address, bytes, write ? ACCESS_WRITE : ACCESS_READ);
	call_unlock();
	return running.reached_all;
}

void launch_init(void)
{
	if (!model_memory_check)
		model_memory_check = check_memory;
}

/* A graph may have outlived the module of its kernels. */
static bool is_loaded(const struct launch *launch)
{
	call_lock();
	bool is_loaded = function_is_loaded(launch->function);
	call_unlock();
	if (!is_loaded)
		fprintf(stderr, "softgpu: %s: its module has been unloaded\n", launch->op.name);
	return is_loaded;
}

static CUresult run(struct op *op)
{
	struct launch *launch = (struct launch *)op;
	char report[1024];
	if (!is_loaded(launch))
		return CUDA_ERROR_INVALID_PC;
	running.context = op->context;
	running.reached_all = true;
	if (!model_run(launch->kernel, &launch->launch, report, sizeof report)) {
		fprintf(stderr, "softgpu: %s\n", report);
		return running.reached_all ? CUDA_ERROR_ILLEGAL_INSTRUCTION : CUDA_ERROR_ILLEGAL_ADDRESS;
	}
	return CUDA_SUCCESS;
}

void softgpu_count(struct softgpu_counts *counts)
{
	call_lock();
	model_counts = counts;
	call_unlock();
}

static bool is_cluster(const CUlaunchConfig *config, const CUlaunchAttribute *attribute)
{
	uint32_t cluster = attribute->value.clusterDim.x;
	return attribute->value.clusterDim.y == 1 && attribute->value.clusterDim.z == 1 &&
	       cluster <= MOST_CLUSTER && cluster > 0 && config->gridDimX % cluster == 0;
}

/* Checks that the access policy window lies in memory of the device. It does not affect what a kernel
 * does. */
static bool is_window(const CUaccessPolicyWindow *window)
{
	const uint64_t start = (uint64_t)window->base_ptr;
	return window->num_bytes > 0 && window->num_bytes <= WINDOW_BYTES && window->hitRatio >= 0 &&
	       window->hitRatio <= 1 && window->hitProp <= CU_ACCESS_PROPERTY_PERSISTING &&
	       window->missProp <= CU_ACCESS_PROPERTY_STREAMING && range_find(start) &&
	       range_reaches(context_current(), start, window->num_bytes, ACCESS_READ);
}

/* Returns false if an attribute is not supported by this device. */
static bool read_attributes(struct model_launch *launch, unsigned long long *ret_passing,
                            const CUlaunchConfig *config)
{
	for (unsigned i = 0; i < config->numAttrs; i++) {
		const CUlaunchAttribute *attribute = &config->attrs[i];
		switch (attribute->id) {
		case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
			if (!is_cluster(config, attribute))
				return false;
			launch->cluster = attribute->value.clusterDim.x;
			break;
		case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
			launch->programmatic = attribute->value.programmaticStreamSerializationAllowed;
			break;
		case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
			if (!is_window(&attribute->value.accessPolicyWindow))
				return false;
			*ret_passing = attribute->value.accessPolicyWindow.num_bytes;
			break;
		case CU_LAUNCH_ATTRIBUTE_IGNORE:
		case CU_LAUNCH_ATTRIBUTE_PRIORITY:
			break;
		default:
			return false;
		}
	}
	return true;
}

static bool is_launchable(const CUlaunchConfig *config, const struct function *function)
{
	uint64_t threads = (uint64_t)config->blockDimX * config->blockDimY * config->blockDimZ;
	return config->gridDimX >= 1 && config->gridDimX <= MOST_GRID_X && config->gridDimY >= 1 &&
	       config->gridDimY <= MOST_GRID_YZ && config->gridDimZ >= 1 &&
	       config->gridDimZ <= MOST_GRID_YZ && threads >= 1 && threads <= MOST_THREADS &&
	       threads <= model_launch_bound(function->kernel) && config->blockDimZ <= MOST_Z &&
	       config->sharedMemBytes <= function->shared_bytes;
}

static struct launch *launch_new(const struct function *function, const void *argument)
{
	size_t size = model_args_size(function->kernel);
	size_t before = (sizeof(struct launch) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	struct launch *launch =
	    aligned_alloc(ALIGNMENT, before + (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
	if (!launch)
		return NULL;
	*launch = (struct launch){ .op = { .unit = UNIT_KERNELS,
		                           .is_launch = true,
		                           .name = model_name(function->kernel),
		                           .run = run },
		                   .kernel = function->kernel,
		                   .function = function->id };
	launch->argument = (char *)launch + before;
	memcpy(launch->argument, argument, size);
	return launch;
}

static CUresult push(const CUlaunchConfig *config, CUfunction handle, void **params, void **extra)
{
	const struct function *function = function_find(handle);
	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!config || !params || !params[0] || extra || !is_launchable(config, function))
		return CUDA_ERROR_INVALID_VALUE;
	struct model_launch shape = {
		.grid = { config->gridDimX, config->gridDimY, config->gridDimZ },
		.block = { config->blockDimX, config->blockDimY, config->blockDimZ },
		.cluster = 1,
		.shared_bytes = config->sharedMemBytes,
	};
	unsigned long long passing = 0;
	if (!read_attributes(&shape, &passing, config))
		return CUDA_ERROR_INVALID_VALUE;
	struct stream *stream = stream_find(config->hStream);
	if (!stream || stream->context != function->context)
		return CUDA_ERROR_INVALID_HANDLE;
	CUresult result = capture_check(stream);
	if (result != CUDA_SUCCESS)
		return result;
	struct launch *launch = launch_new(function, params[0]);
	if (!launch)
		return CUDA_ERROR_OUT_OF_MEMORY;
	launch->launch = shape;
	launch->launch.params = &launch->argument;
	launch->op.passing = passing;
	launch->op.amount = (unsigned long long)shape.grid[0] * shape.grid[1] * shape.grid[2];
	stream_push(stream, &launch->op);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params,
                                  void **extra)
{
	return leave(enter(ENTRY_cuLaunchKernelEx) ?: push(config, function, params, extra));
}
