/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the allocations behind a range of addresses, and exports them: one of cuMemCreate as a descriptor,
 * one of cuMemAlloc (cudaMalloc) as an IPC handle, and one of a pool (cudaMallocAsync) as the pool's
 * descriptor and a pointer. Anything else is refused with an error that says what it is. */
#include "device.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Constants of cuda.h. */
enum {
	RESULT_INVALID_VALUE = 1,

	POINTER_CONTEXT = 1,
	POINTER_MEMORY_TYPE = 2,
	POINTER_BUFFER_ID = 7,
	POINTER_IS_MANAGED = 8,
	POINTER_DEVICE_ORDINAL = 9,
	POINTER_IS_IPC_CAPABLE = 10,
	POINTER_POOL = 17,

	MEMORY_TYPE_HOST = 1,
	LOCATION_TYPE_DEVICE = 1,
	HANDLE_TYPE_FD = 1,
};

static int check_memory(const struct device_driver *driver, uint64_t pointer, struct error *err);
static int find_spans(const struct device_driver *driver, uint64_t pointer, size_t size,
                      struct device_span **ret, size_t *ret_n, struct error *err);
static int export_fd(const struct device_driver *driver, uint64_t allocation, struct device_export *ret,
                     struct error *err);
static int export_pool(const struct device_driver *driver, void *pool, uint64_t base,
                       struct device_export *ret, struct error *err);
static int export_ipc(const struct device_driver *driver, uint64_t base, struct device_export *ret,
                      struct error *err);

/* ---- The driver ------------------------------------------------------------------------------------- */

/* Names of the driver's functions as its library exports them. `version` is the suffix of the version that
 * has the signature in device.h. */
static const struct symbol {
	const char *name;
	size_t offset;
	bool is_optional;
} symbols[] = {
#define SYMBOL(name, version)                                              \
	{                                                                  \
#name version, offsetof(struct device_driver, name), false \
	}
#define OPTIONAL_SYMBOL(name, version)                                    \
	{                                                                 \
#name version, offsetof(struct device_driver, name), true \
	}
	SYMBOL(cuInit, ""),
	SYMBOL(cuGetErrorName, ""),
	SYMBOL(cuPointerGetAttribute, ""),
	SYMBOL(cuMemGetAddressRange, "_v2"),
	SYMBOL(cuMemRetainAllocationHandle, ""),
	SYMBOL(cuMemGetAllocationPropertiesFromHandle, ""),
	SYMBOL(cuMemExportToShareableHandle, ""),
	SYMBOL(cuMemRelease, ""),
	SYMBOL(cuIpcGetMemHandle, ""),
	SYMBOL(cuDeviceGet, ""),
	SYMBOL(cuDeviceGetUuid, "_v2"),
	SYMBOL(cuCtxPushCurrent, "_v2"),
	SYMBOL(cuCtxPopCurrent, "_v2"),
	SYMBOL(cuDevicePrimaryCtxRetain, ""),
	SYMBOL(cuDevicePrimaryCtxRelease, "_v2"),
	SYMBOL(cuIpcOpenMemHandle, "_v2"),
	SYMBOL(cuIpcCloseMemHandle, ""),
	SYMBOL(cuMemGetAllocationGranularity, ""),
	SYMBOL(cuMemImportFromShareableHandle, ""),
	SYMBOL(cuMemAddressReserve, ""),
	SYMBOL(cuMemAddressFree, ""),
	SYMBOL(cuMemMap, ""),
	SYMBOL(cuMemUnmap, ""),
	SYMBOL(cuMemSetAccess, ""),
	OPTIONAL_SYMBOL(cuMemPoolExportToShareableHandle, ""),
	OPTIONAL_SYMBOL(cuMemPoolExportPointer, ""),
	OPTIONAL_SYMBOL(cuStreamWriteValue64, "_v2"),
	OPTIONAL_SYMBOL(cuStreamWaitValue64, "_v2"),
	OPTIONAL_SYMBOL(cuStreamIsCapturing, ""),
	OPTIONAL_SYMBOL(cuStreamSynchronize, ""),
	OPTIONAL_SYMBOL(cuMemHostRegister, "_v2"),
	OPTIONAL_SYMBOL(cuMemHostUnregister, ""),
	OPTIONAL_SYMBOL(cuMemHostGetDevicePointer, "_v2"),
};

