/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory of this process, by its pointer: which allocation it is in, and a handle for the service. And
 * the other way: memory of others, mapped in this process.
 *
 * The CUDA driver is found at run time, and what is called of it is declared here: the library builds and
 * runs without CUDA.
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

typedef int device_result; /* CUresult: 0 is success */

/* What of CUmemAllocationProp counts here. */
struct device_properties {
	int type;
	int handle_types;
	int location_type;
	int location_id;
	char rest[112];
};

/* CUuuid, which is passed by pointer. */
struct device_uuid {
	uint8_t bytes[16];
};

/* CUmemAccessDesc. */
struct device_access {
	int location_type;
	int location_id;
	int flags;
};

/* CUipcMemHandle, which is passed by value. */
struct device_handle {
	uint8_t bytes[DEVICE_HANDLE_BYTES];
};

/* The driver's functions, by their names. */
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

	/* NULL in a driver that does not have them. */
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

/* An allocation at its addresses in this process. */
struct device_span {
	uint64_t start;
	uint64_t size;
	uint64_t id; /* the driver's, which no later allocation has; 0: not known */
};

/* An allocation for the service to map. */
struct device_export {
	enum region_kind kind;               /* CUDA_FD, CUDA_IPC or CUDA_POOL */
	int fd;                              /* CUDA_FD, CUDA_POOL: the caller's to close; else -1 */
	uint8_t handle[DEVICE_HANDLE_BYTES]; /* CUDA_IPC; CUDA_POOL: the exported pointer */
	char device[DEVICE_UUID_TEXT];
};

/* UNSUPPORTED when there is no driver, or one without these functions. */
int device_driver_open(struct device_driver *ret, struct error *err);
void device_driver_close(struct device_driver *driver);

/* STATUS_DEVICE, with what failed and the driver's name of the result. */
int device_fail(const struct device_driver *driver, device_result result, const char *what,
                struct error *err);

/* The allocations that hold size bytes from pointer on, in their order; *ret is the caller's to free.
 * INVALID_ARGUMENT when pointer is no device memory, OUT_OF_RANGE when the memory ends before the range does.
 */
int device_walk(const struct device_driver *driver, const void *pointer, size_t size,
                struct device_span **ret, size_t *ret_n, struct error *err);

/* UNSUPPORTED when it cannot be exported. */
int device_export(const struct device_driver *driver, const struct device_span *span,
                  struct device_export *ret, struct error *err);

/* The UUID of a device, by its number. */
device_result device_uuid_text(const struct device_driver *driver, int ordinal, char ret[DEVICE_UUID_TEXT]);

/* The UUID of the device that the allocation is on. */
int device_name(const struct device_driver *driver, uint64_t address, char ret[DEVICE_UUID_TEXT],
                struct error *err);

/* ---- device_map.c ---------------------------------------------------------------------------------- */

/* Memory of others at addresses of this process. The primary context of its device is retained for it. */
struct device_mapping {
	uint64_t start;
	uint64_t size; /* bytes; 0: nothing is mapped */
	int device;    /* CUdevice; -1: it is host memory */
	bool is_ipc;   /* opened by a handle: size says no more than that there is something */
};

/* CUDA's number, in this process, of the device that has the UUID; NOT_FOUND when this process sees none
 * such. */
int device_ordinal(const struct device_driver *driver, const char *uuid, int *ret, struct error *err);

/* Maps an allocation of cuMemCreate, of at least size bytes up to the device's granularity, for reading and
 * writing by the device. The caller keeps fd. */
int device_map_fd(const struct device_driver *driver, int ordinal, int fd, uint64_t size,
                  struct device_mapping *ret, struct error *err);

/* Opens the allocation of a CUDA IPC handle. */
int device_map_ipc(const struct device_driver *driver, int ordinal, const uint8_t handle[DEVICE_HANDLE_BYTES],
                   struct device_mapping *ret, struct error *err);

void device_unmap(const struct device_driver *driver, const struct device_mapping *mapping);

/* ---- What an address tells --------------------------------------------------------------------------- */

/* The driver's id of the allocation at the address; 0: none that it tells. */
uint64_t device_id(const struct device_driver *driver, uint64_t address);

/* Whether the allocation that was there still is, as far as its id tells. */
bool device_is_current(const struct device_driver *driver, const struct device_span *span);

#endif
