/* SPDX-License-Identifier: Apache-2.0 */
/* Maps device memory of others in this process: allocations of cuMemCreate by their descriptors, and those of
 * cuMemAlloc by their IPC handles. Both are mapped in the primary context of their device, which is the one
 * that the CUDA runtime uses. */
#include "device.h"

#include <string.h>

/* Constants of cuda.h. */
enum {
	ALLOCATION_TYPE_PINNED = 1,
	LOCATION_TYPE_DEVICE = 1,
	HANDLE_TYPE_FD = 1,
	GRANULARITY_MINIMUM = 0,
	ACCESS_READ_WRITE = 3,
	IPC_LAZY_PEER_ACCESS = 1,
};

int device_ordinal(const struct device_driver *driver, const char *uuid, int *ret, struct error *err)
{
	char text[DEVICE_UUID_TEXT];
	int ordinal = 0;

	while (device_uuid_text(driver, ordinal, text) == 0 && strcmp(text, uuid) != 0)
		ordinal++;
	if (device_uuid_text(driver, ordinal, text) != 0)
		return error_set(err, STATUS_NOT_FOUND,
		                 "region: its device %s is none of the %d that this process has; see "
		                 "CUDA_VISIBLE_DEVICES",
		                 uuid, ordinal);
	*ret = ordinal;
	return 0;
}

/* ---- The primary context ---------------------------------------------------------------------------- */

/* Retains the device's primary context and makes it current. The caller calls context_leave, and releases the
 * context unless the mapping keeps it. */
static int context_enter(const struct device_driver *driver, int ordinal, int *ret_device, struct error *err)
{
	void *context = NULL;
	int device = -1;
	device_result result = driver->cuDeviceGet(&device, ordinal);

	if (!result)
		result = driver->cuDevicePrimaryCtxRetain(&context, device);
	if (result)
		return device_fail(driver, result, "region: cuDevicePrimaryCtxRetain", err);
	result = driver->cuCtxPushCurrent(context);
	if (result) {
		driver->cuDevicePrimaryCtxRelease(device);
		return device_fail(driver, result, "region: cuCtxPushCurrent", err);
	}
	*ret_device = device;
	return 0;
}

static void context_leave(const struct device_driver *driver)
{
	void *context;

	driver->cuCtxPopCurrent(&context);
}

/* ---- Memory ----------------------------------------------------------------------------------------- */

/* Maps the whole allocation; mapping->size is a multiple of the device's granularity. */
static int map_allocation(const struct device_driver *driver, uint64_t allocation,
                          struct device_mapping *mapping, struct error *err)
{
	const struct device_access access = { LOCATION_TYPE_DEVICE, mapping->device, ACCESS_READ_WRITE };
	device_result result = driver->cuMemAddressReserve(&mapping->start, mapping->size, 0, 0, 0);

	if (result)
		return device_fail(driver, result, "region: cuMemAddressReserve", err);
	result = driver->cuMemMap(mapping->start, mapping->size, 0, allocation, 0);
	if (result) {
		driver->cuMemAddressFree(mapping->start, mapping->size);
		return device_fail(driver, result, "region: cuMemMap", err);
	}
	result = driver->cuMemSetAccess(mapping->start, mapping->size, &access, 1);
	if (result) {
		driver->cuMemUnmap(mapping->start, mapping->size);
		driver->cuMemAddressFree(mapping->start, mapping->size);
		return device_fail(driver, result, "region: cuMemSetAccess", err);
	}
	return 0;
}

static int import(const struct device_driver *driver, int fd, uint64_t size, struct device_mapping *mapping,
                  struct error *err)
{
	const struct device_properties properties = { .type = ALLOCATION_TYPE_PINNED,
		                                      .handle_types = HANDLE_TYPE_FD,
		                                      .location_type = LOCATION_TYPE_DEVICE,
		                                      .location_id = mapping->device };
	uint64_t allocation = 0;
	size_t unit = 0;
	device_result result = driver->cuMemGetAllocationGranularity(&unit, &properties, GRANULARITY_MINIMUM);
	int r;

	if (result)
		return device_fail(driver, result, "region: cuMemGetAllocationGranularity", err);
	mapping->size = (size + unit - 1) / unit * unit;
	result = driver->cuMemImportFromShareableHandle(&allocation, (void *)(intptr_t)fd, HANDLE_TYPE_FD);
	if (result)
		return device_fail(driver, result, "region: cuMemImportFromShareableHandle", err);
	r = map_allocation(driver, allocation, mapping, err);
	driver->cuMemRelease(allocation); /* The mapping keeps the allocation. */
	return r;
}

int device_map_fd(const struct device_driver *driver, int ordinal, int fd, uint64_t size,
                  struct device_mapping *ret, struct error *err)
{
	struct device_mapping mapping = { 0 };
	int r = context_enter(driver, ordinal, &mapping.device, err);

	if (r < 0)
		return r;
	r = import(driver, fd, size, &mapping, err);
	context_leave(driver);
	if (r < 0)
		driver->cuDevicePrimaryCtxRelease(mapping.device);
	else
		*ret = mapping;
	return r;
}

int device_map_ipc(const struct device_driver *driver, int ordinal, const uint8_t handle[DEVICE_HANDLE_BYTES],
                   struct device_mapping *ret, struct error *err)
{
	struct device_mapping mapping = { .size = 1, .is_ipc = true };
	struct device_handle key;
	device_result result;
	int r = context_enter(driver, ordinal, &mapping.device, err);

	if (r < 0)
		return r;
	memcpy(key.bytes, handle, sizeof key.bytes);
	result = driver->cuIpcOpenMemHandle(&mapping.start, key, IPC_LAZY_PEER_ACCESS);
	context_leave(driver);
	if (result) {
		driver->cuDevicePrimaryCtxRelease(mapping.device);
		return device_fail(driver, result, "region: cuIpcOpenMemHandle", err);
	}
	*ret = mapping;
	return 0;
}

void device_unmap(const struct device_driver *driver, const struct device_mapping *mapping)
{
	void *context = NULL;

	/* The mapping has retained the context already; this only looks it up. */
	if (driver->cuDevicePrimaryCtxRetain(&context, mapping->device) == 0) {
		driver->cuCtxPushCurrent(context);
		if (mapping->is_ipc) {
			driver->cuIpcCloseMemHandle(mapping->start);
		} else {
			driver->cuMemUnmap(mapping->start, mapping->size);
			driver->cuMemAddressFree(mapping->start, mapping->size);
		}
		context_leave(driver);
		driver->cuDevicePrimaryCtxRelease(mapping->device);
	}
	driver->cuDevicePrimaryCtxRelease(mapping->device);
}