int device_fail(const struct device_driver *driver, device_result result, const char *what, struct error *err)
{
	const char *name = NULL;

	driver->cuGetErrorName(result, &name);
	return error_set(err, STATUS_DEVICE, "%s: %s", what, name ? name : "an unknown error");
}

int device_driver_open(struct device_driver *ret, struct error *err)
{
	struct device_driver driver = { .library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL) };
	device_result result;
	void *address;

	if (!driver.library)
		return error_set(err, STATUS_UNSUPPORTED, "there is no CUDA driver here: %s", dlerror());
	for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
		address = dlsym(driver.library, symbols[i].name);
		if (!address && !symbols[i].is_optional) {
			device_driver_close(&driver);
			return error_set(err, STATUS_UNSUPPORTED,
			                 "the CUDA driver here has no %s: it is too old", symbols[i].name);
		}
		memcpy((char *)&driver + symbols[i].offset, &address, sizeof address);
	}
	result = driver.cuInit(0);
	if (result) {
		device_fail(&driver, result, "cuInit", err);
		device_driver_close(&driver);
		return err->status;
	}
	*ret = driver;
	return 0;
}

void device_driver_close(struct device_driver *driver)
{
	dlclose(driver->library);
}

/* ---- Memory ----------------------------------------------------------------------------------------- */

/* Makes the context of the memory current, because the thread may have another one current, or none. Returns
 * the context for context_pop, or NULL if nothing was pushed; memory of cuMemCreate belongs to no context. */
static void *context_push(const struct device_driver *driver, uint64_t pointer)
{
	void *context = NULL;

	if (driver->cuPointerGetAttribute(&context, POINTER_CONTEXT, pointer))
		return NULL;
	return context && driver->cuCtxPushCurrent(context) ? NULL : context;
}

static void context_pop(const struct device_driver *driver, void *context)
{
	if (context)
		driver->cuCtxPopCurrent(&context);
}

int device_walk(const struct device_driver *driver, const void *pointer, size_t size,
                struct device_span **ret, size_t *ret_n, struct error *err)
{
	device_result result;
	void *context = NULL;
	int r;

	if (size == 0)
		return error_set(err, STATUS_INVALID_ARGUMENT, "size: a region has at least 1 byte, not 0");
	result = driver->cuPointerGetAttribute(&context, POINTER_CONTEXT, (uintptr_t)pointer);
	if (result && result != RESULT_INVALID_VALUE)
		return device_fail(driver, result, "device_ptr: cuPointerGetAttribute", err);
	if (result)
		return error_set(
		    err, STATUS_INVALID_ARGUMENT,
		    "device_ptr: %p is not memory that CUDA knows; register host memory as a memfd "
		    "(tma_region_register_memfd)",
		    pointer);
	context = context_push(driver, (uintptr_t)pointer);
	r = check_memory(driver, (uintptr_t)pointer, err);
	if (r == 0)
		r = find_spans(driver, (uintptr_t)pointer, size, ret, ret_n, err);
	context_pop(driver, context);
	return r;
}

static int export_span(const struct device_driver *driver, const struct device_span *span,
                       struct device_export *ret, struct error *err)
{
	uint64_t allocation = 0;
	void *pool = NULL;
	int r = device_name(driver, span->start, ret->device, err);

	if (r < 0)
		return r;
	if (driver->cuMemRetainAllocationHandle(&allocation, (void *)(uintptr_t)span->start)) {
		if (driver->cuPointerGetAttribute(&pool, POINTER_POOL, span->start) == 0 && pool)
			return export_pool(driver, pool, span->start, ret, err);
		return export_ipc(driver, span->start, ret, err);
	}
	r = export_fd(driver, allocation, ret, err);
	driver->cuMemRelease(allocation);
	return r;
}

