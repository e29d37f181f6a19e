/* SPDX-License-Identifier: Apache-2.0 */
/* Tests device memory that is given by its pointer, against a driver of the test: how each kind is exported,
 * and what is said of memory that cannot be. */
#include "client/device.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#define BASE  UINT64_C(0x7f0000000000)
#define WHOLE 8192

enum {
	SUCCESS = 0,
	INVALID_VALUE = 1,
	INVALID_CONTEXT = 201,
};

/* Describes the memory at BASE, and what goes wrong. */
struct memory_row {
	char name[32];
	uint64_t offset;
	size_t size;
	bool unknown; /* the driver does not know the address */
	unsigned type;
	bool managed;
	bool mapped; /* by cuMemCreate and cuMemMap */
	int handle_types;
	int location_type;
	bool pooled;
	int pool_fails;
	bool handleless;
	bool old; /* the driver is too old */
	bool contextless;
	bool has_next; /* another allocation follows at once */
	int range_fails;
	int device_fails;
	int export_fails;
	int status;
	char error[64];
};

static struct memory_row memory;
static int pushed, retained;

static device_result get_error_name(device_result result, const char **ret)
{
	*ret = result == INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT" : NULL;
	return *ret ? SUCCESS : INVALID_VALUE;
}

static device_result get_attribute(void *ret, int attribute, uint64_t pointer)
{
	if (memory.unknown || pointer < BASE || pointer >= BASE + (memory.has_next ? 2 : 1) * WHOLE)
		return INVALID_VALUE;
	switch (attribute) {
	case 1:
		*(void **)ret = memory.contextless ? NULL : &memory;
		return SUCCESS;
	case 2:
		*(unsigned *)ret = memory.type ? memory.type : 2;
		return SUCCESS;
	case 7:
		*(uint64_t *)ret = 500 + (pointer - BASE) / WHOLE;
		return SUCCESS;
	case 8:
		*(unsigned *)ret = memory.managed;
		return SUCCESS;
	case 9:
		*(int *)ret = 3;
		return memory.device_fails;
	case 10:
		*(unsigned *)ret = !memory.handleless;
		return SUCCESS;
	case 17:
		*(void **)ret = memory.pooled ? &memory : NULL;
		return SUCCESS;
	default:
		return INVALID_VALUE;
	}
}

static device_result get_address_range(uint64_t *ret_base, size_t *ret_size, uint64_t pointer)
{
	cr_assert_eq(pushed, !memory.contextless, "%s: in the memory's context", memory.name);
	if (pointer >= BASE + (memory.has_next ? 2 : 1) * WHOLE)
		return INVALID_VALUE;
	*ret_base = BASE + (pointer - BASE) / WHOLE * WHOLE;
	*ret_size = WHOLE;
	return memory.range_fails;
}

static device_result retain_allocation(uint64_t *ret, void *address)
{
	cr_assert_eq((uintptr_t)address, BASE);
	if (!memory.mapped)
		return INVALID_VALUE;
	retained++;
	*ret = 77;
	return SUCCESS;
}

static device_result get_properties(struct device_properties *ret, uint64_t handle)
{
	cr_assert_eq(handle, 77);
	*ret = (struct device_properties){ .type = 1,
		                           .handle_types = memory.handle_types,
		                           .location_type = memory.location_type };
	return SUCCESS;
}

static device_result export_allocation(void *ret, uint64_t handle, int type, uint64_t flags)
{
	cr_assert(handle == 77 && type == 1 && flags == 0);
	*(int *)ret = 99;
	return memory.export_fails;
}

static device_result release_allocation(uint64_t handle)
{
	cr_assert_eq(handle, 77);
	retained--;
	return SUCCESS;
}

static device_result get_ipc_handle(uint8_t ret[DEVICE_HANDLE_BYTES], uint64_t pointer)
{
	cr_assert_eq(pointer, BASE, "%s: a handle is of the whole allocation", memory.name);
	memset(ret, 0x11, DEVICE_HANDLE_BYTES);
	return memory.export_fails;
}

static int exported = -1; /* descriptor of a pool, which has to be closed or handed out; -1: none */

static device_result export_pool(void *ret, void *pool, int type, uint64_t flags)
{
	cr_assert(pool == &memory && type == 1 && flags == 0);
	if (memory.pool_fails)
		return memory.pool_fails;
	exported = dup(2);
	*(int *)ret = exported;
	return SUCCESS;
}

static device_result export_pointer(uint8_t ret[DEVICE_HANDLE_BYTES], uint64_t pointer)
{
	cr_assert_eq(pointer, BASE, "%s: a pointer is of the whole allocation", memory.name);
	memset(ret, 0x22, DEVICE_HANDLE_BYTES);
	return memory.export_fails;
}

