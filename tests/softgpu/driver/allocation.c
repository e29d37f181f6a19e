/* SPDX-License-Identifier: Apache-2.0 */
/* Physical memory without an address, as cuMemCreate makes it. An allocation lives while it has a handle or a
 * mapping (mapping.c). Exporting it hands out a duplicate of its memfd, whose name carries the device;
 * importing that descriptor creates a separate allocation over the same memfd. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "call.h"
#include "softgpu.h"

#define NAME "softgpu-allocation-"

static TAILQ_HEAD(, allocation) allocations = TAILQ_HEAD_INITIALIZER(allocations);

size_t allocation_live(void)
{
	const struct allocation *allocation;
	size_t n = 0;
	TAILQ_FOREACH(allocation, &allocations, entry)
		n++;
	return n;
}

static CUresult check_properties(const CUmemAllocationProp *properties)
{
	if (!properties || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
	    properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	if (properties->requestedHandleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	return device_exists(properties->location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult get_granularity(size_t *ret, const CUmemAllocationProp *properties)
{
	CUresult result = check_properties(properties);
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*ret = GRANULARITY_BYTES;
	return result;
}

/* Takes ownership of fd. */
static CUresult allocation_new(CUmemGenericAllocationHandle *ret, int fd, uint64_t size,
                               const CUmemAllocationProp *properties, struct allocation **ret_allocation)
{
	struct allocation *allocation = fd >= 0 ? malloc(sizeof *allocation) : NULL;
	if (!allocation) {
		if (fd >= 0)
			close(fd);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*allocation = (struct allocation){ .fd = fd, .size = size, .handles = 1, .properties = *properties };
	TAILQ_INSERT_HEAD(&allocations, allocation, entry);
	*ret = (CUmemGenericAllocationHandle)allocation;
	*ret_allocation = allocation;
	return CUDA_SUCCESS;
}

void allocation_free_unused(struct allocation *allocation)
{
	if (allocation->handles > 0 || allocation->mappings > 0)
		return;
	if (allocation->is_charged)
		memory_discharge(allocation->properties.location.id, allocation->size);
	close(allocation->fd);
	TAILQ_REMOVE(&allocations, allocation, entry);
	free(allocation);
}

struct allocation *allocation_find(CUmemGenericAllocationHandle handle)
{
	struct allocation *allocation;
	TAILQ_FOREACH(allocation, &allocations, entry)
		if ((CUmemGenericAllocationHandle)allocation == handle && allocation->handles > 0)
			return allocation;
	return NULL;
}

static CUresult create(CUmemGenericAllocationHandle *ret, size_t size, const CUmemAllocationProp *properties,
                       unsigned long long flags)
{
	struct allocation *allocation;
	char name[64];
	CUresult result = check_properties(properties);
	if (result != CUDA_SUCCESS)
		return result;
	if (!ret || flags != 0 || size == 0 || size % GRANULARITY_BYTES != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if ((result = call_stuck(properties->location.id)) != CUDA_SUCCESS)
		return result;
	if (size > memory_free(properties->location.id))
		return CUDA_ERROR_OUT_OF_MEMORY;
	snprintf(name, sizeof name, NAME "%d-", properties->location.id);
	result = allocation_new(ret, memory_new_fd(name, size), size, properties, &allocation);
	if (result == CUDA_SUCCESS) {
		allocation->is_charged = true;
		memory_charge(properties->location.id, size);
	}
	return result;
}

static CUresult release(CUmemGenericAllocationHandle handle)
{
	struct allocation *allocation = allocation_find(handle);
	if (!allocation)
		return CUDA_ERROR_INVALID_VALUE;
	allocation->handles--;
	allocation_free_unused(allocation);
	return CUDA_SUCCESS;
}

static CUresult get_properties(CUmemAllocationProp *ret, CUmemGenericAllocationHandle handle)
{
	const struct allocation *allocation = allocation_find(handle);
	if (!ret || !allocation)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = allocation->properties;
	return CUDA_SUCCESS;
}

static CUresult retain(CUmemGenericAllocationHandle *ret, const void *address)
{
	const struct range *range = range_find_kind((uint64_t)address, RANGE_MAPPED);
	if (!ret || !range)
		return CUDA_ERROR_INVALID_VALUE;
	range->allocation->handles++;
	*ret = (CUmemGenericAllocationHandle)range->allocation;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetAllocationGranularity(size_t *ret, const CUmemAllocationProp *properties,
                                               CUmemAllocationGranularity_flags option)
{
	(void)option;
	return leave(enter(ENTRY_cuMemGetAllocationGranularity) ?: get_granularity(ret, properties));
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *ret, size_t size,
                             const CUmemAllocationProp *properties, unsigned long long flags)
{
	return leave(enter_mapping(ENTRY_cuMemCreate) ?: create(ret, size, properties, flags));
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle)
{
	return leave(enter(ENTRY_cuMemRelease) ?: release(handle));
}

CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *ret,
                                                        CUmemGenericAllocationHandle handle)
{
	return leave(enter(ENTRY_cuMemGetAllocationPropertiesFromHandle) ?: get_properties(ret, handle));
}

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *ret, void *address)
{
	return leave(enter(ENTRY_cuMemRetainAllocationHandle) ?: retain(ret, address));
}

/* ---- Other processes ---------------------------------------------------------------------------------- */

static CUresult export(void *ret, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                       unsigned long long flags)
{
	const struct allocation *allocation = allocation_find(handle);
	if (!ret || !allocation || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
	    !(allocation->properties.requestedHandleTypes & type))
		return CUDA_ERROR_INVALID_VALUE;
	int fd = fcntl(allocation->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*(int *)ret = fd;
	return CUDA_SUCCESS;
}

static CUresult import(CUmemGenericAllocationHandle *ret, void *os_handle, CUmemAllocationHandleType type)
{
	int fd = (int)(intptr_t)os_handle;
	CUmemAllocationProp properties = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location.type = CU_MEM_LOCATION_TYPE_DEVICE,
	};
	struct allocation *allocation;
	char name[64];
	struct stat st;
	if (!ret || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	for (int i = 0; device_exists(i); i++) {
		properties.location.id = i;
		snprintf(name, sizeof name, NAME "%d-", i);
		if (memory_is_fd(fd, name) && fstat(fd, &st) == 0)
			return allocation_new(ret, fcntl(fd, F_DUPFD_CLOEXEC, 0), (uint64_t)st.st_size,
			                      &properties, &allocation);
	}
	return CUDA_ERROR_UNKNOWN; /* Driver 580 returns this as well, and remains usable. */
}

CUresult CUDAAPI cuMemExportToShareableHandle(void *ret, CUmemGenericAllocationHandle handle,
                                              CUmemAllocationHandleType type, unsigned long long flags)
{
	return leave(enter(ENTRY_cuMemExportToShareableHandle) ?: export(ret, handle, type, flags));
}

CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *ret, void *os_handle,
                                                CUmemAllocationHandleType type)
{
	return leave(enter_mapping(ENTRY_cuMemImportFromShareableHandle) ?: import(ret, os_handle, type));
}
