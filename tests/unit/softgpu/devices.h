/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of a host with several GPUs share: the stand-in driver with all devices open, and short ways to
 * do what is not looked at. Failures are Criterion's. */
#ifndef TESTS_UNIT_SOFTGPU_DEVICES_H
#define TESTS_UNIT_SOFTGPU_DEVICES_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MOST        8
#define GRANULARITY ((size_t)2 << 20)

extern CUcontext context[MOST];

/* NAME=VALUE, "" for none: before devices_open. */
void devices_set(const char *variable);

/* Retains so many; the first one's context is current. */
void devices_open(int n);

/* Everything has to have been given back. Not after a device was lost. */
void devices_close(void);

/* The call has to answer that. */
#define expect_result(call, wanted) devices_expect(call, wanted, #call, __LINE__)
#define expect_ok(call)             expect_result(call, CUDA_SUCCESS)
void devices_expect(CUresult result, CUresult wanted, const char *call, int line);

/* Makes that device's context current. */
void use(int device);

/* Memory of that device, every byte of that value; the device is current then. */
CUdeviceptr memory_of(int device, size_t size, unsigned char value);
bool memory_is(CUdeviceptr address, size_t size, unsigned char value);

/* Of the current context. */
CUstream new_stream(void);
CUevent new_event(void);

/* Memory of a device by hand, mapped, with access for nobody; and back. */
struct mapped {
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;
};
struct mapped map_of(int device);
void unmap(struct mapped *mapped);
CUmemAccessDesc access_of(int device, CUmemAccess_flags flags);

/* What a kernel does with 4 KiB, and with which memory. */
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

/* Runs it on a device, in its default stream: own is memory of its own, there what is touched. What the
 * launch, or waiting for it, answers. The device is current then. */
CUresult touch(int device, enum touch what, CUdeviceptr there, CUdeviceptr own);

#endif
