/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA driver is found at run time: libcuda.so.1 by dlopen, its entry points by cuGetProcAddress. Nothing
 * is linked, so the same program starts on a machine without a driver. A device is a GPU with a context in
 * which the kernels are loaded. */
#ifndef KERNELS_CUDA_DRIVER_DRIVER_H
#define KERNELS_CUDA_DRIVER_DRIVER_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/strategy/plan.h"
#include "kernels/engine.h"
#include "proto/status.h"

#define DRIVER_LIBRARY "libcuda.so.1"

/* There is a field for each function, by the name that cuda.h gives it. The name may be a macro for a
 * versioned one, and then is so where the function is called, too. */
struct driver {
#define DRIVER(name, version) __typeof__(&name) name;
#include "driver.def"
	void *library;
};

/* driver_open fills it; after that any thread may read it. */
extern struct driver driver;

/* Loads the library and every entry point, and calls cuInit. Returns UNSUPPORTED with one sentence if there
 * is no library, if it is too old (then the missing entry point is named), or if there is no device. Once it
 * has succeeded further calls do nothing. Any thread may call it. */
int driver_open(struct error *err);

/* Tests call this before they open it again. */
void driver_close(void);

/* Returns the status that a result means: 0, NO_MEMORY, INVALID_ARGUMENT, UNSUPPORTED, DEVICE_LOST
 * (driver_is_sticky), DEVICE for the rest. */
int driver_status(CUresult result);

/* Returns whether the context is lost with it, so that nothing that follows can succeed in this process. */
int driver_is_sticky(CUresult result);

/* Puts "<call>: <CUDA_ERROR_NAME> (<what it means>)" into err; returns driver_status(result). */
int driver_fail(struct error *err, CUresult result, const char *call);

/* driver_call(err, cuMemFree, (p)) returns 0, or the error with the call's text. */
#define driver_call(err, function, arguments) \
	driver_check(err, driver.function arguments, #function #arguments)

/* Makes a non-blocking stream. Blocks of a stream of a higher priority run before those of one of a lower as
 * soon as there is room for them, whatever else is under way. */
enum stream_priority { STREAM_LOWEST, STREAM_MIDDLE, STREAM_HIGHEST };
int driver_stream(CUstream *ret, enum stream_priority priority, struct error *err);

/* Rows of equal length. host and device are the addresses of the first one, host_step and device_step the
 * bytes from one row to the next, bytes the length of a row, n how many there are. */
struct copied_rows {
	uint64_t host, device;
	uint64_t host_step, device_step;
	uint64_t bytes, n;
};

/* Enqueues a copy of rows between pinned memory of the host and a device; is_out: to the host. Returns 0 or
 * the driver's error. */
int driver_copy_rows(const struct copied_rows *rows, bool is_out, CUstream stream, struct error *err);

static inline int driver_check(struct error *err, CUresult result, const char *call)
{
	return result == CUDA_SUCCESS ? 0 : driver_fail(err, result, call);
}

/* Returns 1 if the device has come to the event, 0 if it has not yet, or DEVICE_LOST: a device whose events
 * cannot be asked is given up. */
int driver_query(CUevent event, struct error *err);

/* Maps zeroed pages, pins them with these flags of cuMemHostRegister, and gives them this advice (madvise).
 * Returns 0, NO_MEMORY or the driver's error. */
int driver_pin(void **ret, size_t size, int advice, unsigned flags, struct error *err);

/* Unpins and unmaps such pages, which may be NULL. If they cannot be unpinned they stay mapped, because the
 * device may still use them. */
void driver_unpin(void *pages, size_t size);

/* ---- While a program captures a stream ----------------------------------------------------------------- */

/* While this thread captures, or any thread captures in global mode, the driver refuses calls that a graph
 * cannot hold, such as allocations and queries, and the capture is lost. Calls that have nothing to do with
 * the capture are made between capture_allow and capture_restore. */

/* Allows such calls on this thread. Returns the mode for capture_restore. */
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

/* Sets *ret to the graph that the stream is being captured into, or to NULL. Returns 0, or the driver's
 * error. */
static inline int capture_graph(CUstream stream, CUgraph *ret, struct error *err)
{
	CUstreamCaptureStatus status;
	int r = driver_call(err, cuStreamGetCaptureInfo, (stream, &status, NULL, ret, NULL, NULL, NULL));

	if (r == 0 && status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		*ret = NULL;
	return r;
}

/* Returns whether the stream is being captured, or may be, as far as the driver tells. */
static inline bool stream_is_captured(CUstream stream)
{
	struct error ignored;
	CUgraph graph;

	return capture_graph(stream, &graph, &ignored) < 0 || graph;
}

/* ---- Devices ------------------------------------------------------------------------------------------- */

/* The kernels and the images that hold them are numbered in the order of kernels.def. */
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

/* Any thread may read it between open and close. */
struct device {
	int ordinal; /* by the driver's count */
	char name[128];
	char uuid[48]; /* "GPU-3f2a9c11-..." */
	int major;     /* compute capability */
	int minor;
	bool by_mps;         /* The context is shared by NVIDIA's Multi-Process Service. */
	uint32_t processors; /* streaming multiprocessors */
	uint32_t l2_bytes;
	uint32_t window_bytes; /* bytes at most that a launch can give a place in the L2; 0: none */
	uint64_t memory_bytes;
	struct copy_speed copy;
	uint32_t shared_bytes; /* bytes of shared memory that one block can be given at most */
	int driver_version;    /* CUDA version of the driver: 1000 * major + 10 * minor */
	unsigned serial;       /* number that no other device of the process has or had */
	CUdevice handle;
	CUcontext context; /* the primary context, or one of the program (is_adopted) */
	bool is_adopted;
	CUmodule module[UNIT_COUNT];
	CUfunction function[KERNEL_COUNT]; /* may be launched with all of shared_bytes */
};

/* Opens the driver and a GPU, and makes its context current in the calling thread. `which` is an ordinal
 * ("1"), a UUID or the start of one with or without "GPU-" ("MIG-" for a MIG device), or NULL for the first
 * that is new enough. Returns UNSUPPORTED without a driver or a GPU of compute capability 9.0, or NOT_FOUND
 * if no GPU is the one named. On failure there is nothing to close. */
int device_open(struct device *ret, const char *which, struct error *err);

/* Loads the kernels into a context that the program has made and that is current in the calling thread. The
 * device can be used until the program destroys that context. Returns 0, UNSUPPORTED or the driver's error.
 */
int device_adopt(struct device *ret, CUcontext context, struct error *err);

/* May be called by a thread that has any context current. Afterwards none is current, unless the device was
 * adopted. */
void device_close(struct device *device);

/* Makes the context current in the calling thread. */
int device_enter(const struct device *device, struct error *err);

/* Returns whether it is current, by the last device_enter of this thread. */
bool device_is_entered(const struct device *device);

/* Opens the driver and returns how many devices there are. */
int device_count(struct error *err);

/* Returns 0 if the device may touch memory of the other one, or UNSUPPORTED. */
int device_check_reach(const struct device *device, CUdevice other, struct error *err);

/* Does the same, and lets it touch all that the other one's context has. Its own context is current. Memory
 * that is imported, or was made by cuMemCreate, needs none of this. */
int device_reach(const struct device *device, const struct device *other, struct error *err);

/* Sets *ret to the link to the device with that UUID, or leaves it as it is if there is none. */
void device_link(const struct device *device, const char *uuid, struct engine_link *ret);

#endif
