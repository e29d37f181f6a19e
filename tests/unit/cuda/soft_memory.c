/* SPDX-License-Identifier: Apache-2.0 */
/* Tests memory of the stand-in driver: what it allocates, what it knows of an address, and what it
 * refuses. */
#include "soft.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#define SIZE        10000
#define GRANULARITY (2u << 20)

TestSuite(soft_memory, .timeout = 60);

static void open_small(void)
{
	soft_set("SOFTGPU_MEMORY=67108864");
	soft_open();
}

Test(soft_memory, amount, .init = open_small, .fini = soft_close)
{
	size_t before, after, total;
	CUdeviceptr all, more, none = 0;
	expect_ok(cuMemGetInfo(&before, &total));
	cr_expect_eq(total, 67108864);
	cr_expect_eq(before, total);
	expect_ok(cuMemAlloc(&all, total - 1));
	expect_ok(cuMemGetInfo(&after, &total));
	cr_expect_eq(after, 1);
	expect_result(cuMemAlloc(&more, 2), CUDA_ERROR_OUT_OF_MEMORY);
	expect_ok(cuMemAlloc(&more, 1));
	expect_ok(cuMemFree(more));
	expect_ok(cuMemFree(all));
	expect_result(cuMemFree(all), CUDA_ERROR_INVALID_VALUE);
	expect_ok(cuMemFree(none));
	expect_result(cuMemAlloc(&none, 0), CUDA_ERROR_INVALID_VALUE);
	expect_ok(cuMemGetInfo(&after, &total));
	cr_expect_eq(after, before);
}

Test(soft_memory, new_memory_is_poisoned, .init = soft_open, .fini = soft_close)
{
	CUdeviceptr memory;
	expect_ok(cuMemAlloc(&memory, SIZE));
	cr_expect(soft_is(memory, SIZE, 0xa5));
	expect_ok(cuMemFree(memory));
}

/* ---- Ranges ------------------------------------------------------------------------------------------ */

struct range_row {
	char name[40];
	int64_t dst; /* from the start of a memory of SIZE bytes */
	int64_t src; /* from the start of another such memory */
	size_t size;
	CUresult result;
};

ParameterizedTestParameters(soft_memory, ranges)
{
	static struct range_row rows[] = {
		{ .name = "whole", .size = SIZE },
		{ .name = "nothing", .size = 0 },
		{ .name = "nothing, nowhere", .dst = -1, .size = 0 },
		{ .name = "end", .dst = 9000, .src = 9000, .size = 1000 },
		{ .name = "past the source", .src = 1, .size = SIZE, .result = CUDA_ERROR_INVALID_VALUE },
		{ .name = "past the destination",
		  .dst = 1,
		  .size = SIZE,
		  .result = CUDA_ERROR_INVALID_VALUE },
		{ .name = "before", .src = -1, .size = 1, .result = CUDA_ERROR_INVALID_VALUE },
		{ .name = "after", .dst = SIZE, .size = 1, .result = CUDA_ERROR_INVALID_VALUE },
		{ .name = "very long", .size = SIZE_MAX - 5, .result = CUDA_ERROR_INVALID_VALUE },
	};
	return cr_make_param_array(struct range_row, rows, sizeof rows / sizeof *rows);
}

ParameterizedTest(struct range_row *row, soft_memory, ranges, .init = soft_open, .fini = soft_close)
{
	CUdeviceptr dst = soft_memory(SIZE, 1), src = soft_memory(SIZE, 2);
	CUresult result = driver.cuMemcpyDtoDAsync(dst + (CUdeviceptr)row->dst, src + (CUdeviceptr)row->src,
	                                           row->size, NULL);
	cr_expect_eq(result, row->result, "%s: %d", row->name, (int)result);
	expect_ok(cuStreamSynchronize(NULL));
	if (row->result == CUDA_SUCCESS && row->size > 0)
		cr_expect(soft_is(dst + (CUdeviceptr)row->dst, row->size, 2), "%s", row->name);
	expect_ok(cuMemFree(dst));
	expect_ok(cuMemFree(src));
}

