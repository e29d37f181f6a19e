/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory of this process, found by its pointer: which allocations a range of addresses lies in, and
 * descriptors or handles by which the service can map them. Also maps memory that others have exported into
 * this process.
 *
 * The CUDA driver is loaded at run time and its types are declared here, so that the library builds and runs
 * without CUDA. Functions that return int return 0 or a negative status with err.
 */
#ifndef CLIENT_DEVICE_H
#define CLIENT_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/schema.h"
#include "proto/status.h"

#define DEVICE_HANDLE_BYTES 64
#define DEVICE_UUID_TEXT    48

typedef int device_result; /* A CUresult; 0 is success. */

/* CUmemAllocationProp; rest stands for the members that are not used here. */
struct device_properties {
	int type;
	int handle_types;
	int location_type;
	int location_id;
	char rest[112];
};

/* CUuuid, which the driver's functions take by pointer. */
struct device_uuid {
	uint8_t bytes[16];
};

/* CUmemAccessDesc. */
struct device_access {
	int location_type;
	int location_id;
	int flags;
};

/* CUipcMemHandle, which the driver's functions take by value. */
struct device_handle {
	uint8_t bytes[DEVICE_HANDLE_BYTES];
};

/* The driver's functions, loaded by device_driver_open. Each member has the name of its function. */
struct device_driver {
	void *library;
	device_result (*cuInit)(unsigned flags);
	device_result (*cuGetErrorName)(device_result result, const char **ret);
	device_result (*cuPointerGetAttribute)(void *ret, int attribute, uint64_t pointer);
	device_result (*cuMemGetAddressRange)(uint64_t *ret_base, size_t *ret_size, uint64_t pointer);
	device_result (*cuMemRetainAllocationHandle)(uint64_t *ret, void *address);
	device_result (*cuMemGetAllocationPropertiesFromHandle)(struct device_properties *ret,
	                                                        uint64_t handle);
	device_result (*cuMemExportToShareableHandle)(void *ret, uint64_t handle, int type, uint64_t flags);
	device_result (*cuMemRelease)(uint64_t handle);
	device_result (*cuIpcGetMemHandle)(uint8_t ret[DEVICE_HANDLE_BYTES], uint64_t pointer);
	device_result (*cuDeviceGet)(int *ret, int ordinal);
	device_result (*cuDeviceGetUuid)(struct device_uuid *ret, int device);
	device_result (*cuCtxPushCurrent)(void *context);
	device_result (*cuCtxPopCurrent)(void **ret);
	device_result (*cuDevicePrimaryCtxRetain)(void **ret, int device);
	device_result (*cuDevicePrimaryCtxRelease)(int device);
	device_result (*cuIpcOpenMemHandle)(uint64_t *ret, struct device_handle handle, unsigned flags);
	device_result (*cuIpcCloseMemHandle)(uint64_t pointer);
	device_result (*cuMemGetAllocationGranularity)(size_t *ret,
	                                               const struct device_properties *properties,
	                                               int option);
	device_result (*cuMemImportFromShareableHandle)(uint64_t *ret, void *os_handle, int type);
	device_result (*cuMemAddressReserve)(uint64_t *ret, size_t size, size_t alignment, uint64_t hint,
	                                     uint64_t flags);
	device_result (*cuMemAddressFree)(uint64_t start, size_t size);
	device_result (*cuMemMap)(uint64_t start, size_t size, size_t offset, uint64_t handle,
	                          uint64_t flags);
	device_result (*cuMemUnmap)(uint64_t start, size_t size);
	device_result (*cuMemSetAccess)(uint64_t start, size_t size, const struct device_access *access,
	                                size_t count);

	/* The following are NULL if the driver does not have them. */
	device_result (*cuMemPoolExportToShareableHandle)(void *ret, void *pool, int type, uint64_t flags);
	device_result (*cuMemPoolExportPointer)(uint8_t ret[DEVICE_HANDLE_BYTES], uint64_t pointer);
	device_result (*cuStreamWriteValue64)(void *stream, uint64_t address, uint64_t value, unsigned flags);
	device_result (*cuStreamWaitValue64)(void *stream, uint64_t address, uint64_t value, unsigned flags);
	device_result (*cuStreamIsCapturing)(void *stream, int *ret);
	device_result (*cuStreamSynchronize)(void *stream);
	device_result (*cuMemHostRegister)(void *start, size_t size, unsigned flags);
	device_result (*cuMemHostUnregister)(void *start);
	device_result (*cuMemHostGetDevicePointer)(uint64_t *ret, void *start, unsigned flags);
};

