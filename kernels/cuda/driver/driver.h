/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA driver, found at run time: libcuda.so.1 by dlopen, its entry points by cuGetProcAddress. Nothing
 * is linked, so the same program starts on a machine without a driver.
 */
#ifndef KERNELS_CUDA_DRIVER_DRIVER_H
#define KERNELS_CUDA_DRIVER_DRIVER_H

#include <cuda.h>

#include "proto/status.h"

#define DRIVER_LIBRARY "libcuda.so.1"

/* A field a function, by the name that cuda.h gives it (which may be a macro for a versioned one: both here
 * and where it is called the same). */
struct driver {
#define DRIVER(name, version) __typeof__(&name) name;
#include "driver.def"
	void *library;
};

/* Filled by driver_open; read from any thread after it. */
extern struct driver driver;

/* Loads the library and every entry point, and cuInit. UNSUPPORTED with one sentence when there is none, it
 * is too old (the entry point is named), or there is no device. Only once open; a second call does nothing.
 * From any thread.
 */
int driver_open(struct error *err);

/* For tests: so that it can be opened again. */
void driver_close(void);

/* The status that a result means: 0, NO_MEMORY, INVALID_ARGUMENT, UNSUPPORTED, DEVICE_LOST
 * (driver_is_sticky), DEVICE for the rest. */
int driver_status(CUresult result);

/* Whether the context is lost with it: nothing that follows can succeed in this process. */
int driver_is_sticky(CUresult result);

/* Puts "<call>: <CUDA_ERROR_NAME> (<what it means>)" into err; returns driver_status(result). */
int driver_fail(struct error *err, CUresult result, const char *call);

/* driver_call(err, cuMemFree, (p)): 0, or the error with the call's text. */
#define driver_call(err, function, arguments) \
	driver_check(err, driver.function arguments, #function #arguments)

/* A non-blocking stream. Blocks of a stream of a higher priority run before those of one of a lower as soon
 * as there is room for them, whatever else is under way. */
enum stream_priority { STREAM_LOWEST, STREAM_MIDDLE, STREAM_HIGHEST };
int driver_stream(CUstream *ret, enum stream_priority priority, struct error *err);

static inline int driver_check(struct error *err, CUresult result, const char *call)
{
	return result == CUDA_SUCCESS ? 0 : driver_fail(err, result, call);
}

#endif
