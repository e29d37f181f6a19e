/* SPDX-License-Identifier: Apache-2.0 */
/* Looks up entry points, names results, and counts the objects that are alive. */
#include <cudaTypedefs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "call.h"
#include "capture.h"
#include "softgpu.h"
#include "tests/softgpu/live.h"

struct entry_point {
	const char *name;
	int version; /* the CUDA version that introduced the entry point */
	void *address;
};

static const struct entry_point entry_points[] = {
#define DRIVER(name, version) { #name, version, (void *)name },
#include "kernels/cuda/driver/driver.def"
#define DRIVER(name, version) { #name, version, (void *)name },
#include "client.def"
};

/* Each entry point gets a version for which CUDA defines a function type, and its type is the header's. */
#define DRIVER(name, version)                                                                    \
	_Static_assert(__builtin_types_compatible_p(PFN_##name##_v##version, __typeof__(&name)), \
	               #name " " #version);
#include "kernels/cuda/driver/driver.def"
#define DRIVER(name, version)                                                                    \
	_Static_assert(__builtin_types_compatible_p(PFN_##name##_v##version, __typeof__(&name)), \
	               #name " " #version);
#include "client.def"

static int driver_version(void)
{
	return (int)call_number("SOFTGPU_DRIVER_VERSION", 13000);
}

static const struct entry_point *find(const char *name)
{
	const char *without = getenv("SOFTGPU_WITHOUT");
	if (without && strcmp(without, name) == 0)
		return NULL;
	for (size_t i = 0; i < sizeof entry_points / sizeof *entry_points; i++)
		if (strcmp(entry_points[i].name, name) == 0)
			return &entry_points[i];
	return NULL;
}

CUresult CUDAAPI cuGetProcAddress(const char *name, void **ret, int version, cuuint64_t flags,
                                  CUdriverProcAddressQueryResult *ret_how)
{
	if (!name || !ret || flags != CU_GET_PROC_ADDRESS_DEFAULT || version > driver_version())
		return CUDA_ERROR_INVALID_VALUE;
	const struct entry_point *entry = find(name);
	bool is_there = entry && entry->version <= version;
	*ret = is_there ? entry->address : NULL;
	if (ret_how)
		*ret_how = is_there ? CU_GET_PROC_ADDRESS_SUCCESS
		           : entry  ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
		                    : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return CUDA_SUCCESS;
}

static CUresult get_version(int *ret)
{
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = driver_version();
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDriverGetVersion(int *ret)
{
	return leave(enter(ENTRY_cuDriverGetVersion) ?: get_version(ret));
}

/* ---- Results ------------------------------------------------------------------------------------------ */

/* The texts of cuGetErrorString, in the stand-in's own words. */
#define RESULTS(RESULT)                                                                               \
	RESULT(CUDA_SUCCESS, "all went well")                                                         \
	RESULT(CUDA_ERROR_INVALID_VALUE, "an argument is not valid")                                  \
	RESULT(CUDA_ERROR_OUT_OF_MEMORY, "there is not enough memory")                                \
	RESULT(CUDA_ERROR_NOT_INITIALIZED, "cuInit has not been called")                              \
	RESULT(CUDA_ERROR_DEVICE_UNAVAILABLE, "the device cannot be had now")                         \
	RESULT(CUDA_ERROR_NO_DEVICE, "there is no device")                                            \
	RESULT(CUDA_ERROR_INVALID_DEVICE, "there is no such device")                                  \
	RESULT(CUDA_ERROR_INVALID_IMAGE, "the image is no fatbin")                                    \
	RESULT(CUDA_ERROR_INVALID_CONTEXT, "there is no such context, or none is current")            \
	RESULT(CUDA_ERROR_MAP_FAILED, "the memory could not be mapped")                               \
	RESULT(CUDA_ERROR_NO_BINARY_FOR_GPU, "the image has no code for the device")                  \
	RESULT(CUDA_ERROR_ECC_UNCORRECTABLE, "memory of the device has failed")                       \
	RESULT(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "the device has no link to the other")             \
	RESULT(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "it may touch the other's memory already")     \
	RESULT(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "it may not touch the other's memory anyway")      \
	RESULT(CUDA_ERROR_INVALID_HANDLE, "the handle stands for nothing")                            \
	RESULT(CUDA_ERROR_NOT_FOUND, "nothing has that name or address")                              \
	RESULT(CUDA_ERROR_NOT_READY, "it is not done yet")                                            \
	RESULT(CUDA_ERROR_ILLEGAL_ADDRESS, "the device was sent to memory that is not there")         \
	RESULT(CUDA_ERROR_CONTEXT_IS_DESTROYED, "the context has been released")                      \
	RESULT(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "some of the memory is registered already") \
	RESULT(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "the memory is not registered")                 \
	RESULT(CUDA_ERROR_ILLEGAL_INSTRUCTION, "a kernel broke a rule of the device")                 \
	RESULT(CUDA_ERROR_INVALID_PC, "a kernel has been unloaded")                                   \
	RESULT(CUDA_ERROR_LAUNCH_FAILED, "a kernel died")                                             \
	RESULT(CUDA_ERROR_ILLEGAL_STATE, "it cannot be done now")                                     \
	RESULT(CUDA_ERROR_NOT_PERMITTED, "this thread may not call the driver")                       \
	RESULT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "a capture does not allow it")                  \
	RESULT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "the capture has been invalidated")             \
	RESULT(CUDA_ERROR_STREAM_CAPTURE_MERGE, "two captures cannot be joined")                      \
	RESULT(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "the capture was begun in another stream")        \
	RESULT(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "a stream has not joined the first one again")     \
	RESULT(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "a capture cannot wait for what is outside")      \
	RESULT(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "the legacy stream would wait for a capture")      \
	RESULT(CUDA_ERROR_CAPTURED_EVENT, "the event was recorded in a capture")                      \
	RESULT(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "the capture was begun by another thread")     \
	RESULT(CUDA_ERROR_NOT_SUPPORTED, "this device cannot do that")                                \
	RESULT(CUDA_ERROR_UNKNOWN, "nobody knows")

static const struct {
	CUresult result;
	const char *name;
	const char *meaning;
} results[] = {
#define RESULT(result, meaning) { result, #result, meaning },
	RESULTS(RESULT)
};

static CUresult describe(CUresult result, const char **ret_name, const char **ret_meaning)
{
	for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
		if (results[i].result != result)
			continue;
		if (ret_name)
			*ret_name = results[i].name;
		if (ret_meaning)
			*ret_meaning = results[i].meaning;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGetErrorName(CUresult result, const char **ret)
{
	return leave(enter(ENTRY_cuGetErrorName) ?: describe(result, ret, NULL));
}

CUresult CUDAAPI cuGetErrorString(CUresult result, const char **ret)
{
	return leave(enter(ENTRY_cuGetErrorString) ?: describe(result, NULL, ret));
}

/* ---- What is alive ------------------------------------------------------------------------------------ */

static size_t ranges_of(enum range_kind kind)
{
	const struct range *range;
	size_t n = 0;
	TAILQ_FOREACH(range, &ranges, entry)
		n += range->kind == kind;
	return n;
}

size_t live(char *ret, size_t size)
{
	const struct {
		const char *what;
		size_t n;
	} kinds[] = {
		{ "references to contexts", context_live() },
		{ "modules", module_live() },
		{ "streams", stream_live() },
		{ "events", event_live() },
		{ "memories of cuMemAlloc", ranges_of(RANGE_MEMORY) },
		{ "opened IPC handles", ranges_of(RANGE_OPENED) },
		{ "registered host ranges", ranges_of(RANGE_HOST) },
		{ "allocations of cuMemCreate", allocation_live() },
		{ "reserved address ranges", ranges_of(RANGE_RESERVED) },
		{ "mapped address ranges", ranges_of(RANGE_MAPPED) },
		{ "memory pools", pool_live() },
		{ "allocations of memory pools", ranges_of(RANGE_POOLED) },
		{ "imported pointers of memory pools", ranges_of(RANGE_IMPORTED) },
		{ "graphs", graph_live() },
		{ "instances of graphs", instance_live() },
		{ "user objects", object_live() },
	};
	size_t n = 0, at = 0;
	*ret = '\0';
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		n += kinds[i].n;
		if (kinds[i].n > 0 && at < size)
			at += (size_t)snprintf(ret + at, size - at, "%zu %s\n", kinds[i].n, kinds[i].what);
	}
	return n;
}

void softgpu_lose(int device, int result)
{
	call_lock();
	if (device_exists(device))
		call_stick(device, (CUresult)result);
	call_unlock();
}

size_t softgpu_live(char *ret, size_t size)
{
	call_lock();
	size_t n = live(ret, size);
	call_unlock();
	return n;
}
