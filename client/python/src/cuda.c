/* SPDX-License-Identifier: Apache-2.0 */
/* Registers device memory of this process with the service, and pins the host memory in which streams and the
 * service signal each other. The CUDA driver is loaded when the first device pointer comes, and the functions
 * that are used are declared here.
 *
 * PyTorch's allocator cuts segments into many tensors, and lets segments grow. One region is therefore
 * registered for all allocations that adjoin a tensor's, and it replaces the regions that it contains. */
#include "core.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>

typedef int result; /* CUresult; 0: success */

static struct {
	void *library;
	result (*cuMemGetAddressRange_v2)(uint64_t *ret_base, size_t *ret_size, uint64_t pointer);
	result (*cuMemRetainAllocationHandle)(uint64_t *ret, void *address);
	result (*cuMemRelease)(uint64_t handle);
	result (*cuMemHostRegister_v2)(void *start, size_t size, unsigned flags);
	result (*cuMemHostUnregister)(void *start);
	result (*cuMemHostGetDevicePointer_v2)(uint64_t *ret, void *start, unsigned flags);
	result (*cuPointerGetAttribute)(void *ret, int attribute, uint64_t pointer);
	result (*cuDevicePrimaryCtxRetain)(void **ret, int device);
	result (*cuCtxGetCurrent)(void **ret);
	result (*cuCtxSetCurrent)(void *context);
	result (*cuCtxSynchronize)(void);
} driver;

static pthread_once_t driver_once = PTHREAD_ONCE_INIT;
static bool has_driver;

enum {
	ALREADY_REGISTERED = 712,              /* CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED */
	HOST_REGISTER_PORTABLE_AND_MAPPED = 3, /* CU_MEMHOSTREGISTER_PORTABLE | _DEVICEMAP */
	POINTER_DEVICE_ORDINAL = 9,            /* CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL */
	MOST_DEVICES = 64,
	MOST_NEIGHBOURS = 8192, /* maximum number of allocations that find_run adds in each direction */
};

static void load_driver(void)
{
	driver.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!driver.library)
		return;
	has_driver = true;
#define LOAD(name) has_driver = has_driver && (*(void **)&driver.name = dlsym(driver.library, #name)) != NULL
	LOAD(cuMemGetAddressRange_v2);
	LOAD(cuMemRetainAllocationHandle);
	LOAD(cuMemRelease);
	LOAD(cuMemHostRegister_v2);
	LOAD(cuMemHostUnregister);
	LOAD(cuMemHostGetDevicePointer_v2);
	LOAD(cuPointerGetAttribute);
	LOAD(cuDevicePrimaryCtxRetain);
	LOAD(cuCtxGetCurrent);
	LOAD(cuCtxSetCurrent);
	LOAD(cuCtxSynchronize);
#undef LOAD
}

static bool find_driver(void)
{
	pthread_once(&driver_once, load_driver);
	return has_driver;
}

static int need_driver(void)
{
	return find_driver()
	           ? 0
	           : raise_status(TMA_UNSUPPORTED, "device memory: this machine has no CUDA driver");
}

static bool enter(uint64_t pointer, int *ret_device)
{
	void *context = NULL;

	*ret_device = 0;
	if (driver.cuCtxGetCurrent(&context) == 0 && context)
		return true;
	if (pointer)
		driver.cuPointerGetAttribute(ret_device, POINTER_DEVICE_ORDINAL, pointer);
	return driver.cuDevicePrimaryCtxRetain(&context, *ret_device) == 0 &&
	       driver.cuCtxSetCurrent(context) == 0;
}

int cuda_device_of(uint64_t pointer)
{
	int device;

	/* The driver answers no questions about memory to a thread without a context. */
	return find_driver() && enter(pointer, &device) &&
	               driver.cuPointerGetAttribute(&device, POINTER_DEVICE_ORDINAL, pointer) == 0
	           ? device
	           : -1;
}