Test(soft_memory, what_an_address_is, .init = soft_open, .fini = soft_close)
{
	CUdeviceptr memory = soft_memory(SIZE, 0), other = soft_memory(SIZE, 0), base;
	unsigned long long id, other_id;
	unsigned int type, capable;
	CUcontext context;
	size_t size;
	int ordinal;
	expect_ok(cuMemGetAddressRange(&base, &size, memory + SIZE - 1));
	cr_expect_eq(base, memory);
	cr_expect_eq(size, SIZE);
	expect_ok(cuMemGetAddressRange(NULL, NULL, memory));
	expect_result(cuMemGetAddressRange(&base, &size, memory + SIZE), CUDA_ERROR_NOT_FOUND);
	expect_ok(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
	cr_expect_eq(type, CU_MEMORYTYPE_DEVICE);
	expect_ok(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, memory));
	cr_expect_eq(context, soft.context);
	expect_ok(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory));
	cr_expect_eq(ordinal, 0);
	expect_ok(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, memory));
	cr_expect_eq(capable, 1);
	expect_ok(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, memory));
	expect_ok(cuPointerGetAttribute(&other_id, CU_POINTER_ATTRIBUTE_BUFFER_ID, other));
	cr_expect_neq(id, other_id);
	expect_result(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)&type),
	              CUDA_ERROR_INVALID_VALUE);
	expect_ok(cuMemFree(memory));
	expect_ok(cuMemFree(other));
}

/* ---- Host memory -------------------------------------------------------------------------------------- */

struct host_row {
	char name[40];
	int protection; /* of all four pages */
	size_t offset;
	size_t size;
	unsigned int flags;
	CUresult result;
};

ParameterizedTestParameters(soft_memory, host)
{
	static struct host_row rows[] = {
		{ .name = "pages", .protection = PROT_READ | PROT_WRITE, .size = 16384 },
		{ .name = "odd bytes", .protection = PROT_READ | PROT_WRITE, .offset = 3, .size = 5000 },
		{ .name = "read only",
		  .protection = PROT_READ,
		  .size = 4096,
		  .flags = CU_MEMHOSTREGISTER_READ_ONLY },
		{ .name = "read only, not said",
		  .protection = PROT_READ,
		  .size = 4096,
		  .result = CUDA_ERROR_INVALID_VALUE },
		{ .name = "not readable",
		  .protection = PROT_NONE,
		  .size = 4096,
		  .result = CUDA_ERROR_INVALID_VALUE },
		{ .name = "past the mapping",
		  .protection = PROT_READ | PROT_WRITE,
		  .size = 16385,
		  .result = CUDA_ERROR_INVALID_VALUE },
		{ .name = "nothing",
		  .protection = PROT_READ | PROT_WRITE,
		  .size = 0,
		  .result = CUDA_ERROR_INVALID_VALUE },
		{ .name = "an unknown flag",
		  .protection = PROT_READ | PROT_WRITE,
		  .size = 4096,
		  .flags = 0x80,
		  .result = CUDA_ERROR_INVALID_VALUE },
	};
	return cr_make_param_array(struct host_row, rows, sizeof rows / sizeof *rows);
}

