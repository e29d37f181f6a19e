/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU, its stream and its memory, which exist from rig_open to rig_close. */
#include "rig.h"

#include <stdio.h>

#include "kernels/cuda/driver/driver.h"
#include "tests/support/tap.h"

extern const unsigned char seeds_image[]; /* defined in image.S */

static struct {
	CUdevice device;
	CUcontext context;
	CUmodule module;
	CUstream stream;
	CUfunction function[SEED_KERNEL_COUNT];
	CUdeviceptr tensor;
	CUdeviceptr tiles;
	char name[256];
	bool is_lost;
	struct error error;
} rig;

static const char *const names[SEED_KERNEL_COUNT] = {
#define KERNEL(name, args) [KERNEL_##name] = #name,
#include "seeds.def"
};

/* Makes a call that has no reason to fail; ends the program if it does. */
#define must(function, arguments)                                     \
	do {                                                          \
		if (driver_call(&rig.error, function, arguments) < 0) \
			tap_bail_out("%s", rig.error.message);        \
	} while (0)

/* ---- The GPU --------------------------------------------------------------------------------------- */

static const char *find_device(void)
{
	int major = 0;

	if (driver_open(&rig.error) < 0 || driver_call(&rig.error, cuDeviceGet, (&rig.device, 0)) < 0)
		return rig.error.message;
	must(cuDeviceGetName, (rig.name, sizeof(rig.name), rig.device));
	must(cuDeviceGetAttribute, (&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, rig.device));
	if (major < 9) {
		error_set(&rig.error, STATUS_UNSUPPORTED,
		          "%s has compute capability %d; the unit came with 9", rig.name, major);
		return rig.error.message;
	}
	return NULL;
}

const char *rig_open(void)
{
	const char *reason = find_device();

	if (reason)
		return reason;
	must(cuDevicePrimaryCtxRetain, (&rig.context, rig.device));
	must(cuCtxSetCurrent, (rig.context));
	must(cuStreamCreateWithPriority, (&rig.stream, CU_STREAM_NON_BLOCKING, 0));
	must(cuModuleLoadData, (&rig.module, seeds_image));
	for (int k = 0; k < SEED_KERNEL_COUNT; k++)
		must(cuModuleGetFunction, (&rig.function[k], rig.module, names[k]));
	must(cuMemAlloc, (&rig.tensor, RIG_TENSOR_BYTES));
	must(cuMemAlloc, (&rig.tiles, RIG_TILE_BYTES));
	return NULL;
}

void rig_close(void)
{
	must(cuMemFree, (rig.tiles));
	must(cuMemFree, (rig.tensor));
	must(cuModuleUnload, (rig.module));
	must(cuStreamDestroy, (rig.stream));
	must(cuDevicePrimaryCtxRelease, (rig.device));
	driver_close();
}

const char *rig_device_name(void)
{
	return rig.name;
}

/* ---- Memory ---------------------------------------------------------------------------------------- */

uint64_t rig_tensor(void)
{
	return rig.tensor + RIG_GUARD;
}

uint64_t rig_tiles(void)
{
	return rig.tiles;
}

static void write_bytes(CUdeviceptr to, const uint8_t *bytes, size_t n)
{
	must(cuMemcpyHtoDAsync, (to, bytes, n, rig.stream));
	must(cuStreamSynchronize, (rig.stream));
}

static void read_bytes(uint8_t *ret, CUdeviceptr from, size_t n)
{
	must(cuMemcpyDtoHAsync, (ret, from, n, rig.stream));
	must(cuStreamSynchronize, (rig.stream));
}

void rig_write_tensor(const uint8_t *bytes)
{
	write_bytes(rig.tensor, bytes, RIG_TENSOR_BYTES);
}

void rig_read_tensor(uint8_t *ret)
{
	read_bytes(ret, rig.tensor, RIG_TENSOR_BYTES);
}

void rig_write_tiles(const uint8_t *bytes)
{
	write_bytes(rig.tiles, bytes, RIG_TILE_BYTES);
}

void rig_read_tiles(uint8_t *ret)
{
	read_bytes(ret, rig.tiles, RIG_TILE_BYTES);
}

/* ---- Kernels --------------------------------------------------------------------------------------- */

bool rig_encode(CUtensorMap *ret, const struct tensor_map_layout *layout, uint64_t offset)
{
	cuuint64_t dim[TENSOR_MAP_MAX_RANK], stride[TENSOR_MAP_MAX_RANK] = { 0 };
	CUresult result;

	for (uint32_t d = 0; d < layout->rank; d++) {
		dim[d] = layout->dim[d];
		if (d > 0)
			stride[d - 1] = layout->stride[d - 1];
	}
	result = driver.cuTensorMapEncodeTiled(
	    ret, (CUtensorMapDataType)layout->type, layout->rank, (void *)(uintptr_t)(rig_tensor() + offset),
	    dim, stride, layout->box, layout->element_stride, (CUtensorMapInterleave)layout->interleave,
	    (CUtensorMapSwizzle)layout->swizzle, (CUtensorMapL2promotion)layout->l2,
	    (CUtensorMapFloatOOBfill)layout->fill);
	if (result != CUDA_SUCCESS)
		driver_fail(&rig.error, result, "cuTensorMapEncodeTiled");
	if (result != CUDA_SUCCESS)
		tap_note("%s", rig.error.message);
	return result == CUDA_SUCCESS;
}

bool rig_run(const struct rig_launch *launch)
{
	CUlaunchAttribute attribute = {
		.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
		.value.clusterDim = { launch->cluster, 1, 1 },
	};
	CUlaunchConfig config = {
		.gridDimX = launch->grid[0] ? launch->grid[0] : 1,
		.gridDimY = launch->grid[1] ? launch->grid[1] : 1,
		.gridDimZ = 1,
		.blockDimX = launch->threads,
		.blockDimY = 1,
		.blockDimZ = 1,
		.sharedMemBytes = launch->shared_bytes,
		.hStream = rig.stream,
		.attrs = &attribute,
		.numAttrs = launch->cluster ? 1 : 0,
	};
	CUfunction function = rig.function[launch->kernel];
	void *params[] = { launch->args };

	if (driver_call(
		&rig.error, cuFuncSetAttribute,
		(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)launch->shared_bytes)) < 0 ||
	    driver_call(&rig.error, cuLaunchKernelEx, (&config, function, params, NULL)) < 0 ||
	    driver_call(&rig.error, cuStreamSynchronize, (rig.stream)) < 0) {
		tap_note("%s: %s", names[launch->kernel], rig.error.message);
		rig.is_lost = true;
	}
	return !rig.is_lost;
}

bool rig_is_lost(void)
{
	return rig.is_lost;
}
