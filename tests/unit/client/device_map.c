/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the mapping of other processes' device memory, against a driver of the test: whatever call fails,
 * nothing is left. */
#include "client/device.h"

#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#define UNIT    4096
#define ADDRESS UINT64_C(0x7f0000000000)

enum { SUCCESS = 0, INVALID_VALUE = 1, FAILS = 201 };

/* Numbers of each that exist at the moment. */
static int contexts, pushed, allocations, reserved, mapped, opened;
static const char *failing; /* name of the call that fails; NULL: none */

static device_result outcome(const char *call)
{
	return failing && strcmp(failing, call) == 0 ? FAILS : SUCCESS;
}

static device_result count(const char *call, int *counter)
{
	device_result result = outcome(call);

	*counter += result == SUCCESS;
	return result;
}

static device_result get_error_name(device_result result, const char **ret)
{
	*ret = result == FAILS ? "CUDA_ERROR_THAT" : NULL;
	return SUCCESS;
}

/* There are two devices, whose handles differ from their ordinals. */
static device_result get_device(int *ret, int ordinal)
{
	*ret = 70 + ordinal;
	return ordinal < 2 ? SUCCESS : INVALID_VALUE;
}

static device_result get_uuid(struct device_uuid *ret, int device)
{
	memset(ret->bytes, device == 70 ? 0xa0 : 0xa1, sizeof ret->bytes);
	return SUCCESS;
}

static device_result retain(void **ret, int device)
{
	cr_assert_eq(device, 71);
	*ret = &contexts;
	return count("cuDevicePrimaryCtxRetain", &contexts);
}

static device_result release(int device)
{
	cr_assert_eq(device, 71);
	contexts--;
	return SUCCESS;
}

static device_result push(void *context)
{
	cr_assert_eq(context, &contexts);
	return count("cuCtxPushCurrent", &pushed);
}

static device_result pop(void **ret)
{
	*ret = &contexts;
	pushed--;
	return SUCCESS;
}

static device_result get_granularity(size_t *ret, const struct device_properties *properties, int option)
{
	cr_assert(properties->type == 1 && properties->handle_types == 1 && option == 0);
	cr_assert(properties->location_type == 1 && properties->location_id == 71);
	*ret = UNIT;
	return outcome("cuMemGetAllocationGranularity");
}

static device_result import(uint64_t *ret, void *os_handle, int type)
{
	cr_assert((intptr_t)os_handle == 5 && type == 1 && pushed == 1);
	*ret = 77;
	return count("cuMemImportFromShareableHandle", &allocations);
}

static device_result release_allocation(uint64_t allocation)
{
	cr_assert_eq(allocation, 77);
	allocations--;
	return SUCCESS;
}

static device_result reserve(uint64_t *ret, size_t size, size_t alignment, uint64_t hint, uint64_t flags)
{
	cr_assert(size == 2 * UNIT && alignment == 0 && hint == 0 && flags == 0);
	*ret = ADDRESS;
	return count("cuMemAddressReserve", &reserved);
}

static device_result free_address(uint64_t start, size_t size)
{
	cr_assert(start == ADDRESS && size == 2 * UNIT && mapped == 0);
	reserved--;
	return SUCCESS;
}

static device_result map(uint64_t start, size_t size, size_t offset, uint64_t allocation, uint64_t flags)
{
	cr_assert(start == ADDRESS && size == 2 * UNIT && offset == 0 && allocation == 77 && flags == 0);
	return count("cuMemMap", &mapped);
}

static device_result unmap(uint64_t start, size_t size)
{
	cr_assert(start == ADDRESS && size == 2 * UNIT && pushed == 1);
	mapped--;
	return SUCCESS;
}

static device_result set_access(uint64_t start, size_t size, const struct device_access *access, size_t n)
{
	cr_assert(start == ADDRESS && size == 2 * UNIT && n == 1);
	cr_assert(access->location_type == 1 && access->location_id == 71 && access->flags == 3);
	return outcome("cuMemSetAccess");
}

static device_result open_handle(uint64_t *ret, struct device_handle handle, unsigned flags)
{
	cr_assert(handle.bytes[0] == 9 && handle.bytes[63] == 9 && flags == 1 && pushed == 1);
	*ret = ADDRESS;
	return count("cuIpcOpenMemHandle", &opened);
}

static device_result close_handle(uint64_t pointer)
{
	cr_assert(pointer == ADDRESS && pushed == 1);
	opened--;
	return SUCCESS;
}

