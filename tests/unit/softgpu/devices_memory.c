/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that memory belongs to a device: how much each device has, which device an address belongs to, and
 * which devices may access memory that is mapped or comes from a pool. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "devices.h"

#define SIZE   (1 << 20)
#define MEMORY (64 << 20)

static void open_four(void)
{
	devices_set("SOFTGPU_MEMORY=67108864");
	devices_open(4);
}

TestSuite(devices_memory, .init = open_four, .fini = devices_close, .timeout = 60);

static size_t taken(int device)
{
	size_t available = 0, total = 0;

	use(device);
	expect_ok(cuMemGetInfo(&available, &total));
	cr_expect_eq(total, MEMORY, "device %d", device);
	return total - available;
}

static int ordinal_of(CUdeviceptr address)
{
	int ordinal = -1;

	expect_ok(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
	return ordinal;
}

static CUcontext context_at(CUdeviceptr address)
{
	CUcontext at = NULL;

	expect_ok(cuPointerGetAttribute(&at, CU_POINTER_ATTRIBUTE_CONTEXT, address));
	return at;
}

static CUmemoryPool new_pool(int device)
{
	const CUmemPoolProps properties = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		                            .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE,
		                                          .id = device } };
	CUmemoryPool pool = NULL;

	expect_ok(cuMemPoolCreate(&pool, &properties));
	return pool;
}

/* Allocating all memory of one device leaves the others all of theirs. */
Test(devices_memory, each_has_its_own)
{
	CUdeviceptr all, more;

	use(1);
	expect_ok(cuMemAlloc(&all, MEMORY));
	expect_result(cuMemAlloc(&more, 1), CUDA_ERROR_OUT_OF_MEMORY);
	for (int i = 0; i < 4; i++) {
		size_t total;

		cr_expect_eq(taken(i), i == 1 ? MEMORY : 0, "device %d", i);
		expect_ok(cuDeviceTotalMem(&total, i));
		cr_expect_eq(total, MEMORY);
	}
	use(2);
	expect_ok(cuMemAlloc(&more, MEMORY));
	expect_ok(cuMemFree(all)); /* works with any context current */
	cr_expect_eq(taken(1), 0);
	cr_expect_eq(taken(2), MEMORY);
	expect_ok(cuMemFree(more));
}

/* Memory is charged to the location that is named and not to the current context's device. */
Test(devices_memory, locations_are_charged)
{
	CUmemoryPool pool;
	CUdeviceptr pooled;

	use(0);
	struct mapped mapped = map_of(3);
	pool = new_pool(2);
	expect_ok(cuMemAllocFromPoolAsync(&pooled, SIZE, pool, NULL));
	cr_expect_eq(taken(0), 0);
	cr_expect_eq(taken(1), 0);
	cr_expect_eq(taken(2), SIZE);
	cr_expect_eq(taken(3), GRANULARITY);
	cr_expect_eq(ordinal_of(mapped.address), 3);
	cr_expect_null(context_at(mapped.address));
	cr_expect_eq(ordinal_of(pooled), 2);
	cr_expect_null(context_at(pooled));
	expect_ok(cuMemFreeAsync(pooled, NULL));
	expect_ok(cuMemPoolDestroy(pool));
	unmap(&mapped);
	cr_expect_eq(taken(2), 0);
	cr_expect_eq(taken(3), 0);
}

Test(devices_memory, an_address_tells)
{
	static _Alignas(4096) unsigned char host[4096];
	CUdeviceptr memory[4];

	for (int i = 0; i < 4; i++)
		memory[i] = memory_of(i, SIZE, 0);
	use(0);
	for (int i = 0; i < 4; i++) {
		cr_expect_eq(ordinal_of(memory[i] + SIZE - 1), i);
		cr_expect_eq(context_at(memory[i]), context[i], "device %d", i);
		expect_ok(cuMemFree(memory[i]));
	}
	use(3);
	expect_ok(cuMemHostRegister(host, sizeof host, CU_MEMHOSTREGISTER_PORTABLE));
	cr_expect_eq(ordinal_of((CUdeviceptr)host), 3);
	expect_ok(cuMemHostUnregister(host));
}

