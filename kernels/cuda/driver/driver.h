/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA driver is loaded at run time: libcuda.so.1 by dlopen, its functions by cuGetProcAddress. Nothing
 * is linked, so the same program starts on a machine without a driver. A device is a GPU with a context into
 * which the kernels have been loaded. */
#ifndef KERNELS_CUDA_DRIVER_DRIVER_H
#define KERNELS_CUDA_DRIVER_DRIVER_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/strategy/plan.h"
#include "kernels/engine.h"
#include "proto/status.h"

#define DRIVER_LIBRARY "libcuda.so.1"

/* One field for each driver function, named as in cuda.h. There the name may be a macro for a versioned name;
 * such a macro applies to the field and to the calls alike. */
struct driver {
#define DRIVER(name, version) __typeof__(&name) name;
#include "driver.def"
	void *library;
};

/* driver_open fills it; from then on any thread may read it. */
extern struct driver driver;

/* Loads the library and every function, and calls cuInit. Returns UNSUPPORTED with a one-sentence reason if
 * there is no library, if it is too old (the reason names the missing function), or if there is no device.
 * Does nothing once it has succeeded. Any thread may call it. */
int driver_open(struct error *err);

/* Unloads the driver. Outside driver.c only tests call this, before they open the driver again. */
void driver_close(void);

/* Returns the status for a driver result: 0, NO_MEMORY, INVALID_ARGUMENT, UNSUPPORTED, DEVICE_LOST if
 * driver_is_sticky, or DEVICE for all others. */
int driver_status(CUresult result);

/* Returns whether the result means that the context is unusable, so that no later call can succeed in this
 * process. */
int driver_is_sticky(CUresult result);

/* Writes "<call>: <CUDA_ERROR_NAME> (<its meaning>)" to err, and returns driver_status(result). */
int driver_fail(struct error *err, CUresult result, const char *call);

/* driver_call(err, cuMemFree, (p)) calls the driver and returns 0 or an error whose message contains the text
 * of the call. */
