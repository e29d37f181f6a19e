/* SPDX-License-Identifier: Apache-2.0 */
#include "devices.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/device/args.h"
#include "tests/softgpu/broken.h"
#include "tests/softgpu/counted.h"
#include "tests/softgpu/live.h"

CUcontext context[MOST];

static CUmodule module[MOST];
static int count;

const char *const touch_names[TOUCHES] = {
	[TOUCH_READ] = "read",
	[TOUCH_WRITE] = "write",
	[TOUCH_ADD] = "add",
	[TOUCH_BULK_LOAD] = "bulk load",
	[TOUCH_BULK_STORE] = "bulk store",
	[TOUCH_TILE_LOAD] = "tile load",
	[TOUCH_TILE_STORE] = "tile store",
};

void devices_set(const char *variable)
{
	char text[128];
	char *value;

	if (!*variable)
		return;
	cr_assert_lt(strlen(variable), sizeof text);
	strcpy(text, variable);
	value = strchr(text, '=');
	cr_assert(value);
	*value++ = '\0';
	setenv(text, value, 1);
}

void devices_open(int n)
{
	static const uint32_t image[4] = { 0xba55ed50 }; /* the first word of a fatbin */
	char text[8];

	count = n;
	snprintf(text, sizeof text, "%d", n);
	setenv("SOFTGPU_DEVICES", text, 1);
	expect_ok(cuInit(0));
	for (int i = n - 1; i >= 0; i--) {
		expect_ok(cuDevicePrimaryCtxRetain(&context[i], i));
		use(i);
		expect_ok(cuModuleLoadData(&module[i], image));
	}
}

void devices_close(void)
{
	char text[512];

	for (int i = 0; i < count; i++) {
		use(i);
		expect_ok(cuModuleUnload(module[i]));
	}
	for (int i = 0; i < count; i++)
		expect_ok(cuDevicePrimaryCtxRelease(i));
	cr_expect_eq(softgpu_live(text, sizeof text), 0, "there is still\n%s", text);
}

void devices_expect(CUresult result, CUresult wanted, const char *call, int line)
{
	cr_expect_eq(result, wanted, "line %d: %s is %d, not %d", line, call, (int)result, (int)wanted);
}

void use(int device)
{
	expect_ok(cuCtxSetCurrent(context[device]));
}

CUdeviceptr memory_of(int device, size_t size, unsigned char value)
{
	CUdeviceptr address = 0;

	use(device);
	expect_ok(cuMemAlloc(&address, size));
	expect_ok(cuMemsetD8Async(address, value, size, NULL));
	expect_ok(cuStreamSynchronize(NULL));
	return address;
}

bool memory_is(CUdeviceptr address, size_t size, unsigned char value)
{
	unsigned char *bytes = malloc(size);
	bool same = true;

	cr_assert(bytes);
	expect_ok(cuMemcpyDtoHAsync(bytes, address, size, NULL));
	for (size_t i = 0; i < size && same; i++)
		same = bytes[i] == value;
	free(bytes);
	return same;
}

CUstream new_stream(void)
{
	CUstream stream = NULL;

	expect_ok(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
	return stream;
}

CUevent new_event(void)
{
	CUevent event = NULL;

	expect_ok(cuEventCreate(&event, CU_EVENT_DEFAULT));
	return event;
}

/* ---- Memory by hand ------------------------------------------------------------------------------------ */

struct mapped map_of(int device)
{
	const CUmemAllocationProp properties = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device },
	};
	struct mapped mapped = { 0 };

	expect_ok(cuMemCreate(&mapped.handle, GRANULARITY, &properties, 0));
	expect_ok(cuMemAddressReserve(&mapped.address, GRANULARITY, 0, 0, 0));
	expect_ok(cuMemMap(mapped.address, GRANULARITY, 0, mapped.handle, 0));
	return mapped;
}

void unmap(struct mapped *mapped)
{
	expect_ok(cuMemUnmap(mapped->address, GRANULARITY));
	expect_ok(cuMemAddressFree(mapped->address, GRANULARITY));
	expect_ok(cuMemRelease(mapped->handle));
}

CUmemAccessDesc access_of(int device, CUmemAccess_flags flags)
{
	return (CUmemAccessDesc){ .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device },
		                  .flags = flags };
}

/* ---- Kernels ------------------------------------------------------------------------------------------- */

static CUresult launch(int device, const char *name, void *args, unsigned threads, unsigned shared)
{
	void *params[] = { args };
	CUlaunchConfig config = { .gridDimX = 1,
		                  .gridDimY = 1,
		                  .gridDimZ = 1,
		                  .blockDimX = threads,
		                  .blockDimY = 1,
		                  .blockDimZ = 1,
		                  .sharedMemBytes = shared };
	CUfunction function = NULL;
	CUresult result = cuModuleGetFunction(&function, module[device], name);

	if (result == CUDA_SUCCESS)
		result = cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
		                            COUNTED_SHARED);
	if (result == CUDA_SUCCESS)
		result = cuLaunchKernelEx(&config, function, params, NULL);
	return result == CUDA_SUCCESS ? cuStreamSynchronize(NULL) : result;
}

static CUresult access_words(int device, enum counted_what what, CUdeviceptr there)
{
	struct counted_args args = { .base = there, .what = what, .size = 4, .stride = 4 };

	return launch(device, "counted", &args, 32, COUNTED_SHARED);
}

static CUresult copy_bulk(int device, CUdeviceptr dst, CUdeviceptr src)
{
	struct bulk_copy_args args = {
		.dst = dst, .src = src, .run = TOUCH_BYTES, .chunk = TOUCH_BYTES, .chunks = 1, .tiles = 1
	};

	return launch(device, "bulk_copy", &args, 32, COUNTED_SHARED);
}

static void encode(CUtensorMap *map, CUdeviceptr memory)
{
	const cuuint64_t dim[] = { BROKEN_TILE_X, BROKEN_TILES * BROKEN_TILE_Y };
	const cuuint64_t stride[] = { BROKEN_TILE_X * 4 };
	const cuuint32_t box[] = { BROKEN_TILE_X, BROKEN_TILE_Y }, steps[] = { 1, 1 };

	expect_ok(cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_UINT32, 2, (void *)memory, dim, stride,
	                                 box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
	                                 CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
	                                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
}

static CUresult copy_tiles(int device, CUdeviceptr dst, CUdeviceptr src)
{
	struct broken_args args = { .in = src, .mistake = MISTAKE_NONE };

	encode(&args.load, src);
	encode(&args.store, dst);
	return launch(device, "broken_pipeline", &args, BROKEN_THREADS, BROKEN_SHARED);
}

CUresult touch(int device, enum touch what, CUdeviceptr there, CUdeviceptr own)
{
	use(device);
	switch (what) {
	case TOUCH_READ:
		return access_words(device, COUNTED_GLOBAL_READ, there);
	case TOUCH_WRITE:
		return access_words(device, COUNTED_GLOBAL_WRITE, there);
	case TOUCH_ADD:
		return access_words(device, COUNTED_ADDS, there);
	case TOUCH_BULK_LOAD:
		return copy_bulk(device, own, there);
	case TOUCH_BULK_STORE:
		return copy_bulk(device, there, own);
	case TOUCH_TILE_LOAD:
		return copy_tiles(device, own, there);
	default:
		return copy_tiles(device, there, own);
	}
}
