/* SPDX-License-Identifier: Apache-2.0 */
/* Loads the driver, translates its results, and pins memory; chooses a GPU, and loads the kernels. The table
 * of driver functions is either complete or empty: if one function is missing the table is cleared and the
 * library closed, so nobody ever calls through a null pointer. */
#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>

struct driver driver;
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

struct entry {
	const char *name;
	size_t offset; /* offset of its field in struct driver */
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

/* CUDA_MODULE_LOADING makes the driver load kernels with their module. By default it would load each at its
 * first launch, which waits for the device. The driver reads the variable in cuInit; if the program has
 * called cuInit itself, its environment is left alone. */
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

int driver_copy_rows(const struct copied_rows *rows, bool is_out, CUstream stream, struct error *err)
{
	CUDA_MEMCPY2D copy = { .srcMemoryType = is_out ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
		               .dstMemoryType = is_out ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
		               .srcPitch = is_out ? rows->device_step : rows->host_step,
		               .dstPitch = is_out ? rows->host_step : rows->device_step,
		               .WidthInBytes = rows->bytes,
		               .Height = rows->n };

	if (is_out) {
		copy.srcDevice = rows->device;
		copy.dstHost = (void *)(uintptr_t)rows->host;
	} else {
		copy.srcHost = (const void *)(uintptr_t)rows->host;
		copy.dstDevice = rows->device;
	}
	return driver_call(err, cuMemcpy2DAsync, (&copy, stream));
}

int driver_query(CUevent event, struct error *err)
{
	CUresult result = driver.cuEventQuery(event);

	if (result == CUDA_SUCCESS)
		return 1;
	if (result == CUDA_ERROR_NOT_READY)
		return 0;
	driver_fail(err, result, "cuEventQuery(event)");
	return STATUS_DEVICE_LOST;
}

/* ---- Pinned memory ------------------------------------------------------------------------------------- */

int driver_pin(void **ret, size_t size, int advice, unsigned flags, struct error *err)
{
	void *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int r;

	if (pages == MAP_FAILED)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	madvise(pages, size, advice);
	r = driver_call(err, cuMemHostRegister, (pages, size, flags));
	if (r < 0)
		munmap(pages, size);
	else
		*ret = pages;
	return r;
}

void driver_unpin(void *pages, size_t size)
{
	if (pages && driver.cuMemHostUnregister(pages) == CUDA_SUCCESS)
		munmap(pages, size);
}

/* ---- Devices ------------------------------------------------------------------------------------------- */

/* Each embedded image holds machine code for the targets that the build names, and PTX for later ones; the
 * driver takes what fits. A build for tests only has images without code, which only the stand-in driver
 * accepts (kernels/cuda/device/Makemodule.am). */

#define EMPTY_IMAGE_BYTES 16 /* size of a fatbin that consists of a header only */

/* Compute capability 9 introduced the Tensor Memory Accelerator. */
#define NEEDED_MAJOR 9

#define UNIT(name) extern const unsigned char image_##name[], image_##name##_end[];
#include "kernels/cuda/launch/kernels.def"

/* All images in the order of kernels.def, each followed by its kernels. */
static const struct content {
	const char *kernel; /* NULL in the entry of an image */
	const unsigned char *start;
	const unsigned char *end;
} contents[] = {
#define UNIT(name)         { NULL, image_##name, image_##name##_end },
#define KERNEL(name, args) { .kernel = #name },
#include "kernels/cuda/launch/kernels.def"
};

static atomic_uint opened;

/* Serial of the device whose context is current in this thread; 0: none. */
static _Thread_local unsigned entered;

static int choose(struct device *ret, const char *which, struct error *err);
static int read_identity(struct device *ret, int ordinal, struct error *err);
static int refuse(const struct device *device, struct error *err);
static const char *without_prefix(const char *uuid);
static void ask_for_mig(const char *which);
/* Drivers from this CUDA version on are known to support CU_DEVICE_ATTRIBUTE_MPS_ENABLED. */
#define SAYS_MPS 13000

static int read_facts(struct device *ret, struct error *err);
static int load(struct device *ret, struct error *err);

int device_open(struct device *ret, const char *which, struct error *err)
{
	*ret = (struct device){ 0 };
	ask_for_mig(which);
	int r = driver_open(err);
	if (r < 0)
		return r;
	r = choose(ret, which, err);
	ret->serial = atomic_fetch_add(&opened, 1) + 1;
	if (r == 0)
		r = read_facts(ret, err);
	if (r == 0)
		r = driver_call(err, cuDevicePrimaryCtxRetain, (&ret->context, ret->handle));
	if (r == 0)
		r = device_enter(ret, err);
	if (r == 0)
		r = load(ret, err);
	if (r < 0)
		device_close(ret);
	return r;
}

int device_adopt(struct device *ret, CUcontext context, struct error *err)
{
	int ordinal, r;

	*ret = (struct device){ 0 };
	r = driver_call(err, cuCtxGetDevice, (&ordinal));
	if (r == 0)
		r = read_identity(ret, ordinal, err);
	if (r == 0 && ret->major < NEEDED_MAJOR)
		r = refuse(ret, err);
	if (r < 0)
		return r;
	ret->serial = atomic_fetch_add(&opened, 1) + 1;
	ret->context = context;
	ret->is_adopted = true;
	r = read_facts(ret, err);
	if (r == 0)
		r = load(ret, err);
	if (r < 0)
		device_close(ret);
	return r;
}

static void unload(struct device *device)
{
	for (int i = 0; i < UNIT_COUNT && device->module[i]; i++)
		driver.cuModuleUnload(device->module[i]);
}

/* Ignores errors of the driver, because the context may be lost. */
void device_close(struct device *device)
{
	entered = 0;
	if (device->is_adopted) {
		unload(device);
	} else if (device->context) {
		driver.cuCtxSetCurrent(device->context);
		unload(device);
		driver.cuCtxSetCurrent(NULL);
		entered = 0;
		driver.cuDevicePrimaryCtxRelease(device->handle);
	}
	*device = (struct device){ 0 };
}

int device_enter(const struct device *device, struct error *err)
{
	int r = driver_call(err, cuCtxSetCurrent, (device->context));
	entered = r < 0 ? 0 : device->serial;
	return r;
}

bool device_is_entered(const struct device *device)
{
	return entered == device->serial;
}

/* ---- Others ------------------------------------------------------------------------------------------- */

int device_count(struct error *err)
{
	int n, r = driver_open(err);
	if (r == 0)
		r = driver_call(err, cuDeviceGetCount, (&n));
	return r < 0 ? r : n;
}

static int refuse_reach(const struct device *device, CUdevice other, struct error *err)
{
	return error_set(err, STATUS_UNSUPPORTED,
	                 "device %d has no peer access to device %d, where the memory is", device->handle,
	                 other);
}

int device_check_reach(const struct device *device, CUdevice other, struct error *err)
{
	int can;
	if (other == device->handle)
		return 0;
	int r = driver_call(err, cuDeviceCanAccessPeer, (&can, device->handle, other));
	return r < 0 || can ? r : refuse_reach(device, other, err);
}

int device_reach(const struct device *device, const struct device *other, struct error *err)
{
	if (other->handle == device->handle)
		return 0;
	CUresult result = driver.cuCtxEnablePeerAccess(other->context, 0);
	if (result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
		return 0;
	if (result == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)
		return refuse_reach(device, other->handle, err);
	return driver_check(err, result, "cuCtxEnablePeerAccess");
}

/* Returns an attribute of a pair of devices, or 0 if the driver does not report it. */
static int ask_pair(const struct device *device, CUdevice other, CUdevice_P2PAttribute attribute)
{
	int value = 0;
	return driver.cuDeviceGetP2PAttribute(&value, attribute, device->handle, other) == CUDA_SUCCESS
	           ? value
	           : 0;
}

/* NVLinks carry atomics and the PCIe bus does not, which tells the two apart. */
static void read_link(const struct device *device, CUdevice other, struct engine_link *ret)
{
	if (!ask_pair(device, other, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED))
		return;
	ret->kind = ask_pair(device, other, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED)
	                ? ENGINE_LINK_NVLINK
	                : ENGINE_LINK_PCIE;
	ret->rank = (uint32_t)ask_pair(device, other, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK);
}

void device_link(const struct device *device, const char *uuid, struct engine_link *ret)
{
	struct device other;
	struct error ignored;
	int n = device_count(&ignored);
	for (int i = 0; i < n; i++) {
		if (i == device->ordinal || read_identity(&other, i, &ignored) < 0 ||
		    strcasecmp(without_prefix(other.uuid), without_prefix(uuid)) != 0)
			continue;
		read_link(device, other.handle, ret);
		return;
	}
}

/* ---- Choosing --------------------------------------------------------------------------------------- */

static int refuse(const struct device *device, struct error *err)
{
	return error_set(
	    err, STATUS_UNSUPPORTED,
	    "device %d (%.80s) has compute capability %d.%d; the cuda engine needs %d.0 or newer",
	    device->ordinal, device->name, device->major, device->minor, NEEDED_MAJOR);
}

static int choose_first(struct device *ret, int n, struct error *err)
{
	struct device first;
	for (int i = 0; i < n; i++) {
		int r = read_identity(ret, i, err);
		if (r < 0 || ret->major >= NEEDED_MAJOR)
			return r;
		if (i == 0)
			first = *ret;
	}
	return refuse(&first, err);
}

static bool is_ordinal(const char *which)
{
	return *which && which[strspn(which, "0123456789")] == '\0';
}

static int choose_ordinal(struct device *ret, const char *which, int n, struct error *err)
{
	unsigned long ordinal = strtoul(which, NULL, 10);
	if (ordinal >= (unsigned long)n)
		return error_set(err, STATUS_NOT_FOUND, "device %.40s: there %s %d, numbered from 0", which,
		                 n == 1 ? "is" : "are", n);
	return read_identity(ret, (int)ordinal, err);
}

static bool is_mig(const char *which)
{
	return which && strncasecmp(which, "MIG-", 4) == 0;
}

static const char *without_prefix(const char *uuid)
{
	return strncasecmp(uuid, "GPU-", 4) == 0 || is_mig(uuid) ? uuid + 4 : uuid;
}

/* A process sees at most one MIG device: the one that CUDA_VISIBLE_DEVICES names when the driver is
 * initialized. */
static void ask_for_mig(const char *which)
{
	if (is_mig(which))
		setenv("CUDA_VISIBLE_DEVICES", which, 0);
}

static int choose_uuid(struct device *ret, const char *which, int n, struct error *err)
{
	struct device device;
	const char *start = without_prefix(which);
	int found = 0;
	for (int i = 0; i < n && *start; i++) {
		int r = read_identity(&device, i, err);
		if (r < 0)
			return r;
		if (strncasecmp(without_prefix(device.uuid), start, strlen(start)) != 0)
			continue;
		if (found++ > 0)
			return error_set(err, STATUS_INVALID_ARGUMENT,
			                 "device %.40s: ambiguous, both %s and %s begin with it", which,
			                 ret->uuid, device.uuid);
		*ret = device;
	}
	if (found == 0)
		return error_set(err, STATUS_NOT_FOUND,
		                 "device %.40s: no GPU has that UUID; nvidia-smi -L lists them", which);
	return 0;
}

static int choose(struct device *ret, const char *which, struct error *err)
{
	int n, r = driver_call(err, cuDeviceGetCount, (&n));
	if (r < 0)
		return r;
	if (!which)
		return n > 0 ? choose_first(ret, n, err)
		             : error_set(err, STATUS_UNSUPPORTED, "the NVIDIA driver finds no GPU");
	r = is_ordinal(which) ? choose_ordinal(ret, which, n, err) : choose_uuid(ret, which, n, err);
	if (r == 0 && is_mig(which))
		memcpy(ret->uuid, "MIG", 3);
	if (r == 0 && ret->major < NEEDED_MAJOR)
		return refuse(ret, err);
	return r;
}

/* ---- Reading ---------------------------------------------------------------------------------------- */

static void print_uuid(char *ret, size_t size, const CUuuid *uuid)
{
	size_t at = (size_t)snprintf(ret, size, "GPU");
	for (size_t i = 0; i < sizeof uuid->bytes; i++) {
		bool dash = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
		at += (size_t)snprintf(ret + at, size - at, "%s%02x", dash ? "-" : "",
		                       (unsigned char)uuid->bytes[i]);
	}
}

static int read_identity(struct device *ret, int ordinal, struct error *err)
{
	CUuuid uuid;
	*ret = (struct device){ .ordinal = ordinal };
	int r = driver_call(err, cuDeviceGet, (&ret->handle, ordinal));
	if (r == 0)
		r = driver_call(err, cuDeviceGetName, (ret->name, sizeof ret->name, ret->handle));
	if (r == 0)
		r = driver_call(err, cuDeviceGetUuid, (&uuid, ret->handle));
	if (r == 0)
		r = driver_call(err, cuDeviceGetAttribute,
		                (&ret->major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, ret->handle));
	if (r == 0)
		r = driver_call(err, cuDeviceGetAttribute,
		                (&ret->minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, ret->handle));
	if (r == 0)
		print_uuid(ret->uuid, sizeof ret->uuid, &uuid);
	return r;
}

static int read_facts(struct device *ret, struct error *err)
{
	uint32_t memory_khz = 0, bus_bits = 0;
	const struct {
		uint32_t *ret;
		CUdevice_attribute attribute;
	} facts[] = {
		{ &ret->processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT },
		{ &ret->l2_bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE },
		{ &ret->window_bytes, CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE },
		{ &ret->shared_bytes, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN },
		{ &memory_khz, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE },
		{ &bus_bits, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH },
	};
	for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
		int value;
		int r = driver_call(err, cuDeviceGetAttribute, (&value, facts[i].attribute, ret->handle));
		if (r < 0)
			return r;
		*facts[i].ret = (uint32_t)value;
	}
	ret->copy = copy_speed_of(memory_khz, bus_bits);
	size_t bytes;
	int by_mps = 0;
	int r = driver_call(err, cuDeviceTotalMem, (&bytes, ret->handle));
	if (r < 0)
		return r;
	ret->memory_bytes = bytes;
	r = driver_call(err, cuDriverGetVersion, (&ret->driver_version));
	if (r == 0 && ret->driver_version >= SAYS_MPS)
		r = driver_call(err, cuDeviceGetAttribute,
		                (&by_mps, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, ret->handle));
	ret->by_mps = by_mps != 0;
	return r;
}

/* ---- Kernels ---------------------------------------------------------------------------------------- */

/* Like driver_fail, for a call that fails if the image contains no code; says so if that is the reason. */
static int load_fail(struct error *err, CUresult result, const char *call, const struct content *image)
{
	const bool needs_code = result == CUDA_ERROR_NO_BINARY_FOR_GPU ||
	                        result == CUDA_ERROR_INVALID_IMAGE || result == CUDA_ERROR_NOT_FOUND;
	if (needs_code && image->end - image->start == EMPTY_IMAGE_BYTES)
		return error_set(err, STATUS_UNSUPPORTED,
		                 "this build has no kernels for a GPU, because ./bootstrap check needs none; "
		                 "make builds them");
	return driver_fail(err, result, call);
}

static int load_image(CUmodule *ret, const struct content *image, struct error *err)
{
	CUresult result = driver.cuModuleLoadData(ret, image->start);
	return result == CUDA_SUCCESS ? 0 : load_fail(err, result, "cuModuleLoadData(image)", image);
}

static int load_kernel(CUfunction *ret, CUmodule module, const char *name, const struct content *image,
                       struct error *err)
{
	CUresult result = driver.cuModuleGetFunction(ret, module, name);
	if (result == CUDA_SUCCESS)
		return 0;
	char call[64];
	snprintf(call, sizeof call, "cuModuleGetFunction(%s)", name);
	return load_fail(err, result, call, image);
}

/* A kernel gets more than the default limit of 48 KiB of shared memory only if that was requested
 * beforehand. */
static int allow_shared(const struct device *device, CUfunction function, struct error *err)
{
	return driver_call(
	    err, cuFuncSetAttribute,
	    (function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)device->shared_bytes));
}

static int load(struct device *ret, struct error *err)
{
	const struct content *image = NULL;
	CUmodule *module = ret->module;
	CUfunction *function = ret->function;
	int r = 0;
	for (const struct content *at = contents; at < contents + UNIT_COUNT + KERNEL_COUNT && r == 0; at++) {
		if (!at->kernel) {
			module = image ? module + 1 : module;
			image = at;
			r = load_image(module, image, err);
			continue;
		}
		r = load_kernel(function, *module, at->kernel, image, err);
		if (r == 0)
			r = allow_shared(ret, *function++, err);
	}
	return r;
}