int device_export(const struct device_driver *driver, const struct device_span *span,
                  struct device_export *ret, struct error *err)
{
	struct device_export export = { .fd = -1 };
	void *context = context_push(driver, span->start);
	int r = export_span(driver, span, &export, err);

	context_pop(driver, context);
	if (r == 0)
		*ret = export;
	return r;
}

bool device_is_current(const struct device_driver *driver, const struct device_span *span)
{
	return !span->id || device_id(driver, span->start) == span->id;
}

static int check_memory(const struct device_driver *driver, uint64_t pointer, struct error *err)
{
	unsigned type = 0, managed = 0;

	driver->cuPointerGetAttribute(&managed, POINTER_IS_MANAGED, pointer);
	if (managed)
		return error_set(err, STATUS_UNSUPPORTED,
		                 "device_ptr: managed memory (cudaMallocManaged) cannot be shared between "
		                 "processes; use cudaMalloc");
	driver->cuPointerGetAttribute(&type, POINTER_MEMORY_TYPE, pointer);
	if (type == MEMORY_TYPE_HOST)
		return error_set(
		    err, STATUS_INVALID_ARGUMENT,
		    "device_ptr: it is host memory; share it as a memfd (tma_region_register_memfd)");
	return 0;
}

uint64_t device_id(const struct device_driver *driver, uint64_t address)
{
	uint64_t id = 0;

	return driver->cuPointerGetAttribute(&id, POINTER_BUFFER_ID, address) ? 0 : id;
}

static bool add_span(struct device_span **spans, size_t *n, struct device_span span)
{
	struct device_span *grown = *spans;

	if ((*n & (*n - 1)) == 0) /* An array whose length is 0 or a power of two is full. */
		grown = realloc(grown, (*n ? 2 * *n : 1) * sizeof *grown);
	if (!grown)
		return false;
	*spans = grown;
	grown[(*n)++] = span;
	return true;
}

/* Walks the allocations, each of which must start where the one before ends. If the driver knows no
 * allocation at the address where the next one should start, the memory has a gap there. */
static int find_spans(const struct device_driver *driver, uint64_t pointer, size_t size,
                      struct device_span **ret, size_t *ret_n, struct error *err)
{
	struct device_span *spans = NULL;
	uint64_t at = pointer;
	size_t n = 0, left = size;

	while (left > 0) {
		uint64_t start = 0;
		size_t whole = 0;
		device_result result = driver->cuMemGetAddressRange(&start, &whole, at);

		if (result && n == 0)
			return device_fail(driver, result, "device_ptr: cuMemGetAddressRange", err);
		if (result || at - start >= whole || (n > 0 && start != at)) {
			free(spans);
			return error_set(
			    err, STATUS_OUT_OF_RANGE,
			    "size: %zu bytes from device_ptr exceed its memory, which has %zu more, to "
			    "address %#" PRIx64,
			    size, size - left, at);
		}
		if (!add_span(&spans, &n, (struct device_span){ start, whole, device_id(driver, start) })) {
			free(spans);
			return error_set(err, STATUS_NO_MEMORY, "out of memory for %zu allocations", n);
		}
		whole -= at - start;
		at += whole;
		left -= whole < left ? whole : left;
	}
	*ret = spans;
	*ret_n = n;
	return 0;
}