void *cuda_context_of(int device)
{
	static _Atomic(void *) contexts[MOST_DEVICES]; /* retained for as long as the process lives */
	void *context;

	if (!find_driver() || device < 0 || device >= MOST_DEVICES)
		return NULL;
	context = atomic_load(&contexts[device]);
	if (!context && driver.cuDevicePrimaryCtxRetain(&context, device) == 0)
		atomic_store(&contexts[device], context);
	return context;
}

void *cuda_switch(void *context)
{
	void *current = NULL;

	if (!context)
		return NULL;
	driver.cuCtxGetCurrent(&current);
	if (current == context)
		return NULL;
	driver.cuCtxSetCurrent(context);
	return current;
}

bool cuda_synchronize(void)
{
	return driver.cuCtxSynchronize() == 0;
}

int cuda_enter(uint64_t pointer)
{
	int device;

	if (need_driver() < 0)
		return -1;
	return enter(pointer, &device)
	           ? 0
	           : raise_status(TMA_DEVICE, "this thread cannot use the context of CUDA device %d", device);
}

/* ---- Host memory that streams use ------------------------------------------------------------------ */

uint64_t cuda_host_address(void *start, size_t size)
{
	uint64_t address = 0;
	result rc;

	if (cuda_enter(0) < 0)
		return 0;
	rc = driver.cuMemHostRegister_v2(start, size, HOST_REGISTER_PORTABLE_AND_MAPPED);
	if (rc == ALREADY_REGISTERED && driver.cuMemHostGetDevicePointer_v2(&address, start, 0) == 0)
		return address; /* tma_enqueue has pinned the memory for a request */
	if (rc == 0) {
		rc = driver.cuMemHostGetDevicePointer_v2(&address, start, 0);
		if (rc != 0)
			driver.cuMemHostUnregister(start);
	}
	if (rc != 0)
		raise_status(TMA_DEVICE, "the CUDA driver does not map the memory of a timeline (error %d)",
		             rc);
	return rc == 0 ? address : 0;
}

void cuda_host_retire(void *start)
{
	int device;

	if (!enter(0, &device))
		return;
	driver.cuCtxSynchronize();
	driver.cuMemHostUnregister(start);
}

/* ---- Segments -------------------------------------------------------------------------------------- */

struct segment {
	struct segment *next;
	struct py_client *client;
	uint64_t start;
	uint64_t size;
	tma_region *region;
};

struct run {
	uint64_t start;
	uint64_t end;
};

static bool is_virtual(uint64_t address)
{
	uint64_t handle;

	if (driver.cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)address) != 0)
		return false;
	driver.cuMemRelease(handle);
	return true;
}

static bool range_of(uint64_t address, struct run *ret)
{
	uint64_t base;
	size_t size;

	if (driver.cuMemGetAddressRange_v2(&base, &size, address) != 0 || size == 0)
		return false;
	*ret = (struct run){ base, base + size };
	return true;
}

/* Sets *ret to the run of allocations around start: for memory of cuMemCreate, all such allocations that
 * adjoin each other without a gap, otherwise the one allocation. Returns false if there is no allocation at
 * start, or if a run of cuMemCreate ends before start + size. */
static bool find_run(uint64_t start, uint64_t size, struct run *ret)
{
	struct run next;

	if (!range_of(start, ret))
		return false;
	if (!is_virtual(start))
		return true;
	for (int i = 0; i < MOST_NEIGHBOURS && range_of(ret->end, &next) && is_virtual(ret->end); i++)
		ret->end = next.end;
	for (int i = 0; i < MOST_NEIGHBOURS && range_of(ret->start - 1, &next) && is_virtual(ret->start - 1);
	     i++)
		ret->start = next.start;
	return ret->end >= start + size;
}

static void release(void *arg)
{
	struct segment *segment = arg;

	if (segment->client->client)
		tma_region_release(segment->region);
	free(segment);
}

/* Returns whether some of the segment's memory was freed. tma_region_find_current asks the driver about all
 * of it. */
static bool is_stale(struct py_client *c, const struct segment *segment)
{
	struct tma_place place;

	return tma_region_find_current(c->client, (void *)(uintptr_t)segment->start, segment->size, &place) <
	       0;
}