/* An import keeps the device of its memory. */
Test(devices_memory, imports_keep_their_device)
{
	CUmemGenericAllocationHandle handle;
	CUmemAllocationProp properties;
	struct mapped mapped;
	int fd;

	use(1);
	mapped = map_of(2);
	expect_ok(
	    cuMemExportToShareableHandle(&fd, mapped.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	expect_ok(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
	                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
	expect_ok(cuMemGetAllocationPropertiesFromHandle(&properties, handle));
	cr_expect_eq(properties.location.id, 2);
	cr_expect_eq(taken(2), GRANULARITY, "the import was charged");
	expect_ok(cuMemRelease(handle));
	unmap(&mapped);
}

/* ---- Access ---------------------------------------------------------------------------------------------
 */

/* The access that a device has to memory of another one. A kernel tests it last, because it may lose the
 * device. */
struct access_row {
	char name[48];
	bool pooled;
	bool peers; /* device 1 has peer access to device 0's context */
	CUmemAccess_flags access;
	enum touch touch;
	CUresult result;
};

#define NONE  CU_MEM_ACCESS_FLAGS_PROT_NONE
#define READ  CU_MEM_ACCESS_FLAGS_PROT_READ
#define WRITE CU_MEM_ACCESS_FLAGS_PROT_READWRITE

ParameterizedTestParameters(devices_access, kernels)
{
	static struct access_row rows[] = {
		{ "mapped, not given", 0, 0, NONE, TOUCH_READ, CUDA_ERROR_ILLEGAL_ADDRESS },
		{ "mapped, not given, tile", 0, 0, NONE, TOUCH_TILE_LOAD, CUDA_ERROR_ILLEGAL_ADDRESS },
		{ "mapped, not given to peers", 0, 1, NONE, TOUCH_READ, CUDA_ERROR_ILLEGAL_ADDRESS },
		{ "mapped, to read", 0, 0, READ, TOUCH_READ, CUDA_SUCCESS },
		{ "mapped, to read, bulk", 0, 0, READ, TOUCH_BULK_LOAD, CUDA_SUCCESS },
		{ "mapped, to read, written", 0, 0, READ, TOUCH_WRITE, CUDA_ERROR_ILLEGAL_ADDRESS },
		{ "mapped, to read, bulk store", 0, 1, READ, TOUCH_BULK_STORE, CUDA_ERROR_ILLEGAL_ADDRESS },
		{ "mapped, to write", 0, 0, WRITE, TOUCH_WRITE, CUDA_SUCCESS },
		{ "mapped, to write, tile", 0, 0, WRITE, TOUCH_TILE_STORE, CUDA_SUCCESS },
		{ "pooled, not given", 1, 0, NONE, TOUCH_READ, CUDA_ERROR_ILLEGAL_ADDRESS },
		{ "pooled, not given to peers", 1, 1, NONE, TOUCH_BULK_LOAD, CUDA_ERROR_ILLEGAL_ADDRESS },
		{ "pooled, to read", 1, 0, READ, TOUCH_READ, CUDA_SUCCESS },
		{ "pooled, to read, written", 1, 0, READ, TOUCH_ADD, CUDA_ERROR_ILLEGAL_ADDRESS },
		{ "pooled, to write", 1, 0, WRITE, TOUCH_ADD, CUDA_SUCCESS },
	};

	return cr_make_param_array(struct access_row, rows, sizeof rows / sizeof *rows);
}

static CUdeviceptr make_memory(const struct access_row *row)
{
	const CUmemAccessDesc own = access_of(0, WRITE), other = access_of(1, row->access);
	CUdeviceptr pooled = 0;

	if (row->pooled) {
		CUmemoryPool pool = new_pool(0);

		if (row->access != NONE)
			expect_ok(cuMemPoolSetAccess(pool, &other, 1));
		expect_ok(cuMemAllocFromPoolAsync(&pooled, TOUCH_BYTES, pool, NULL));
		return pooled;
	}
	struct mapped mapped = map_of(0);
	expect_ok(cuMemSetAccess(mapped.address, GRANULARITY, &own, 1));
	if (row->access != NONE)
		expect_ok(cuMemSetAccess(mapped.address, GRANULARITY, &other, 1));
	return mapped.address;
}

ParameterizedTest(struct access_row *row, devices_access, kernels, .timeout = 60)
{
	devices_open(2);
	CUdeviceptr own = memory_of(1, TOUCH_BYTES, 0);
	if (row->peers)
		expect_ok(cuCtxEnablePeerAccess(context[0], 0));
	use(0);
	CUdeviceptr there = make_memory(row);
	expect_ok(cuMemsetD8Async(there, 7, TOUCH_BYTES, NULL));
	expect_ok(cuStreamSynchronize(NULL));
	cr_expect_eq(touch(1, row->touch, there, own), row->result, "%s", row->name);
	cr_expect_eq(cuStreamSynchronize(NULL), row->result, "%s", row->name);
	use(0);
	cr_expect_eq(touch(0, TOUCH_READ, there, there), CUDA_SUCCESS, "%s: the memory's own device",
	             row->name);
}

Test(devices_memory, access_is_told)
{
	CUmemAccessDesc both[] = { access_of(1, READ), access_of(2, WRITE) };
	CUmemAccessDesc wrong[] = { access_of(1, READ), access_of(4, READ) };
	CUmemLocation location = { .type = CU_MEM_LOCATION_TYPE_DEVICE };
	const unsigned long long wanted[] = { NONE, READ, WRITE, NONE };
	unsigned long long flags;
	CUmemAccess_flags pooled;
	CUmemoryPool pool;

	use(3);
	struct mapped mapped = map_of(0);
	pool = new_pool(0);
	expect_ok(cuMemSetAccess(mapped.address, GRANULARITY, both, 2));
	expect_ok(cuMemPoolSetAccess(pool, both, 2));
	expect_result(cuMemSetAccess(mapped.address, GRANULARITY, wrong, 2), CUDA_ERROR_INVALID_VALUE);
	expect_result(cuMemSetAccess(mapped.address, GRANULARITY, both, 0), CUDA_ERROR_INVALID_VALUE);
	expect_result(cuMemPoolSetAccess(pool, wrong, 2), CUDA_ERROR_INVALID_VALUE);
	for (int i = 0; i < 4; i++) {
		location.id = i;
		expect_ok(cuMemGetAccess(&flags, &location, mapped.address + 5));
		cr_expect_eq(flags, wanted[i], "device %d: %llu", i, flags);
		expect_ok(cuMemPoolGetAccess(&pooled, pool, &location));
		cr_expect_eq(pooled, i == 0 ? WRITE : wanted[i], "device %d: %d", i, (int)pooled);
	}
	location.id = 4;
	expect_result(cuMemGetAccess(&flags, &location, mapped.address), CUDA_ERROR_INVALID_DEVICE);
	both[1].flags = READ;
	location.id = 2;
	expect_ok(cuMemSetAccess(mapped.address, GRANULARITY, &both[1], 1));
	expect_ok(cuMemGetAccess(&flags, &location, mapped.address));
	cr_expect_eq(flags, READ, "it could be written before: %llu", flags);
	both[1].flags = NONE;
	expect_ok(cuMemPoolSetAccess(pool, both, 2));
	expect_ok(cuMemPoolGetAccess(&pooled, pool, &location));
	cr_expect_eq(pooled, NONE);
	wrong[0] = access_of(0, READ);
	expect_result(cuMemPoolSetAccess(pool, wrong, 1), CUDA_ERROR_INVALID_VALUE);
	expect_ok(cuMemPoolDestroy(pool));
	unmap(&mapped);
}

/* A memset or a stream's access to a word needs access to the memory, and is refused by the call
 * otherwise. */
Test(devices_memory, sets_and_words_ask_for_access)
{
	CUdeviceptr memory = memory_of(0, SIZE, 0);

	use(1);
	struct mapped mapped = map_of(0);
	const CUmemAccessDesc read = access_of(1, READ);

	expect_result(cuMemsetD8Async(memory, 1, SIZE, NULL), CUDA_ERROR_INVALID_VALUE);
	expect_result(cuStreamWriteValue64(NULL, memory, 1, 0), CUDA_ERROR_INVALID_VALUE);
	expect_result(cuMemsetD8Async(mapped.address, 1, 1, NULL), CUDA_ERROR_INVALID_VALUE);
	expect_ok(cuCtxEnablePeerAccess(context[0], 0));
	expect_ok(cuMemsetD8Async(memory, 1, SIZE, NULL));
	expect_ok(cuStreamWriteValue64(NULL, memory, UINT64_C(0x0101010101010101), 0));
	expect_result(cuMemsetD8Async(mapped.address, 1, 1, NULL), CUDA_ERROR_INVALID_VALUE);
	expect_ok(cuMemSetAccess(mapped.address, GRANULARITY, &read, 1));
	expect_result(cuMemsetD8Async(mapped.address, 1, 1, NULL), CUDA_ERROR_INVALID_VALUE);
	expect_ok(cuStreamSynchronize(NULL));
	cr_expect(memory_is(memory, SIZE, 1));
	unmap(&mapped);
	expect_ok(cuMemFree(memory));
}