device_result device_uuid_text(const struct device_driver *driver, int ordinal, char ret[DEVICE_UUID_TEXT])
{
	struct device_uuid uuid;
	const uint8_t *b = uuid.bytes;
	int device = -1;
	device_result result = driver->cuDeviceGet(&device, ordinal);

	if (!result)
		result = driver->cuDeviceGetUuid(&uuid, device);
	if (result)
		return result;
	snprintf(ret, DEVICE_UUID_TEXT,
	         "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2],
	         b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
	return 0;
}

int device_name(const struct device_driver *driver, uint64_t pointer, char ret[DEVICE_UUID_TEXT],
                struct error *err)
{
	int ordinal = -1;
	device_result result = driver->cuPointerGetAttribute(&ordinal, POINTER_DEVICE_ORDINAL, pointer);

	if (!result)
		result = device_uuid_text(driver, ordinal, ret);
	return result ? device_fail(driver, result, "device_ptr: its device cannot be determined", err) : 0;
}

static int export_fd(const struct device_driver *driver, uint64_t allocation, struct device_export *ret,
                     struct error *err)
{
	struct device_properties properties = { 0 };
	device_result result = driver->cuMemGetAllocationPropertiesFromHandle(&properties, allocation);

	if (result)
		return device_fail(driver, result, "device_ptr: cuMemGetAllocationPropertiesFromHandle", err);
	if (properties.location_type != LOCATION_TYPE_DEVICE)
		return error_set(err, STATUS_UNSUPPORTED,
		                 "device_ptr: the allocation is not on a device (location type %d)",
		                 properties.location_type);
	if (!(properties.handle_types & HANDLE_TYPE_FD))
		return error_set(
		    err, STATUS_UNSUPPORTED,
		    "device_ptr: the allocation cannot be exported; make it with requestedHandleTypes "
		    "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR (cuMemCreate)");
	result = driver->cuMemExportToShareableHandle(&ret->fd, allocation, HANDLE_TYPE_FD, 0);
	if (result) {
		ret->fd = -1;
		return device_fail(driver, result, "device_ptr: cuMemExportToShareableHandle", err);
	}
	ret->kind = REGION_KIND_CUDA_FD;
	return 0;
}

/* The driver returns CUDA_ERROR_INVALID_VALUE for a pool without handle types, such as the device's default
 * pool. */
static int export_pool(const struct device_driver *driver, void *pool, uint64_t base,
                       struct device_export *ret, struct error *err)
{
	device_result result;

	if (!driver->cuMemPoolExportToShareableHandle || !driver->cuMemPoolExportPointer)
		return error_set(
		    err, STATUS_UNSUPPORTED,
		    "device_ptr: memory from a pool (cudaMallocAsync) cannot be shared with this "
		    "driver: it is too old");
	result = driver->cuMemPoolExportToShareableHandle(&ret->fd, pool, HANDLE_TYPE_FD, 0);
	if (result == RESULT_INVALID_VALUE)
		return error_set(
		    err, STATUS_UNSUPPORTED,
		    "device_ptr: its pool (cudaMallocAsync) cannot be exported, as the device's default pool "
		    "never can; make one with handleTypes CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR "
		    "(cudaMemPoolCreate), or use cudaMalloc");
	if (result) {
		ret->fd = -1;
		return device_fail(driver, result, "device_ptr: cuMemPoolExportToShareableHandle", err);
	}
	result = driver->cuMemPoolExportPointer(ret->handle, base);
	if (result) {
		close(ret->fd);
		ret->fd = -1;
		return device_fail(driver, result, "device_ptr: cuMemPoolExportPointer", err);
	}
	ret->kind = REGION_KIND_CUDA_POOL;
	return 0;
}

static int export_ipc(const struct device_driver *driver, uint64_t base, struct device_export *ret,
                      struct error *err)
{
	unsigned capable = 1;
	device_result result;

	driver->cuPointerGetAttribute(&capable, POINTER_IS_IPC_CAPABLE, base);
	if (!capable)
		return error_set(
		    err, STATUS_UNSUPPORTED,
		    "device_ptr: memory of this kind has no CUDA IPC handles; use cudaMalloc, or cuMemCreate "
		    "with POSIX file descriptors");
	result = driver->cuIpcGetMemHandle(ret->handle, base);
	if (result)
		return device_fail(driver, result, "device_ptr: cuIpcGetMemHandle", err);
	ret->kind = REGION_KIND_CUDA_IPC;
	return 0;
}
