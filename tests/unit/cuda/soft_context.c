/* SPDX-License-Identifier: Apache-2.0 */
/* Tests contexts of the stand-in driver beside the primary one: what each has of its own, and what they
 * share. */
#include "soft.h"

#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "kernels/cuda/device/args.h"
#include "tests/softgpu/live.h"

#define SIZE        4096
#define GRANULARITY (2u << 20)

/* The engine's driver table lacks some of these calls. */
#define OK(call)            soft_expect(call, CUDA_SUCCESS, #call, __LINE__)
#define FAILS(call, wanted) soft_expect(call, wanted, #call, __LINE__)

TestSuite(soft_context, .init = soft_open, .fini = soft_close, .timeout = 60);
TestSuite(soft_context_fault, .timeout = 60);

/* Creates a context and leaves it current. */
static CUcontext new_context(void)
{
	CUcontext context = NULL;
	OK(cuCtxCreate(&context, NULL, 0, 0));
	return context;
}

static CUcontext current(void)
{
	CUcontext context = NULL;
	OK(cuCtxGetCurrent(&context));
	return context;
}

static unsigned long long id_of(CUcontext context)
{
	unsigned long long id = 0;
	OK(cuCtxGetId(context, &id));
	return id;
}

static CUcontext context_of(CUdeviceptr pointer)
{
	CUcontext context = (CUcontext)&context;
	OK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, pointer));
	return context;
}

static CUfunction load(const char *name)
{
	static const uint32_t image[4] = { 0xba55ed50u };
	CUmodule module;
	CUfunction function = NULL;
	OK(cuModuleLoadData(&module, image));
	OK(cuModuleGetFunction(&function, module, name));
	return function;
}

/* Launches bulk_copy with no more shared memory than a function may use by default. */
static CUresult launch(CUfunction function, CUstream stream, CUdeviceptr dst, CUdeviceptr src)
{
	struct bulk_copy_args args = {
		.dst = dst, .src = src, .run = 16, .chunk = 16, .chunks = 1, .tiles = 1
	};
	CUlaunchConfig config = { .gridDimX = 1,
		                  .gridDimY = 1,
		                  .gridDimZ = 1,
		                  .blockDimX = 32,
		                  .blockDimY = 1,
		                  .blockDimZ = 1,
		                  .sharedMemBytes = 32 << 10,
		                  .hStream = stream };
	void *params[] = { &args };
	return cuLaunchKernelEx(&config, function, params, NULL);
}