static bool is_within(const struct segment *segment, const struct segment *other)
{
	return segment->start >= other->start && segment->start + segment->size <= other->start + other->size;
}

/* Removes the segments that a new one, `kept`, contains, and those whose memory was freed. They are released
 * only when the client is unlocked, because a request that is being made may have a place in them. */
static void replace_others(struct py_client *c, const struct segment *kept)
{
	struct segment **at = &c->segments;

	while (*at) {
		struct segment *segment = *at;

		if (segment != kept && (is_within(segment, kept) || is_stale(c, segment))) {
			*at = segment->next;
			if (!py_client_defer(c, release, segment))
				free(segment); /* the region stays until the client is closed */
		} else
			at = &segment->next;
	}
}

static bool is_used(const struct resolved *r, const tma_region *region)
{
	if (r->dst_place.region == region || r->src_place.region == region ||
	    r->operands.scale.region == region || r->operands.bias.region == region ||
	    r->operands.amax_scale.region == region || r->operands.amax_inverse.region == region ||
	    r->blocks.index_at.region == region)
		return true;
	for (uint32_t i = 0; i < r->blocks.layers; i++)
		if ((r->dst_places && r->dst_places[i].region == region) ||
		    (r->src_places && r->src_places[i].region == region))
			return true;
	for (size_t i = 0; i < r->transform.n_further_dst; i++)
		if (r->further[i].region == region)
			return true;
	for (size_t i = 0; i < r->n_items; i++)
		if (is_used(&r->each[i], region))
			return true;
	for (size_t i = 0; i < r->n_slices; i++)
		if (r->slices[i].tensor.region == region)
			return true;
	return false;
}

void segments_release_stale(struct py_client *c, const struct resolved *kept)
{
	struct segment **at = &c->segments;

	while (*at) {
		struct segment *segment = *at;

		if (!(kept && is_used(kept, segment->region)) && is_stale(c, segment)) {
			*at = segment->next;
			release(segment);
		} else
			at = &segment->next;
	}
}

static int add(struct py_client *c, uint64_t start, uint64_t size)
{
	struct segment *segment = malloc(sizeof *segment);
	int rc;

	if (!segment)
		return TMA_NO_MEMORY;
	*segment = (struct segment){ .client = c, .start = start, .size = size };
	rc = tma_region_from_device_ptr(c->client, (void *)(uintptr_t)start, size, 0, &segment->region);
	if (rc < 0) {
		free(segment);
		return rc;
	}
	segment->next = c->segments;
	c->segments = segment;
	replace_others(c, segment);
	return 0;
}

/* Finds the place of device memory, or registers it. Caller holds the lock and not the GIL. Returns 0 or a
 * negative status. */
static int find(struct py_client *c, uint64_t start, uint64_t size, struct tma_place *ret)
{
	void *const pointer = (void *)(uintptr_t)start;
	struct run run;
	int rc = tma_region_find_current(c->client, pointer, size, ret);

	if (rc != TMA_NOT_FOUND)
		return rc;
	rc = find_run(start, size, &run) ? add(c, run.start, run.end - run.start) : TMA_NOT_FOUND;
	/* The run may contain another allocation that cannot be shared, so tries the range alone. If it
	 * cannot be shared either, this call fails with the reason. */
	if (rc < 0)
		rc = add(c, start, size);
	return rc < 0 ? rc : tma_region_find_current(c->client, pointer, size, ret);
}

int segments_find(struct py_client *c, const struct py_tensor *t, struct extent extent, struct tma_place *ret)
{
	const uint64_t start = (uintptr_t)extent.start;
	int rc;

	(void)t;
	if (cuda_enter(start) < 0)
		return -1;
	CLIENT_CALL(c, rc = find(c, start, extent.size, ret));
	return py_client_check(c, rc) < 0 ? -1 : 0;
}

void segments_free(struct py_client *c)
{
	while (c->segments) {
		struct segment *next = c->segments->next;

		free(c->segments);
		c->segments = next;
	}
}