static const struct device_driver driver = {
	.cuGetErrorName = get_error_name,
	.cuMemRelease = release_allocation,
	.cuDeviceGet = get_device,
	.cuDeviceGetUuid = get_uuid,
	.cuCtxPushCurrent = push,
	.cuCtxPopCurrent = pop,
	.cuDevicePrimaryCtxRetain = retain,
	.cuDevicePrimaryCtxRelease = release,
	.cuIpcOpenMemHandle = open_handle,
	.cuIpcCloseMemHandle = close_handle,
	.cuMemGetAllocationGranularity = get_granularity,
	.cuMemImportFromShareableHandle = import,
	.cuMemAddressReserve = reserve,
	.cuMemAddressFree = free_address,
	.cuMemMap = map,
	.cuMemUnmap = unmap,
	.cuMemSetAccess = set_access,
};

struct map_row {
	char failing[32]; /* "": no call fails */
	bool is_ipc;
};

ParameterizedTestParameters(device_map, what_fails)
{
	static struct map_row rows[] = {
		{ "", false },
		{ "cuDevicePrimaryCtxRetain", false },
		{ "cuCtxPushCurrent", false },
		{ "cuMemGetAllocationGranularity", false },
		{ "cuMemImportFromShareableHandle", false },
		{ "cuMemAddressReserve", false },
		{ "cuMemMap", false },
		{ "cuMemSetAccess", false },
		{ "", true },
		{ "cuDevicePrimaryCtxRetain", true },
		{ "cuCtxPushCurrent", true },
		{ "cuIpcOpenMemHandle", true },
	};

	return cr_make_param_array(struct map_row, rows, sizeof rows / sizeof rows[0]);
}

static void assert_nothing_left(const struct map_row *row)
{
	cr_assert(contexts == 0 && allocations == 0 && reserved == 0 && mapped == 0 && opened == 0,
	          "%s: %d contexts, %d allocations, %d reservations, %d mappings, %d handles", row->failing,
	          contexts, allocations, reserved, mapped, opened);
}

ParameterizedTest(struct map_row *row, device_map, what_fails)
{
	struct device_mapping mapping = { .size = 12345 };
	uint8_t handle[DEVICE_HANDLE_BYTES];
	struct error err = { 0 };
	char words[64];
	int r;

	memset(handle, 9, sizeof handle);
	failing = row->failing[0] ? row->failing : NULL;
	r = row->is_ipc ? device_map_ipc(&driver, 1, handle, &mapping, &err)
	                : device_map_fd(&driver, 1, 5, UNIT + 1, &mapping, &err);
	cr_assert_eq(pushed, 0, "%s: the thread's context is another one", row->failing);
	cr_assert_eq(allocations, 0, "%s: the mapping alone keeps the allocation", row->failing);
	if (failing) {
		snprintf(words, sizeof words, "region: %s: CUDA_ERROR_THAT", failing);
		cr_assert_eq(r, STATUS_DEVICE);
		cr_assert_str_eq(err.message, words);
		cr_assert_eq(mapping.size, 12345, "%s", failing);
	} else {
		cr_assert_eq(r, 0, "%s", err.message);
		cr_assert(mapping.start == ADDRESS && mapping.device == 71);
		cr_assert(contexts == 1 && opened == row->is_ipc && mapped == !row->is_ipc);
		device_unmap(&driver, &mapping);
		cr_assert_eq(pushed, 0);
	}
	assert_nothing_left(row);
}

Test(device_map, a_device_by_its_uuid)
{
	struct error err = { 0 };
	int ordinal = -7;

	cr_assert_eq(device_ordinal(&driver, "GPU-a1a1a1a1-a1a1-a1a1-a1a1-a1a1a1a1a1a1", &ordinal, &err), 0);
	cr_assert_eq(ordinal, 1);
	cr_assert_eq(device_ordinal(&driver, "GPU-a0a0a0a0-a0a0-a0a0-a0a0-a0a0a0a0a0a0", &ordinal, &err), 0);
	cr_assert_eq(ordinal, 0);
	cr_assert_eq(device_ordinal(&driver, "GPU-1", &ordinal, &err), STATUS_NOT_FOUND);
	cr_assert_str_eq(err.message, "region: its device GPU-1 is none of the 2 that this process has; see "
	                              "CUDA_VISIBLE_DEVICES");
	cr_assert_eq(ordinal, 0);
}