#define driver_call(err, function, arguments) \
	driver_check(err, driver.function arguments, #function #arguments)

/* Creates a non-blocking stream. Thread blocks of a stream of higher priority run before those of lower
 * priority as soon as there is room for them, whatever else is under way. */
enum stream_priority { STREAM_LOWEST, STREAM_MIDDLE, STREAM_HIGHEST };
int driver_stream(CUstream *ret, enum stream_priority priority, struct error *err);

/* Rows of equal length, for a copy between host and device. host and device are the addresses of the first
 * row, host_step and device_step the bytes from one row to the next, bytes the length of a row, and n the
 * number of rows. */
struct copied_rows {
	uint64_t host, device;
	uint64_t host_step, device_step;
	uint64_t bytes, n;
};

/* Enqueues a copy of rows between pinned host memory and a device, to the host if is_out. Returns 0 or the
 * driver's error. */
int driver_copy_rows(const struct copied_rows *rows, bool is_out, CUstream stream, struct error *err);

static inline int driver_check(struct error *err, CUresult result, const char *call)
{
	return result == CUDA_SUCCESS ? 0 : driver_fail(err, result, call);
}

/* Returns 1 if the device has reached the event, 0 if it has not, or DEVICE_LOST: a device whose events
 * cannot be queried is treated as lost. */
int driver_query(CUevent event, struct error *err);

/* Maps zeroed pages, applies `advice` (of madvise) to them, and pins them with `flags` (of
 * cuMemHostRegister). Sets *ret to the pages. Returns 0, NO_MEMORY or the driver's error. */
int driver_pin(void **ret, size_t size, int advice, unsigned flags, struct error *err);

/* Unpins and unmaps pages of driver_pin; NULL is allowed. Pages that cannot be unpinned stay mapped, because
 * the device may still use them. */
void driver_unpin(void *pages, size_t size);

/* ---- While a program captures a stream ----------------------------------------------------------------- */

/* While this thread captures a stream, or any thread captures one in global mode, the driver refuses calls
 * that a graph cannot contain, such as allocations and queries, and invalidates the capture. Calls that have
 * nothing to do with the capture are made between capture_allow and capture_restore. */

/* Allows such calls on this thread. Returns the previous mode, for capture_restore. */
static inline CUstreamCaptureMode capture_allow(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	driver.cuThreadExchangeStreamCaptureMode(&mode);
	return mode;
}

static inline void capture_restore(CUstreamCaptureMode before)
{
	driver.cuThreadExchangeStreamCaptureMode(&before);
}

/* Sets *ret to the graph into which the stream is being captured, or to NULL. Returns 0, or the driver's
 * error. */
static inline int capture_graph(CUstream stream, CUgraph *ret, struct error *err)
{
	CUstreamCaptureStatus status;
	int r = driver_call(err, cuStreamGetCaptureInfo, (stream, &status, NULL, ret, NULL, NULL, NULL));

	if (r == 0 && status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		*ret = NULL;
	return r;
}

/* Returns whether the stream is being captured, or whether the driver cannot tell. */
static inline bool stream_is_captured(CUstream stream)
{
	struct error ignored;
	CUgraph graph;

	return capture_graph(stream, &graph, &ignored) < 0 || graph;
}

/* ---- Devices ------------------------------------------------------------------------------------------- */

/* Kernels, and the images (units) that contain them, are numbered in the order of kernels.def. */
enum kernel_id {
#define KERNEL(name, args) KERNEL_##name,
#include "kernels/cuda/launch/kernels.def"
	KERNEL_COUNT
};

enum kernel_unit {
#define UNIT(name) UNIT_##name,
#include "kernels/cuda/launch/kernels.def"
	UNIT_COUNT
};

/* A GPU and its context. Any thread may read it between device_open or device_adopt and device_close. */
struct device {
	int ordinal; /* number by which the driver counts the device */
	char name[128];
	char uuid[48]; /* such as "GPU-3f2a9c11-..." */
	int major;     /* compute capability */
	int minor;
	/* NVIDIA's Multi-Process Service runs the context beside those of other processes. */
	bool by_mps;
	uint32_t processors; /* number of streaming multiprocessors */
	uint32_t l2_bytes;
	uint32_t window_bytes; /* maximum number of bytes for which a launch can reserve room in the L2 cache;
	                          0: none */
	uint64_t memory_bytes;
	struct copy_speed copy;
	uint32_t shared_bytes; /* maximum number of bytes of shared memory that a thread block can have */
	int driver_version;    /* CUDA version of the driver: 1000 * major + 10 * minor */
	unsigned serial;       /* unique among all devices that this process has opened */
	CUdevice handle;
	CUcontext context; /* the device's primary context or, if is_adopted, one of the program's */
	bool is_adopted;
	CUmodule module[UNIT_COUNT];
	CUfunction function[KERNEL_COUNT]; /* each may be launched with all of shared_bytes */
};

/* Opens the driver and a GPU, and makes its context current in the calling thread. `which` is an ordinal
 * ("1"), a UUID or the beginning of one with or without "GPU-" ("MIG-" for a MIG device), or NULL for the
 * first GPU that is new enough. Returns 0, UNSUPPORTED if there is no driver or no GPU of compute capability
 * 9.0 or newer, NOT_FOUND if no GPU is the one named, INVALID_ARGUMENT if several are, or the driver's error.
 * After a failure there is nothing to close. */
int device_open(struct device *ret, const char *which, struct error *err);

/* Loads the kernels into a context of the program's that is current in the calling thread. The device can be
 * used until the program destroys that context. Returns 0, UNSUPPORTED or the driver's error. After a failure
 * there is nothing to close. */
int device_adopt(struct device *ret, CUcontext context, struct error *err);

/* Unloads the kernels, and releases the context unless it was adopted. The calling thread may have any
 * context current; afterwards it has none, unless the device was adopted. */
void device_close(struct device *device);

/* Makes the device's context current in the calling thread. Returns 0, or the driver's error. */
int device_enter(const struct device *device, struct error *err);

/* Returns whether the last device_enter of this thread was for this device. */
bool device_is_entered(const struct device *device);

/* Opens the driver. Returns the number of devices, or an error. */
int device_count(struct error *err);

/* Returns 0 if the device can access the other one's memory, UNSUPPORTED if not, or the driver's error. */
int device_check_reach(const struct device *device, CUdevice other, struct error *err);

/* Gives the device access to all memory in the other one's context. The device's own context must be current.
 * Memory that is imported, or was made by cuMemCreate, does not need this. Returns 0, UNSUPPORTED or the
 * driver's error. */
int device_reach(const struct device *device, const struct device *other, struct error *err);

/* Sets *ret to the link to the device with that UUID. Leaves *ret unchanged if there is no link or no such
 * device. */
void device_link(const struct device *device, const char *uuid, struct engine_link *ret);

#endif