/* An allocation and its addresses in this process. */
struct device_span {
	uint64_t start;
	uint64_t size;
	uint64_t id; /* the driver's id (CU_POINTER_ATTRIBUTE_BUFFER_ID), which is never reused; 0: unknown */
};

/* Describes an allocation that the service is to map. */
struct device_export {
	enum region_kind kind; /* CUDA_FD, CUDA_IPC or CUDA_POOL */
	/* descriptor of the allocation (CUDA_FD) or its pool (CUDA_POOL), which the caller closes; otherwise
	 * -1 */
	int fd;
	/* the IPC handle (CUDA_IPC) or the exported pointer (CUDA_POOL) */
	uint8_t handle[DEVICE_HANDLE_BYTES];
	char device[DEVICE_UUID_TEXT];
};

/* Loads and initializes the driver. UNSUPPORTED: there is none, or it lacks a required function. */
int device_driver_open(struct device_driver *ret, struct error *err);
void device_driver_close(struct device_driver *driver);

/* Sets err to STATUS_DEVICE with the message "WHAT: NAME", where NAME is the driver's name of the result.
 * Returns STATUS_DEVICE. */
int device_fail(const struct device_driver *driver, device_result result, const char *what,
                struct error *err);

/* Finds the allocations that hold the size bytes at pointer, in address order. The caller frees *ret.
 * INVALID_ARGUMENT: pointer is not device memory. OUT_OF_RANGE: the memory ends before the range does. */
int device_walk(const struct device_driver *driver, const void *pointer, size_t size,
                struct device_span **ret, size_t *ret_n, struct error *err);

/* Exports an allocation. UNSUPPORTED: memory of its kind cannot be exported. */
int device_export(const struct device_driver *driver, const struct device_span *span,
                  struct device_export *ret, struct error *err);

/* Writes the UUID of the device with CUDA's number ordinal. Returns the driver's result. */
device_result device_uuid_text(const struct device_driver *driver, int ordinal, char ret[DEVICE_UUID_TEXT]);

/* Writes the UUID of the device that has the allocation at address. */
int device_name(const struct device_driver *driver, uint64_t address, char ret[DEVICE_UUID_TEXT],
                struct error *err);

/* ---- device_map.c ---------------------------------------------------------------------------------- */

/* Memory of others that is mapped in this process. It holds a reference to the primary context of its
 * device. */
struct device_mapping {
	uint64_t start;
	uint64_t size; /* bytes; 0: nothing is mapped */
	int device;    /* CUdevice; -1: the memory is host memory */
	bool is_ipc;   /* The memory was opened by an IPC handle; size is then 1 and is not its size. */
};

/* Sets *ret to the number that CUDA gives the device with this UUID in this process. NOT_FOUND: the process
 * does not see the device. */
int device_ordinal(const struct device_driver *driver, const char *uuid, int *ret, struct error *err);

/* Maps an allocation of cuMemCreate with read and write access for its device. size is the number of bytes
 * that the allocation was asked for; it is rounded up to the device's granularity. The caller keeps fd. */
int device_map_fd(const struct device_driver *driver, int ordinal, int fd, uint64_t size,
                  struct device_mapping *ret, struct error *err);

/* Maps the allocation of a CUDA IPC handle. */
int device_map_ipc(const struct device_driver *driver, int ordinal, const uint8_t handle[DEVICE_HANDLE_BYTES],
                   struct device_mapping *ret, struct error *err);

void device_unmap(const struct device_driver *driver, const struct device_mapping *mapping);

/* ---- What an address tells --------------------------------------------------------------------------- */

/* Returns the driver's id of the allocation at the address, or 0 if the driver tells none. */
uint64_t device_id(const struct device_driver *driver, uint64_t address);

/* Returns whether the allocation is still at its addresses. If its id is unknown, it is taken to be. */
bool device_is_current(const struct device_driver *driver, const struct device_span *span);

#endif