static device_result get_device(int *ret, int ordinal)
{
	cr_assert_eq(ordinal, 3);
	*ret = 30;
	return SUCCESS;
}

static device_result get_uuid(struct device_uuid *ret, int device)
{
	cr_assert_eq(device, 30);
	for (int i = 0; i < 16; i++)
		ret->bytes[i] = (uint8_t)(i * 16 + 15 - i);
	return SUCCESS;
}

static device_result push(void *context)
{
	cr_assert_eq(context, &memory);
	pushed++;
	return SUCCESS;
}

static device_result pop(void **ret)
{
	*ret = &memory;
	pushed--;
	return SUCCESS;
}

static struct device_driver driver = {
	.cuGetErrorName = get_error_name,
	.cuPointerGetAttribute = get_attribute,
	.cuMemGetAddressRange = get_address_range,
	.cuMemRetainAllocationHandle = retain_allocation,
	.cuMemGetAllocationPropertiesFromHandle = get_properties,
	.cuMemExportToShareableHandle = export_allocation,
	.cuMemRelease = release_allocation,
	.cuIpcGetMemHandle = get_ipc_handle,
	.cuDeviceGet = get_device,
	.cuDeviceGetUuid = get_uuid,
	.cuCtxPushCurrent = push,
	.cuCtxPopCurrent = pop,
	.cuMemPoolExportToShareableHandle = export_pool,
	.cuMemPoolExportPointer = export_pointer,
};

ParameterizedTestParameters(device, memory)
{
	static struct memory_row rows[] = {
		{ .name = "cudaMalloc", .size = WHOLE },
		{ .name = "inside of cudaMalloc", .offset = 100, .size = WHOLE - 100 },
		{ .name = "cuMemCreate",
		  .offset = 5,
		  .size = 1,
		  .mapped = true,
		  .handle_types = 1,
		  .location_type = 1,
		  .contextless = true },
		{ .name = "cuMemCreate, other handles too",
		  .size = WHOLE,
		  .mapped = true,
		  .handle_types = 9,
		  .location_type = 1 },
		{ .name = "nothing",
		  .size = 0,
		  .status = STATUS_INVALID_ARGUMENT,
		  .error = "size: a region has" },
		{ .name = "unknown",
		  .size = 1,
		  .unknown = true,
		  .status = STATUS_INVALID_ARGUMENT,
		  .error = "is not memory that CUDA knows" },
		{ .name = "host memory",
		  .size = 1,
		  .type = 1,
		  .status = STATUS_INVALID_ARGUMENT,
		  .error = "it is host memory" },
		{ .name = "managed memory",
		  .size = 1,
		  .managed = true,
		  .status = STATUS_UNSUPPORTED,
		  .error = "cudaMallocManaged" },
		{ .name = "a byte too many",
		  .offset = 1,
		  .size = WHOLE,
		  .status = STATUS_OUT_OF_RANGE,
		  .error = "8192 bytes from device_ptr exceed its memory" },
		{ .name = "a size past everything",
		  .offset = 1,
		  .size = SIZE_MAX,
		  .status = STATUS_OUT_OF_RANGE,
		  .error = "has 8191 more, to address 0x7f0000002000" },
		{ .name = "a byte too many after two",
		  .offset = 1,
		  .size = 2 * WHOLE,
		  .has_next = true,
		  .status = STATUS_OUT_OF_RANGE,
		  .error = "has 16383 more, to address 0x7f0000004000" },
		{ .name = "of a pool", .offset = 100, .size = 1, .pooled = true, .contextless = true },
		{ .name = "of the default pool",
		  .size = 1,
		  .pooled = true,
		  .pool_fails = INVALID_VALUE,
		  .status = STATUS_UNSUPPORTED,
		  .error = "its pool (cudaMallocAsync) cannot be exported" },
		{ .name = "no descriptor of the pool",
		  .size = 1,
		  .pooled = true,
		  .pool_fails = INVALID_CONTEXT,
		  .status = STATUS_DEVICE,
		  .error = "cuMemPoolExportToShareableHandle: CUDA_ERROR" },
		{ .name = "no pointer into the pool",
		  .size = 1,
		  .pooled = true,
		  .export_fails = INVALID_CONTEXT,
		  .status = STATUS_DEVICE,
		  .error = "cuMemPoolExportPointer: CUDA_ERROR" },
		{ .name = "of a pool, an old driver",
		  .size = 1,
		  .pooled = true,
		  .old = true,
		  .status = STATUS_UNSUPPORTED,
		  .error = "it is too old" },
		{ .name = "without handles",
		  .size = 1,
		  .handleless = true,
		  .status = STATUS_UNSUPPORTED,
		  .error = "has no CUDA IPC handles" },
		{ .name = "not exportable",
		  .size = 1,
		  .mapped = true,
		  .location_type = 1,
		  .status = STATUS_UNSUPPORTED,
		  .error = "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR" },
		{ .name = "not on a device",
		  .size = 1,
		  .mapped = true,
		  .handle_types = 1,
		  .location_type = 3,
		  .status = STATUS_UNSUPPORTED,
		  .error = "location type 3" },
		{ .name = "no range",
		  .size = 1,
		  .range_fails = INVALID_CONTEXT,
		  .status = STATUS_DEVICE,
		  .error = "cuMemGetAddressRange: CUDA_ERROR_INVALID_CONTEXT" },
		{ .name = "no device",
		  .size = 1,
		  .device_fails = INVALID_CONTEXT,
		  .status = STATUS_DEVICE,
		  .error = "its device cannot be determined" },
		{ .name = "no handle",
		  .size = 1,
		  .export_fails = 999,
		  .status = STATUS_DEVICE,
		  .error = "cuIpcGetMemHandle: an unknown error" },
		{ .name = "no descriptor",
		  .size = 1,
		  .mapped = true,
		  .handle_types = 1,
		  .location_type = 1,
		  .export_fails = INVALID_CONTEXT,
		  .status = STATUS_DEVICE,
		  .error = "cuMemExportToShareableHandle: CUDA_ERROR" },
	};

	return cr_make_param_array(struct memory_row, rows, sizeof rows / sizeof rows[0]);
}

