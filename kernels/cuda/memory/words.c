/* SPDX-License-Identifier: Apache-2.0 */
/* Pins timeline words that lie in ordinary host memory, and counts their users. */
#include "words.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#include "kernels/cuda/driver/driver.h"
#include "kernels/engine.h"

struct pinned {
	uint64_t address;
	uint32_t users;
	bool is_leaving;   /* A thread is unpinning it, without the lock, and then frees it. */
	CUcontext context; /* context in which it was pinned */
	struct pinned *next;
};

static struct pinned *all_pinned;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list and its entries */
static pthread_cond_t is_gone = PTHREAD_COND_INITIALIZER;

static struct pinned **find(uint64_t address)
{
	struct pinned **link = &all_pinned;

	while (*link && (*link)->address != address)
		link = &(*link)->next;
	return link;
}

/* Like find, but waits as long as the word is being unpinned. Caller holds the lock. */
static struct pinned **find_settled(uint64_t address)
{
	struct pinned **link;

	while (*(link = find(address)) && (*link)->is_leaving)
		pthread_cond_wait(&is_gone, &lock);
	return link;
}

static int pin(uint64_t address, struct pinned **ret, struct error *err)
{
	struct pinned *pinned = calloc(1, sizeof *pinned);
	int r;

	if (!pinned)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	pinned->address = address;
	r = driver_call(err, cuCtxGetCurrent, (&pinned->context));
	if (r == 0)
		r = driver_call(err, cuMemHostRegister,
		                ((void *)(uintptr_t)address, sizeof(uint64_t),
		                 CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
	if (r < 0)
		free(pinned);
	else
		*ret = pinned;
	return r;
}

static bool is_managed(uint64_t address)
{
	unsigned is = 0;

	return driver.cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_IS_MANAGED, address) == CUDA_SUCCESS &&
	       is;
}

static int find_home(uint64_t address, enum engine_home *ret, struct error *err)
{
	CUmemorytype type = CU_MEMORYTYPE_DEVICE;
	CUresult result = driver.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);

	*ret = type == CU_MEMORYTYPE_HOST ? ENGINE_HOME_PINNED : ENGINE_HOME_DEVICE;
	if (result == CUDA_ERROR_INVALID_VALUE) {
		*ret = ENGINE_HOME_HOST;
		return 0;
	}
	if (result == CUDA_SUCCESS && is_managed(address))
		return error_set(err, STATUS_UNSUPPORTED,
		                 "the word at %#" PRIx64 " lies in managed memory, which streams cannot wait "
		                 "for or signal",
		                 address);
	return driver_check(err, result, "cuPointerGetAttribute");
}

/* Finds where the word lies, and sets *ret_home. If it is ordinary host memory, adds a use of the word, which
 * is pinned first if need be, and sets *ret_is_pinned. Caller holds the lock. */
static int use(uint64_t address, bool *ret_is_pinned, enum engine_home *ret_home, struct error *err)
{
	struct pinned **link = find_settled(address);
	int r = 0;

	*ret_home = ENGINE_HOME_HOST;
	if (!*link)
		r = find_home(address, ret_home, err);
	if (r < 0 || *ret_home != ENGINE_HOME_HOST)
		return r;
	if (!*link)
		r = pin(address, link, err);
	if (r < 0)
		return r;
	(*link)->users++;
	*ret_is_pinned = true;
	return 0;
}

int word_reach(uint64_t address, CUdeviceptr *ret, bool *ret_is_pinned, struct error *err)
{
	const CUstreamCaptureMode mode = capture_allow();
	enum engine_home home;
	int r;

	*ret = address;
	*ret_is_pinned = false;
	pthread_mutex_lock(&lock);
	r = use(address, ret_is_pinned, &home, err);
	pthread_mutex_unlock(&lock);
	if (r == 0 && home != ENGINE_HOME_DEVICE)
		r = driver_call(err, cuMemHostGetDevicePointer, (ret, (void *)(uintptr_t)address, 0));
	if (r < 0 && *ret_is_pinned) {
		word_leave(address);
		*ret_is_pinned = false;
	}
	capture_restore(mode);
	return r;
}

static void unpin(const struct pinned *pinned)
{
	const CUstreamCaptureMode mode = capture_allow();
	CUcontext before = NULL;

	driver.cuCtxGetCurrent(&before);
	driver.cuCtxSetCurrent(pinned->context);
	driver.cuMemHostUnregister((void *)(uintptr_t)pinned->address);
	driver.cuCtxSetCurrent(before);
	capture_restore(mode);
}

/* The lock is released around the driver's wait, because other threads may signal what it waits for. */
void word_leave(uint64_t address)
{
	struct pinned *pinned;

	pthread_mutex_lock(&lock);
	pinned = *find(address);
	if (pinned && --pinned->users == 0) {
		pinned->is_leaving = true;
		pthread_mutex_unlock(&lock);
		unpin(pinned);
		pthread_mutex_lock(&lock);
		*find(address) = pinned->next;
		free(pinned);
		pthread_cond_broadcast(&is_gone);
	}
	pthread_mutex_unlock(&lock);
}
