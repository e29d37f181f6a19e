/* SPDX-License-Identifier: Apache-2.0 */
/* Tests memory of pools as the stand-in driver provides it, and as the engine maps it. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "rig.h"
#include "soft.h"

#define SIZE    10000
#define POOL_FD CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

#define cuda(call) cr_assert_eq(call, CUDA_SUCCESS, "%s", #call)

static CUmemoryPool new_pool(int device)
{
	CUmemPoolProps properties = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		                      .handleTypes = POOL_FD,
		                      .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device } };
	CUmemoryPool pool;

	cuda(cuMemPoolCreate(&pool, &properties));
	return pool;
}

static CUdeviceptr allocate(CUmemoryPool pool, size_t size)
{
	CUdeviceptr pointer;

	cuda(cuMemAllocFromPoolAsync(&pointer, size, pool, NULL));
	return pointer;
}

static int export_pool(CUmemoryPool pool)
{
	int fd;

	cuda(cuMemPoolExportToShareableHandle(&fd, pool, POOL_FD, 0));
	return fd;
}

static CUmemoryPool import_pool(int fd)
{
	CUmemoryPool pool;

	cuda(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd, POOL_FD, 0));
	return pool;
}

static CUdeviceptr import_pointer(CUmemoryPool pool, const CUmemPoolPtrExportData *pointer)
{
	CUdeviceptr address;

	cuda(cuMemPoolImportPointer(&address, pool, (CUmemPoolPtrExportData *)pointer));
	return address;
}

/* As in driver 580, a pool has to be destroyed as often as it is imported, but a pointer that is imported
 * twice is freed once. */
Test(soft_pool, imports, .init = soft_open, .fini = soft_close, .timeout = 60)
{
	CUmemoryPool pool = new_pool(0), imported;
	CUdeviceptr a = allocate(pool, SIZE), b = allocate(pool, 1), start, other;
	CUmemPoolPtrExportData exported;
	const int fd = export_pool(pool);
	size_t size;

	cuda(cuMemPoolExportPointer(&exported, a));
	cr_expect_eq(cuMemPoolExportPointer(&exported, a + 1), CUDA_ERROR_INVALID_VALUE);
	imported = import_pool(fd);
	cr_expect_eq(import_pool(fd), imported);
	start = import_pointer(imported, &exported);
	cr_expect_eq(import_pointer(imported, &exported), start);
	cuda(cuMemsetD8Async(a, 7, SIZE, NULL));
	cuda(cuStreamSynchronize(NULL));
	cr_expect(soft_is(start, SIZE, 7));
	cuda(cuMemGetAddressRange(&other, &size, start + SIZE - 1));
	cr_expect(other == start && size == SIZE);

	cuda(cuMemFreeAsync(a, NULL));
	cr_expect_eq(cuMemPoolExportPointer(&exported, a), CUDA_ERROR_INVALID_VALUE);
	cr_expect(soft_is(start, SIZE, 7), "what was imported stays");
	cr_expect_eq(allocate(pool, SIZE), a);
	cuda(cuMemFreeAsync(start, NULL));
	cr_expect_eq(cuMemFreeAsync(start, NULL), CUDA_ERROR_INVALID_VALUE);
	cuda(cuMemPoolDestroy(imported));
	cuda(cuMemPoolDestroy(imported));
	cr_expect_eq(cuMemPoolDestroy(imported), CUDA_ERROR_INVALID_VALUE);

	cuda(cuMemPoolDestroy(pool));
	cuda(cuMemFreeAsync(b, NULL));
	cuda(cuMemFreeAsync(a, NULL));
	close(fd);
}

/* ---- The engine --------------------------------------------------------------------------------------- */

struct pool_row {
	char name[40];
	char variable[64]; /* for the stand-in driver, NAME=VALUE */
	int device;
	int status;
	char says[64];
};

ParameterizedTestParameters(cuda_memory, of_a_pool)
{
	static struct pool_row rows[] = {
		{ .name = "mapped" },
		{ "no pool", "SOFTGPU_FAIL_CALL=cuMemPoolImportFromShareableHandle", 0, STATUS_NO_MEMORY,
		  "fd: the driver cannot import the pool" },
		{ "no pointer", "SOFTGPU_FAIL_CALL=cuMemPoolImportPointer", 0, STATUS_NO_MEMORY,
		  "handle: the driver cannot import it" },
		{ "unknown memory", "SOFTGPU_FAIL_CALL=cuPointerGetAttribute", 0, STATUS_NO_MEMORY,
		  "cuPointerGetAttribute" },
		{ "an unknown device", "SOFTGPU_FAIL_CALL=cuPointerGetAttribute:2", 0, STATUS_NO_MEMORY,
		  "cuPointerGetAttribute" },
		{ "another device", "SOFTGPU_DEVICES=2", 1, STATUS_INVALID_ARGUMENT,
		  "the pool is on device 1, but this service uses device 0" },
	};

	return cr_make_param_array(struct pool_row, rows, sizeof rows / sizeof *rows);
}

static int map(int fd, const CUmemPoolPtrExportData *pointer, uint64_t offset, struct engine_memory **ret,
               struct error *err)
{
	struct engine_handle handle = { .kind = REGION_KIND_CUDA_POOL,
		                        .fd = fd,
		                        .offset = offset,
		                        .size = SIZE - offset,
		                        .allocation = SIZE,
		                        .writable = true,
		                        .handle = { (const char *)pointer, sizeof *pointer } };

	return engine_map(engine, &handle, ret, err);
}

static void assert_shares(int fd, const CUmemPoolPtrExportData *pointer, struct engine_memory *memory)
{
	struct engine_memory *part;
	struct error err;

	cr_assert_eq(map(fd, pointer, 100, &part, &err), 0, "%s", err.message);
	cr_assert_arr_eq(part->memory, memory->memory, sizeof part->memory);
	cr_assert_eq(part->base - memory->base, 100);
	cr_assert_eq(data(part), data(memory) + 100);
	engine_unmap(engine, memory);
	cr_assert_eq(*data(part), 9, "the one that is left still has it");
	engine_unmap(engine, part);
}

ParameterizedTest(struct pool_row *row, cuda_memory, of_a_pool)
{
	struct engine_memory *memory = NULL;
	CUmemPoolPtrExportData exported;
	struct error err;
	CUmemoryPool pool;
	CUdeviceptr pointer;
	int fd, r;

	if (*row->variable)
		putenv(row->variable);
	open_engine(NULL);
	pool = new_pool(row->device);
	pointer = allocate(pool, SIZE);
	memset((void *)pointer, 9, SIZE);
	fd = export_pool(pool);
	cuda(cuMemPoolExportPointer(&exported, pointer));
	r = map(fd, &exported, 0, &memory, &err);
	cr_assert_eq(r, row->status, "%s: %s", row->name, err.message);
	if (r == 0)
		assert_shares(fd, &exported, memory);
	else
		cr_assert_not_null(strstr(err.message, row->says), "%s: %s", row->name, err.message);
	close(fd);
	cuda(cuMemFreeAsync(pointer, NULL));
	cuda(cuMemPoolDestroy(pool));
	close_engine();
}
