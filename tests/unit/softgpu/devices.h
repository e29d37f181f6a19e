/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of a host with several GPUs: the stand-in driver with all devices open, and short ways
 * to do what a test does not look at. Failures are Criterion's. */
#ifndef TESTS_UNIT_SOFTGPU_DEVICES_H
#define TESTS_UNIT_SOFTGPU_DEVICES_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MOST        8
#define GRANULARITY ((size_t)2 << 20)

extern CUcontext context[MOST];

/* Sets an environment variable, NAME=VALUE; "": none. Call it before devices_open. */
void devices_set(const char *variable);

/* Retains the primary contexts of n devices and makes the first one's current. */
void devices_open(int n);

/* Closes the devices. Fails unless everything has been given back. It cannot be called after a device was
 * lost. */
void devices_close(void);

/* Expects the call to return `wanted`. */
#define expect_result(call, wanted) devices_expect(call, wanted, #call, __LINE__)
#define expect_ok(call)             expect_result(call, CUDA_SUCCESS)
void devices_expect(CUresult result, CUresult wanted, const char *call, int line);

/* Makes that device's context current. */
void use(int device);

/* Returns memory of the device in which every byte has the value, and leaves the device's context current. */
CUdeviceptr memory_of(int device, size_t size, unsigned char value);
bool memory_is(CUdeviceptr address, size_t size, unsigned char value);

/* These belong to the current context. */
CUstream new_stream(void);
CUevent new_event(void);

/* Memory of a device that is created and mapped by the virtual memory calls, with access for no device.
 * map_of makes it, and unmap gives it back. */
struct mapped {
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
};
struct mapped map_of(int device);
void unmap(struct mapped *mapped);
CUmemAccessDesc access_of(int device, CUmemAccess_flags flags);

/* What a kernel does with 4 KiB, and to which memory. */
enum touch {
	TOUCH_READ,
	TOUCH_WRITE,
	TOUCH_ADD,
	TOUCH_BULK_LOAD,
	TOUCH_BULK_STORE,
	TOUCH_TILE_LOAD,
	TOUCH_TILE_STORE,
	TOUCHES
};
extern const char *const touch_names[TOUCHES];
#define TOUCH_BYTES 4096

/* Runs the kernel in the default stream of a device. `there` is the memory that it touches, and `own` memory
 * of the device. Returns the result of the launch or, if that succeeds, of waiting for it, and leaves the
 * device's context current. */
CUresult touch(int device, enum touch what, CUdeviceptr there, CUdeviceptr own);

#endif
