/* SPDX-License-Identifier: Apache-2.0 */
/* Memory pools (cudaMallocAsync), including those of other processes. A pool is one memfd, mapped as a whole
 * wherever it is used; its name identifies the pool, and an exported pointer is an offset in it. As in driver
 * 580, a pool that is imported several times is one pool with several imports, and a pointer that is imported
 * twice is freed by the first free. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "call.h"
#include "pool.h"
#include "softgpu.h"

#define NAME "softgpu-pool-"

struct pointer {
	char magic[8];
	struct pool_name name;
	uint64_t offset;
	uint64_t size;
	char rest[24];
};
_Static_assert(sizeof(struct pointer) == sizeof(CUmemPoolPtrExportData), "a pointer fills CUDA's");

static const char magic[8] = "softpool";

static TAILQ_HEAD(, pool) pools = TAILQ_HEAD_INITIALIZER(pools);

size_t pool_live(void)
{
	const struct pool *pool;
	size_t n = 0;
	TAILQ_FOREACH(pool, &pools, entry)
		n++;
	return n;
}

bool pool_reaches(const struct pool *pool, int device, enum access access)
{
	return (access == ACCESS_READ ? pool->readers : pool->writers) & device_bit(device);
}

struct pool *pool_find(CUmemoryPool handle)
{
	struct pool *pool;
	TAILQ_FOREACH(pool, &pools, entry)
		if ((CUmemoryPool)pool == handle && pool->owners > 0)
			return pool;
	return NULL;
}

static void format(char *text, size_t size, const struct pool_name *name)
{
	snprintf(text, size, NAME "%d-%d-%" PRIu64 "-", (int)name->ordinal, (int)name->pid, name->id);
}

/* Takes ownership of fd. */
static CUresult pool_new(struct pool **ret, int fd, const struct pool_name *name)
{
	struct pool *pool = fd >= 0 ? malloc(sizeof *pool) : NULL;
	uint64_t start = pool ? space_map(fd, POOL_BYTES) : 0;
	if (start == 0) {
		if (fd >= 0)
			close(fd);
		free(pool);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*pool = (struct pool){ .name = *name,
		               .fd = fd,
		               .start = start,
		               .owners = 1,
		               .readers = device_bit(name->ordinal),
		               .writers = device_bit(name->ordinal) };
	TAILQ_INSERT_HEAD(&pools, pool, entry);
	*ret = pool;
	return CUDA_SUCCESS;
}

void pool_free_unused(struct pool *pool)
{
	if (pool->owners > 0 || pool->used > 0)
		return;
	space_free(pool->start, POOL_BYTES);
	close(pool->fd);
	TAILQ_REMOVE(&pools, pool, entry);
	free(pool);
}

CUresult pool_add_range(CUdeviceptr *ret, struct pool *pool, enum range_kind kind, uint64_t start,
                        uint64_t size)
{
	struct range *range = range_add(kind, start, size);
	if (!range)
		return CUDA_ERROR_OUT_OF_MEMORY;
	range->pool = pool;
	range->home = pool->name.ordinal;
	pool->used++;
	*ret = start;
	return CUDA_SUCCESS;
}

static CUresult create(CUmemoryPool *ret, const CUmemPoolProps *properties)
{
	static uint64_t last_id;
	char text[64];
	struct pool *pool;
	if (!ret || !properties || properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
	    properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
	    !device_exists(properties->location.id))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = call_stuck(properties->location.id);
	if (result != CUDA_SUCCESS)
		return result;
	struct pool_name name = { .ordinal = properties->location.id, .pid = getpid(), .id = ++last_id };
	format(text, sizeof text, &name);
	result = pool_new(&pool, memory_new_fd(text, POOL_BYTES), &name);
	if (result != CUDA_SUCCESS)
		return result;
	pool->types = properties->handleTypes;
	*ret = (CUmemoryPool)pool;
	return CUDA_SUCCESS;
}

static CUresult destroy(CUmemoryPool handle)
{
	struct pool *pool = pool_find(handle);
	if (!pool)
		return CUDA_ERROR_INVALID_VALUE;
	pool->owners--;
	pool_free_unused(pool);
	return CUDA_SUCCESS;
}

/* Pools keep no freed memory, so their release threshold has no effect. */
static CUresult set_attribute(CUmemoryPool handle, CUmemPool_attribute attribute, const void *value)
{
	if (!pool_find(handle) || !value)
		return CUDA_ERROR_INVALID_VALUE;
	switch (attribute) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

/* ---- Devices ------------------------------------------------------------------------------------------ */

static bool is_device(const CUmemLocation *location)
{
	return location->type == CU_MEM_LOCATION_TYPE_DEVICE && device_exists(location->id);
}

/* The access of the device that holds the pool cannot be changed. */
static CUresult set_access(CUmemoryPool handle, const CUmemAccessDesc *access, size_t count)
{
	struct pool *pool = pool_find(handle);
	if (!pool || !access || count == 0)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		if (!is_device(&access[i].location) ||
		    (access[i].location.id == pool->name.ordinal &&
		     access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
			return CUDA_ERROR_INVALID_VALUE;
		if (!device_can_access(access[i].location.id, pool->name.ordinal))
			return CUDA_ERROR_INVALID_DEVICE;
	}
	for (size_t i = 0; i < count; i++) {
		device_set bit = device_bit(access[i].location.id);
		pool->readers &= (device_set)~bit;
		pool->writers &= (device_set)~bit;
		if (access[i].flags & CU_MEM_ACCESS_FLAGS_PROT_READ)
			pool->readers |= bit;
		if (access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			pool->writers |= bit;
	}
	return CUDA_SUCCESS;
}

static CUresult get_access(CUmemAccess_flags *ret, CUmemoryPool handle, const CUmemLocation *location)
{
	const struct pool *pool = pool_find(handle);
	if (!ret || !pool || !location || !is_device(location))
		return CUDA_ERROR_INVALID_VALUE;
	*ret = pool_reaches(pool, location->id, ACCESS_WRITE)  ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
	       : pool_reaches(pool, location->id, ACCESS_READ) ? CU_MEM_ACCESS_FLAGS_PROT_READ
	                                                       : CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return CUDA_SUCCESS;
}

/* ---- Other processes ---------------------------------------------------------------------------------- */

static CUresult export_pool(void *ret, CUmemoryPool handle, CUmemAllocationHandleType type,
                            unsigned long long flags)
{
	const struct pool *pool = pool_find(handle);
	if (!ret || !pool || pool->is_imported || flags != 0 || !(pool->types & type) ||
	    type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	int fd = fcntl(pool->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*(int *)ret = fd;
	return CUDA_SUCCESS;
}

static CUresult export_pointer(CUmemPoolPtrExportData *ret, CUdeviceptr address)
{
	const struct range *range = range_find_kind(address, RANGE_POOLED);
	if (!ret || !range || range->start != address || range->is_freed)
		return CUDA_ERROR_INVALID_VALUE;
	struct pointer pointer = { .name = range->pool->name,
		                   .offset = address - range->pool->start,
		                   .size = range->size };
	memcpy(pointer.magic, magic, sizeof magic);
	memcpy(ret, &pointer, sizeof pointer);
	return CUDA_SUCCESS;
}

static bool parse(int fd, struct pool_name *ret)
{
	char link[64], path[256];
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, path, sizeof path - 1);
	path[n > 0 ? n : 0] = '\0';
	return sscanf(path, "/memfd:" NAME "%" SCNd32 "-%" SCNd32 "-%" SCNu64, &ret->ordinal, &ret->pid,
	              &ret->id) == 3;
}

/* The results are those of the real driver. */
static CUresult import_pool(CUmemoryPool *ret, void *os_handle, CUmemAllocationHandleType type,
                            unsigned long long flags)
{
	int fd = (int)(intptr_t)os_handle;
	struct pool_name name;
	struct pool *pool;
	if (!ret || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (memory_is_fd(fd, "softgpu-allocation-"))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!parse(fd, &name) || !device_exists(name.ordinal))
		return CUDA_ERROR_UNKNOWN;
	TAILQ_FOREACH(pool, &pools, entry)
		if (pool->is_imported && pool->owners > 0 && memcmp(&pool->name, &name, sizeof name) == 0) {
			pool->owners++;
			*ret = (CUmemoryPool)pool;
			return CUDA_SUCCESS;
		}
	CUresult result = pool_new(&pool, fcntl(fd, F_DUPFD_CLOEXEC, 0), &name);
	if (result != CUDA_SUCCESS)
		return result;
	pool->is_imported = true;
	*ret = (CUmemoryPool)pool;
	return CUDA_SUCCESS;
}

static CUresult import_pointer(CUdeviceptr *ret, CUmemoryPool handle, const CUmemPoolPtrExportData *data)
{
	struct pool *pool = pool_find(handle);
	struct pointer pointer;
	if (!ret || !data || !pool || !pool->is_imported)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&pointer, data, sizeof pointer);
	if (memcmp(pointer.magic, magic, sizeof magic) != 0 ||
	    memcmp(&pointer.name, &pool->name, sizeof pool->name) != 0 || pointer.size == 0 ||
	    pointer.offset > POOL_BYTES || pointer.size > POOL_BYTES - pointer.offset)
		return CUDA_ERROR_INVALID_VALUE;
	const struct range *range = range_find(pool->start + pointer.offset);
	if (!range || range->start != pool->start + pointer.offset || range->is_freed)
		return pool_add_range(ret, pool, RANGE_IMPORTED, pool->start + pointer.offset, pointer.size);
	*ret = range->start;
	return CUDA_SUCCESS;
}

/* ---- Entry points ------------------------------------------------------------------------------------- */

CUresult CUDAAPI cuMemPoolCreate(CUmemoryPool *ret, const CUmemPoolProps *properties)
{
	return leave(enter_mapping(ENTRY_cuMemPoolCreate) ?: create(ret, properties));
}

CUresult CUDAAPI cuMemPoolDestroy(CUmemoryPool pool)
{
	return leave(enter_mapping(ENTRY_cuMemPoolDestroy) ?: destroy(pool));
}

CUresult CUDAAPI cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
	return leave(enter(ENTRY_cuMemPoolSetAttribute) ?: set_attribute(pool, attribute, value));
}

CUresult CUDAAPI cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count)
{
	return leave(enter(ENTRY_cuMemPoolSetAccess) ?: set_access(pool, access, count));
}

CUresult CUDAAPI cuMemPoolGetAccess(CUmemAccess_flags *ret, CUmemoryPool pool, CUmemLocation *location)
{
	return leave(enter(ENTRY_cuMemPoolGetAccess) ?: get_access(ret, pool, location));
}

CUresult CUDAAPI cuMemPoolExportToShareableHandle(void *ret, CUmemoryPool pool,
                                                  CUmemAllocationHandleType type, unsigned long long flags)
{
	return leave(enter(ENTRY_cuMemPoolExportToShareableHandle) ?: export_pool(ret, pool, type, flags));
}

CUresult CUDAAPI cuMemPoolImportFromShareableHandle(CUmemoryPool *ret, void *handle,
                                                    CUmemAllocationHandleType type, unsigned long long flags)
{
	return leave(enter_mapping(ENTRY_cuMemPoolImportFromShareableHandle)
	                 ?: import_pool(ret, handle, type, flags));
}

CUresult CUDAAPI cuMemPoolExportPointer(CUmemPoolPtrExportData *ret, CUdeviceptr address)
{
	return leave(enter(ENTRY_cuMemPoolExportPointer) ?: export_pointer(ret, address));
}

CUresult CUDAAPI cuMemPoolImportPointer(CUdeviceptr *ret, CUmemoryPool pool, CUmemPoolPtrExportData *data)
{
	return leave(enter_mapping(ENTRY_cuMemPoolImportPointer) ?: import_pointer(ret, pool, data));
}
