/* SPDX-License-Identifier: Apache-2.0 */
/* Loads the driver, and says what its results mean. The table is either complete or empty: when an entry
 * point is missing the library is closed again, so nobody ever calls through a null pointer. */
#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct driver driver;
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

struct entry {
	const char *name;
	size_t offset; /* of its field */
	int version;
};

static const struct entry entries[] = {
#define DRIVER(name, version) { #name, offsetof(struct driver, name), version },
#include "driver.def"
};

static int fill(struct error *err);
static int start(struct error *err);

static int open_locked(struct error *err)
{
	if (driver.library)
		return 0;
	driver.library = dlopen(DRIVER_LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (!driver.library)
		return error_set(err, STATUS_UNSUPPORTED, "%s; is the NVIDIA driver installed?", dlerror());
	int r = fill(err);
	if (r == 0)
		r = start(err);
	if (r < 0)
		driver_close();
	return r;
}

int driver_open(struct error *err)
{
	pthread_mutex_lock(&opening);
	int r = open_locked(err);
	pthread_mutex_unlock(&opening);
	return r;
}

void driver_close(void)
{
	if (driver.library)
		dlclose(driver.library);
	driver = (struct driver){ 0 };
}

/* ---- Entry points ----------------------------------------------------------------------------------- */

static int too_old(const char *name, int version, struct error *err)
{
	int (*get_version)(int *) = dlsym(driver.library, "cuDriverGetVersion");
	int has = 0;
	if (get_version)
		get_version(&has);
	return error_set(err, STATUS_UNSUPPORTED,
	                 "%s: the driver supports CUDA %d.%d and lacks %s of CUDA %d.%d; install a newer one",
	                 DRIVER_LIBRARY, has / 1000, has % 1000 / 10, name, version / 1000,
	                 version % 1000 / 10);
}

static int fill(struct error *err)
{
	__typeof__(&cuGetProcAddress) find = dlsym(driver.library, "cuGetProcAddress_v2");
	CUdriverProcAddressQueryResult how;
	if (!find)
		return too_old("cuGetProcAddress_v2", 12000, err);
	for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
		const struct entry *entry = &entries[i];
		void *address = NULL;
		find(entry->name, &address, entry->version, CU_GET_PROC_ADDRESS_DEFAULT, &how);
		if (!address)
			return too_old(entry->name, entry->version, err);
		memcpy((char *)&driver + entry->offset, &address, sizeof address);
	}
	return 0;
}

/* Kernels are loaded with their module and not at their first launch, which would wait for the device; the
 * driver reads the variable in cuInit. A program that has called cuInit itself keeps its environment. */
static int start(struct error *err)
{
	CUresult result;
	int ignored;

	if (driver.cuDeviceGetCount(&ignored) == CUDA_ERROR_NOT_INITIALIZED)
		setenv("CUDA_MODULE_LOADING", "EAGER", 0);
	result = driver.cuInit(0);
	if (result == CUDA_ERROR_NO_DEVICE)
		return error_set(err, STATUS_UNSUPPORTED, "cuInit: the NVIDIA driver finds no GPU");
	return driver_check(err, result, "cuInit(0)");
}

/* ---- Results ---------------------------------------------------------------------------------------- */

int driver_is_sticky(CUresult result)
{
	switch (result) {
	case CUDA_ERROR_DEINITIALIZED:
	case CUDA_ERROR_DEVICE_UNAVAILABLE:
	case CUDA_ERROR_ECC_UNCORRECTABLE:
	case CUDA_ERROR_NVLINK_UNCORRECTABLE:
	case CUDA_ERROR_CONTAINED:
	case CUDA_ERROR_ILLEGAL_ADDRESS:
	case CUDA_ERROR_LAUNCH_TIMEOUT:
	case CUDA_ERROR_CONTEXT_IS_DESTROYED:
	case CUDA_ERROR_ASSERT:
	case CUDA_ERROR_HARDWARE_STACK_ERROR:
	case CUDA_ERROR_ILLEGAL_INSTRUCTION:
	case CUDA_ERROR_MISALIGNED_ADDRESS:
	case CUDA_ERROR_INVALID_ADDRESS_SPACE:
	case CUDA_ERROR_INVALID_PC:
	case CUDA_ERROR_LAUNCH_FAILED:
	case CUDA_ERROR_TENSOR_MEMORY_LEAK:
	case CUDA_ERROR_MPS_CLIENT_TERMINATED:
	case CUDA_ERROR_EXTERNAL_DEVICE:
	case CUDA_ERROR_UNKNOWN:
		return 1;
	default:
		return 0;
	}
}

int driver_status(CUresult result)
{
	switch (result) {
	case CUDA_SUCCESS:
		return 0;
	case CUDA_ERROR_OUT_OF_MEMORY:
		return STATUS_NO_MEMORY;
	case CUDA_ERROR_INVALID_VALUE:
	case CUDA_ERROR_INVALID_DEVICE:
	case CUDA_ERROR_INVALID_HANDLE:
		return STATUS_INVALID_ARGUMENT;
	case CUDA_ERROR_NO_DEVICE:
	case CUDA_ERROR_STUB_LIBRARY:
	case CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER:
	case CUDA_ERROR_NO_BINARY_FOR_GPU:
	case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
	case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
	case CUDA_ERROR_JIT_COMPILATION_DISABLED:
	case CUDA_ERROR_NOT_SUPPORTED:
	case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
	case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
		return STATUS_UNSUPPORTED;
	default:
		return driver_is_sticky(result) ? STATUS_DEVICE_LOST : STATUS_DEVICE;
	}
}

int driver_fail(struct error *err, CUresult result, const char *call)
{
	const char *name = NULL, *meaning = NULL;
	driver.cuGetErrorName(result, &name);
	driver.cuGetErrorString(result, &meaning);
	return error_set(err, driver_status(result), "%.120s: %s (%s)", call,
	                 name ? name : "an unknown error",
	                 meaning ? meaning : "this driver does not say what it means");
}

int driver_stream(CUstream *ret, enum stream_priority priority, struct error *err)
{
	int least, greatest;
	int r = driver_call(err, cuCtxGetStreamPriorityRange, (&least, &greatest));

	if (r < 0)
		return r;
	const int of[] = { [STREAM_LOWEST] = least,
		           [STREAM_MIDDLE] = least + (greatest - least) / 2,
		           [STREAM_HIGHEST] = greatest };
	return driver_call(err, cuStreamCreateWithPriority, (ret, CU_STREAM_NON_BLOCKING, of[priority]));
}