ParameterizedTest(struct memory_row *row, device, memory)
{
	struct device_export export = { .fd = -2 };
	struct device_span *spans = NULL;
	struct error err = { 0 };
	size_t n = 0;
	int r;

	memory = *row;
	exported = -1;
	driver.cuMemPoolExportPointer = row->old ? NULL : export_pointer;
	r = device_walk(&driver, (void *)(BASE + row->offset), row->size, &spans, &n, &err);
	if (r == 0) {
		cr_assert(n == 1 && spans[0].start == BASE && spans[0].size == WHOLE && spans[0].id == 500,
		          "%s", row->name);
		r = device_export(&driver, &spans[0], &export, &err);
	}
	free(spans);
	cr_assert_eq(r, row->status, "%s: %s", row->name, err.message);
	cr_assert_eq(pushed, 0, "%s: the context is popped", row->name);
	cr_assert_eq(retained, 0, "%s: the handle is released", row->name);
	if (row->status) {
		cr_assert_not_null(strstr(err.message, row->error), "%s: %s", row->name, err.message);
		cr_assert_eq(export.fd, -2, "%s: *ret has been touched", row->name);
		cr_assert(exported < 0 || fcntl(exported, F_GETFD) < 0, "%s: it is closed", row->name);
		return;
	}
	if (row->pooled) {
		cr_assert(export.kind == REGION_KIND_CUDA_POOL && export.fd == exported &&
		          export.handle[63] == 0x22);
		close(exported);
		return;
	}
	cr_assert_eq(export.kind, row->mapped ? REGION_KIND_CUDA_FD : REGION_KIND_CUDA_IPC, "%s", row->name);
	cr_assert_eq(export.fd, row->mapped ? 99 : -1, "%s", row->name);
	cr_assert_eq(export.handle[63], row->mapped ? 0 : 0x11, "%s", row->name);
	cr_assert_str_eq(export.device, "GPU-0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0", "%s", row->name);
}

Test(device, allocations_that_follow_one_another)
{
	struct device_span *spans = NULL;
	struct error err = { 0 };
	size_t n = 0;

	memory = (struct memory_row){ .name = "two", .mapped = true, .has_next = true };
	cr_assert_eq(device_walk(&driver, (void *)(BASE + WHOLE - 1), 2, &spans, &n, &err), 0, "%s",
	             err.message);
	cr_assert_eq(n, 2);
	for (size_t i = 0; i < n; i++)
		cr_assert(spans[i].start == BASE + i * WHOLE && spans[i].size == WHOLE &&
		          spans[i].id == 500 + i);
	cr_assert(device_is_current(&driver, &spans[1]));
	spans[1].id = 7;
	cr_assert_not(device_is_current(&driver, &spans[1]), "another allocation is there now");
	spans[1].id = 0;
	cr_assert(device_is_current(&driver, &spans[1]), "what has no id cannot be told apart");
	free(spans);
}

/* A machine that has a driver gives this test nothing to check. */
Test(device, no_driver)
{
	struct device_driver found;
	struct error err;
	int r = device_driver_open(&found, &err);

	if (r == 0)
		device_driver_close(&found);
	else
		cr_assert_gt(strlen(err.message), 0);
}