Test(soft_context, one_is_current)
{
	CUcontext first = current(), second = new_context(), popped = NULL;
	CUdevice device = -1;
	cr_expect_eq(current(), second);
	OK(cuCtxGetDevice(&device));
	cr_expect_eq(device, 0);
	cr_expect_eq(id_of(NULL), id_of(second));
	cr_expect_neq(id_of(first), id_of(second));
	OK(cuCtxPopCurrent(&popped));
	cr_expect_eq(popped, second);
	cr_expect_eq(current(), first);
	OK(cuCtxPushCurrent(second));
	OK(cuCtxPushCurrent(first));
	OK(cuCtxPopCurrent(NULL));
	cr_expect_eq(current(), second);
	OK(cuCtxDestroy(second));
	cr_expect_eq(current(), first);
	FAILS(cuCtxSetCurrent(second), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	FAILS(cuCtxGetId(second, &(unsigned long long){ 0 }), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	FAILS(cuCtxDestroy(first), CUDA_ERROR_INVALID_CONTEXT);
}

/* The primary context gets a new id too, although it has the same address whenever it exists. */
Test(soft_context, ids_never_come_again)
{
	unsigned long long seen[4] = { id_of(NULL) };
	for (int i = 1; i < 3; i++) {
		CUcontext context = new_context();
		seen[i] = id_of(context);
		OK(cuCtxDestroy(context));
	}
	CUcontext primary = soft.context;
	device_close(&soft);
	soft_open();
	cr_expect_eq(soft.context, primary);
	seen[3] = id_of(NULL);
	for (int i = 0; i < 4; i++)
		for (int j = 0; j < i; j++)
			cr_expect_neq(seen[i], seen[j], "contexts %d and %d", i, j);
}

/* Streams of one context and the legacy stream of another do not wait for each other, and a function can be
 * launched in its own context only. */
Test(soft_context, streams_and_functions_are_its_own)
{
	CUcontext first = current();
	CUdeviceptr words = soft_memory(SIZE, 0), memory = soft_memory(SIZE, 0), own;
	CUstream stream = soft_stream();
	OK(cuStreamWaitValue64(NULL, words, 1, CU_STREAM_WAIT_VALUE_GEQ));
	CUcontext second = new_context();
	own = soft_memory(SIZE, 1);
	CUfunction function = load("bulk_copy");
	OK(launch(function, NULL, own, own));
	OK(cuCtxSynchronize());
	FAILS(launch(function, stream, own, own), CUDA_ERROR_INVALID_HANDLE);
	FAILS(launch(soft.function[KERNEL_bulk_copy], NULL, own, own), CUDA_ERROR_INVALID_HANDLE);
	expect_ok(cuCtxSetCurrent(first));
	FAILS(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
	__atomic_store_n((uint64_t *)words, 1, __ATOMIC_RELEASE);
	OK(cuCtxSynchronize());
	OK(cuCtxDestroy(second));
	expect_ok(cuStreamDestroy(stream));
	expect_ok(cuMemFree(words));
	expect_ok(cuMemFree(memory));
}

/* A copy works between memory of two contexts. */
Test(soft_context, memory_tells_its_context)
{
	static const CUmemPoolProps pool_properties = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		                                        .location.type = CU_MEM_LOCATION_TYPE_DEVICE };
	static const CUmemAllocationProp properties = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
		                                        .location.type = CU_MEM_LOCATION_TYPE_DEVICE };
	static const CUmemAccessDesc access = { .location.type = CU_MEM_LOCATION_TYPE_DEVICE,
		                                .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle handle;
	CUdeviceptr first = soft_memory(SIZE, 1), pooled, mapped;
	CUmemoryPool pool;
	CUmemorytype type = 0;
	int ordinal = -1;
	void *host = NULL;
	OK(cuMemPoolCreate(&pool, &pool_properties));
	OK(cuMemAllocFromPoolAsync(&pooled, SIZE, pool, NULL));
	OK(cuMemCreate(&handle, GRANULARITY, &properties, 0));
	OK(cuMemAddressReserve(&mapped, GRANULARITY, 0, 0, 0));
	OK(cuMemMap(mapped, GRANULARITY, 0, handle, 0));
	OK(cuMemSetAccess(mapped, GRANULARITY, &access, 1));
	CUcontext second = new_context();
	CUdeviceptr own = soft_memory(SIZE, 2);
	OK(cuMemHostAlloc(&host, SIZE, 0));
	cr_expect_eq(context_of(first), soft.context);
	cr_expect_eq(context_of(own), second);
	cr_expect_eq(context_of((CUdeviceptr)host), second);
	cr_expect_null(context_of(pooled));
	cr_expect_null(context_of(mapped));
	OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, own));
	cr_expect_eq(ordinal, 0);
	OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, own));
	cr_expect_eq(type, CU_MEMORYTYPE_DEVICE);
	OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)host));
	cr_expect_eq(type, CU_MEMORYTYPE_HOST);
	expect_ok(cuMemcpyDtoDAsync(own, first, SIZE, NULL));
	cr_expect(soft_is(own, SIZE, 1));
	CUfunction function = load("bulk_copy");
	OK(launch(function, NULL, pooled, own));
	OK(launch(function, NULL, mapped, pooled));
	cr_expect(soft_is(mapped, 16, 1));
	FAILS(cuMemHostUnregister(host), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	OK(cuMemFreeHost(host));
	OK(cuCtxDestroy(second));
	OK(cuMemFreeAsync(pooled, NULL));
	OK(cuCtxSynchronize());
	OK(cuMemPoolDestroy(pool));
	OK(cuMemUnmap(mapped, GRANULARITY));
	OK(cuMemAddressFree(mapped, GRANULARITY));
	OK(cuMemRelease(handle));
	expect_ok(cuMemFree(first));
}

/* The test's soft_close fails if anything in the context is left. */
Test(soft_context, its_end_frees_what_is_in_it)
{
	static unsigned char registered[SIZE];
	size_t before = 0, after = 0, total;
	void *host;
	expect_ok(cuMemGetInfo(&before, &total));
	CUcontext context = new_context();
	CUdeviceptr memory = soft_memory(SIZE, 0);
	CUstream stream = soft_stream();
	CUevent event = soft_event();
	CUfunction function = load("bulk_copy");
	OK(cuMemHostAlloc(&host, SIZE, 0));
	expect_ok(cuMemHostRegister(registered, SIZE, 0));
	OK(launch(function, stream, memory, memory));
	expect_ok(cuEventRecord(event, stream));
	OK(cuCtxDestroy(context));
	expect_result(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
	expect_result(cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
	expect_result(cuMemFree(memory), CUDA_ERROR_INVALID_VALUE);
	expect_ok(cuMemGetInfo(&after, &total));
	cr_expect_eq(after, before);
}

Test(soft_context_fault, memory_is_for_its_own_kernels)
{
	soft_open();
	CUdeviceptr memory = soft_memory(SIZE, 0);
	CUcontext context = new_context();
	CUdeviceptr own = soft_memory(SIZE, 0);
	CUfunction function = load("bulk_copy");
	OK(launch(function, NULL, own, own));
	OK(cuCtxSynchronize());
	OK(launch(function, NULL, own, memory));
	FAILS(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	FAILS(cuCtxDestroy(context), CUDA_ERROR_ILLEGAL_ADDRESS);
	device_close(&soft);
	driver_close();
}