/* Maps four pages with this protection between two that are inaccessible. */
static char *four_pages(int protection)
{
	char *pages = mmap(NULL, 24576, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(pages, MAP_FAILED);
	cr_assert_eq(mprotect(pages + 4096, 16384, protection), 0);
	return pages + 4096;
}

ParameterizedTest(struct host_row *row, soft_memory, host, .init = soft_open, .fini = soft_close)
{
	char *start = four_pages(row->protection) + row->offset;
	CUdeviceptr address;
	unsigned int type;
	CUresult result = driver.cuMemHostRegister(start, row->size, row->flags);
	cr_expect_eq(result, row->result, "%s: %d", row->name, (int)result);
	if (result != CUDA_SUCCESS) {
		expect_result(cuMemHostUnregister(start), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
		return;
	}
	expect_ok(cuMemHostGetDevicePointer(&address, start, 0));
	expect_ok(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
	cr_expect_eq(type, CU_MEMORYTYPE_HOST, "%s", row->name);
	expect_result(cuMemHostRegister(start + row->size - 1, 1, 0),
	              CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	expect_result(cuMemsetD8Async(address, 1, row->size, NULL),
	              row->flags & CU_MEMHOSTREGISTER_READ_ONLY ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
	expect_ok(cuMemHostUnregister(start));
	expect_result(cuMemHostGetDevicePointer(&address, start, 0), CUDA_ERROR_INVALID_VALUE);
}

/* Memory that the device does not know can be copied as ordinary host memory, but not used by a kernel. */
Test(soft_memory, ordinary_memory, .init = soft_open, .fini = soft_close)
{
	CUdeviceptr memory = soft_memory(SIZE, 0);
	char *bytes = malloc(SIZE);
	memset(bytes, 9, SIZE);
	expect_ok(cuMemcpyHtoDAsync(memory, bytes, SIZE, NULL));
	memset(bytes, 8, SIZE);
	cr_expect(soft_is(memory, SIZE, 9), "the copy read its source after the call");
	expect_ok(cuMemcpyAsync((CUdeviceptr)bytes, memory, SIZE, NULL));
	cr_expect_eq(bytes[SIZE - 1], 9);
	expect_result(cuMemcpyDtoDAsync(memory, (CUdeviceptr)bytes, SIZE, NULL), CUDA_ERROR_INVALID_VALUE);
	expect_result(cuMemcpyHtoDAsync(memory, (void *)memory, SIZE, NULL), CUDA_ERROR_INVALID_VALUE);
	free(bytes);
	expect_ok(cuMemFree(memory));
}

/* ---- Memory by hand ----------------------------------------------------------------------------------- */

static const CUmemAllocationProp shareable = {
	.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	.location.type = CU_MEM_LOCATION_TYPE_DEVICE,
};
static const CUmemAccessDesc whole_access = {
	.location.type = CU_MEM_LOCATION_TYPE_DEVICE,
	.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
};

/* Copies rows from registered host memory to the device, within the bounds of either. */
Test(soft_memory, rows, .init = soft_open, .fini = soft_close)
{
	enum { ROWS = 5, WIDTH = 24, FROM = 100, TO = 40 };
	unsigned char *bytes = aligned_alloc(4096, 4096);
	CUdeviceptr memory = soft_memory(4096, 0);
	CUDA_MEMCPY2D copy = { .srcMemoryType = CU_MEMORYTYPE_HOST,
		               .srcHost = bytes,
		               .srcPitch = FROM,
		               .dstMemoryType = CU_MEMORYTYPE_DEVICE,
		               .dstDevice = memory,
		               .dstPitch = TO,
		               .WidthInBytes = WIDTH,
		               .Height = ROWS };

	for (int i = 0; i < 4096; i++)
		bytes[i] = (unsigned char)(i % 251 + 1);
	expect_result(cuMemcpy2DAsync(&copy, NULL), CUDA_ERROR_INVALID_VALUE);
	expect_ok(cuMemHostRegister(bytes, 4096, 0));
	expect_ok(cuMemcpy2DAsync(&copy, NULL));
	expect_ok(cuStreamSynchronize(NULL));
	for (int i = 0; i < 4096; i++) {
		const int row = i / TO, column = i % TO;
		const bool is_copied = row < ROWS && column < WIDTH;

		cr_assert_eq(((unsigned char *)memory)[i], is_copied ? bytes[row * FROM + column] : 0, "%d",
		             i);
	}
	copy.srcPitch = WIDTH - 1;
	expect_result(cuMemcpy2DAsync(&copy, NULL), CUDA_ERROR_INVALID_VALUE);
	copy.srcPitch = 4096;
	expect_result(cuMemcpy2DAsync(&copy, NULL), CUDA_ERROR_INVALID_VALUE);

	memset(bytes, 0, 4096);
	copy = (CUDA_MEMCPY2D){ .srcMemoryType = CU_MEMORYTYPE_DEVICE,
		                .srcDevice = memory,
		                .srcPitch = TO,
		                .dstMemoryType = CU_MEMORYTYPE_HOST,
		                .dstHost = bytes,
		                .dstPitch = FROM,
		                .WidthInBytes = WIDTH,
		                .Height = ROWS };
	expect_ok(cuMemcpy2DAsync(&copy, NULL));
	expect_ok(cuStreamSynchronize(NULL));
	for (int i = 0; i < 4096; i++) {
		const int row = i / FROM, column = i % FROM;
		const bool is_copied = row < ROWS && column < WIDTH;

		cr_assert_eq(bytes[i], is_copied ? i % 251 + 1 : 0, "%d", i);
	}
	expect_ok(cuMemHostUnregister(bytes));
	expect_result(cuMemcpy2DAsync(&copy, NULL), CUDA_ERROR_INVALID_VALUE);
	expect_ok(cuMemFree(memory));
	free(bytes);
}

Test(soft_memory, by_hand, .init = soft_open, .fini = soft_close)
{
	CUmemGenericAllocationHandle handle, again;
	CUmemAllocationProp properties;
	CUdeviceptr space, base;
	size_t granularity, size;
	int fd;
	expect_ok(cuMemGetAllocationGranularity(&granularity, &shareable, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	cr_expect_eq(granularity, GRANULARITY);
	expect_result(cuMemCreate(&handle, GRANULARITY + 4096, &shareable, 0), CUDA_ERROR_INVALID_VALUE);
	expect_ok(cuMemCreate(&handle, GRANULARITY, &shareable, 0));
	expect_ok(cuMemAddressReserve(&space, 2 * GRANULARITY, 0, 0, 0));
	cr_expect_eq(space % GRANULARITY, 0);
	expect_result(cuMemMap(space, 2 * GRANULARITY, 0, handle, 0), CUDA_ERROR_NOT_SUPPORTED);
	expect_result(cuMemMap(space, 4096, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
	expect_ok(cuMemMap(space, GRANULARITY, 0, handle, 0));
	expect_result(cuMemMap(space, GRANULARITY, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
	expect_result(cuMemsetD8Async(space, 1, GRANULARITY, NULL), CUDA_ERROR_INVALID_VALUE);
	expect_result(cuMemSetAccess(space, 2 * GRANULARITY, &whole_access, 1), CUDA_ERROR_INVALID_VALUE);
	expect_ok(cuMemSetAccess(space, GRANULARITY, &whole_access, 1));

	/* An import of the memory's own fd maps the same bytes, and forms one range with the first mapping if
	 * it lies next to it. */
	expect_ok(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	expect_ok(cuMemImportFromShareableHandle(&again, (void *)(intptr_t)fd,
	                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
	expect_ok(cuMemGetAllocationPropertiesFromHandle(&properties, again));
	cr_expect_eq(properties.type, CU_MEM_ALLOCATION_TYPE_PINNED);
	cr_expect_eq(properties.location.id, 0);
	expect_ok(cuMemMap(space + GRANULARITY, GRANULARITY, 0, again, 0));
	expect_ok(cuMemSetAccess(space, 2 * GRANULARITY, &whole_access, 1));
	expect_ok(cuMemsetD8Async(space + GRANULARITY, 6, GRANULARITY, NULL));
	cr_expect(soft_is(space, 2 * GRANULARITY, 6));
	expect_ok(cuMemGetAddressRange(&base, &size, space + GRANULARITY + 5));
	cr_expect_eq(base, space + GRANULARITY);
	cr_expect_eq(size, GRANULARITY);

	expect_ok(cuMemRelease(handle));
	expect_result(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
	expect_ok(cuMemRetainAllocationHandle(&handle, (void *)(space + 7)));
	expect_ok(cuMemRelease(handle));
	expect_ok(cuMemRelease(again));
	expect_result(cuMemAddressFree(space, 2 * GRANULARITY), CUDA_ERROR_INVALID_VALUE);
	expect_result(cuMemUnmap(space, 2 * GRANULARITY), CUDA_ERROR_INVALID_VALUE);
	expect_ok(cuMemUnmap(space, GRANULARITY));
	expect_ok(cuMemUnmap(space + GRANULARITY, GRANULARITY));
	expect_ok(cuMemAddressFree(space, 2 * GRANULARITY));
}

Test(soft_memory, fds_that_are_not_the_drivers, .init = soft_open, .fini = soft_close)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr memory = soft_memory(GRANULARITY, 0);
	int fds[] = { open("/dev/null", O_RDWR), memfd_create("other", 0), -1, 1000000 };
	for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
		expect_result(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fds[i],
		                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
		              CUDA_ERROR_UNKNOWN);
		if (fds[i] >= 0)
			close(fds[i]);
	}
	expect_ok(cuMemFree(memory));
}

/* ---- Another process ---------------------------------------------------------------------------------- */

/* Runs peer, which adds one to every byte of the memory that its arguments name, and returns whether it
 * could. */
static bool peer_can(const char *arguments)
{
	char text[512];
	return soft_child(text, sizeof text, "", arguments) == 0;
}

static void print_handle(char *ret, size_t size, const CUipcMemHandle *handle)
{
	size_t at = (size_t)snprintf(ret, size, "peer ipc ");
	for (size_t i = 0; i < sizeof *handle; i++)
		at += (size_t)snprintf(ret + at, size - at, "%02x", ((const unsigned char *)handle)[i]);
}

Test(soft_memory, ipc, .init = soft_open, .fini = soft_close)
{
	CUdeviceptr memory = soft_memory(SIZE, 3), address;
	CUipcMemHandle handle, broken;
	char arguments[256];
	expect_ok(cuIpcGetMemHandle(&handle, memory));
	expect_result(cuIpcOpenMemHandle(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
	              CUDA_ERROR_INVALID_CONTEXT);
	print_handle(arguments, sizeof arguments, &handle);
	cr_expect(peer_can(arguments));
	cr_expect(soft_is(memory, SIZE, 4));
	broken = handle;
	broken.reserved[0] ^= 1;
	expect_result(cuIpcOpenMemHandle(&address, broken, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
	              CUDA_ERROR_INVALID_HANDLE);
	expect_result(cuIpcCloseMemHandle(memory), CUDA_ERROR_INVALID_VALUE);
	expect_ok(cuMemFree(memory));

	/* The next memory may get the same fd number. */
	memory = soft_memory(SIZE, 3);
	cr_expect_not(peer_can(arguments), "the peer opened memory that is gone");
	cr_expect(soft_is(memory, SIZE, 3));
	expect_ok(cuMemFree(memory));
}

Test(soft_memory, fd_to_another_process, .init = soft_open, .fini = soft_close)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr space;
	char arguments[64];
	int fd;
	expect_ok(cuMemCreate(&handle, GRANULARITY, &shareable, 0));
	expect_ok(cuMemAddressReserve(&space, GRANULARITY, 0, 0, 0));
	expect_ok(cuMemMap(space, GRANULARITY, 0, handle, 0));
	expect_ok(cuMemSetAccess(space, GRANULARITY, &whole_access, 1));
	expect_ok(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	expect_ok(cuMemRelease(handle));
	expect_ok(cuMemsetD8Async(space, 3, GRANULARITY, NULL));
	expect_ok(cuStreamSynchronize(NULL));
	cr_assert_eq(fcntl(fd, F_SETFD, 0), 0);
	snprintf(arguments, sizeof arguments, "peer fd %d %u", fd, GRANULARITY);
	cr_expect(peer_can(arguments));
	cr_expect(soft_is(space, GRANULARITY, 4));
	close(fd);
	expect_ok(cuMemUnmap(space, GRANULARITY));
	expect_ok(cuMemAddressFree(space, GRANULARITY));
}
