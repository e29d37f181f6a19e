/* SPDX-License-Identifier: Apache-2.0 */
/* Reserved addresses, and allocations mapped into them. */
#include <sys/mman.h>

#include "call.h"
#include "softgpu.h"

static bool is_whole(uint64_t bytes)
{
	return bytes > 0 && bytes % GRANULARITY_BYTES == 0;
}

static CUresult reserve(CUdeviceptr *ret, size_t size, size_t alignment, unsigned long long flags)
{
	uint64_t align = alignment > GRANULARITY_BYTES ? alignment : GRANULARITY_BYTES;
	if (!ret || flags != 0 || !is_whole(size) || (alignment & (alignment - 1)))
		return CUDA_ERROR_INVALID_VALUE;
	uint64_t start = space_new(size, align);
	if (start == 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!range_add(RANGE_RESERVED, start, size)) {
		space_free(start, size);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret = start;
	return CUDA_SUCCESS;
}

static bool has_mapping(uint64_t start, uint64_t size)
{
	const struct range *range;
	TAILQ_FOREACH(range, &ranges, entry)
		if (range->kind == RANGE_MAPPED && range->start < start + size &&
		    start < range->start + range->size)
			return true;
	return false;
}

static CUresult address_free(CUdeviceptr start, size_t size)
{
	struct range *range = range_find_kind(start, RANGE_RESERVED);
	if (!range || range->start != start || range->size != size || has_mapping(start, size))
		return CUDA_ERROR_INVALID_VALUE;
	space_free(start, size);
	range_remove(range);
	return CUDA_SUCCESS;
}

static CUresult map(CUdeviceptr start, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                    unsigned long long flags)
{
	struct allocation *allocation = allocation_find(handle);
	const struct range *reserved = range_find_kind(start, RANGE_RESERVED);
	if (!allocation || !reserved || flags != 0 || offset != 0 || !is_whole(size) ||
	    start % GRANULARITY_BYTES != 0 || size > reserved->size - (start - reserved->start) ||
	    has_mapping(start, size))
		return CUDA_ERROR_INVALID_VALUE;
	if (size != allocation->size) /* Driver 580 requires this. */
		return CUDA_ERROR_NOT_SUPPORTED;
	struct range *range = range_add(RANGE_MAPPED, start, size);
	if (!range)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (mmap((void *)start, size, PROT_NONE, MAP_SHARED | MAP_FIXED, allocation->fd, 0) == MAP_FAILED) {
		range_remove(range);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	range->allocation = allocation;
	range->home = allocation->properties.location.id;
	allocation->mappings++;
	return CUDA_SUCCESS;
}

static CUresult unmap(CUdeviceptr start, size_t size)
{
	struct range *range = range_find_kind(start, RANGE_MAPPED);
	if (!range || range->start != start || range->size != size)
		return CUDA_ERROR_INVALID_VALUE;
	mmap((void *)start, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	range->allocation->mappings--;
	allocation_free_unused(range->allocation);
	range_remove(range);
	return CUDA_SUCCESS;
}

static bool is_access(const CUmemAccessDesc *access)
{
	return access->location.type == CU_MEM_LOCATION_TYPE_DEVICE && device_exists(access->location.id) &&
	       access->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

/* Checks the mapping at the address: it has to exist and to end by end. */
static CUresult check_mapping(uint64_t at, uint64_t end, const CUmemAccessDesc *access, size_t count,
                              uint64_t *ret_size)
{
	const struct range *range = range_find_kind(at, RANGE_MAPPED);
	if (!range || range->start != at || range->size > end - at)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++)
		if (!device_can_access(access[i].location.id, range->home))
			return CUDA_ERROR_INVALID_DEVICE;
	*ret_size = range->size;
	return CUDA_SUCCESS;
}

/* The host's page protection is the union of what the devices may do; each access of a device is checked by
 * range_reaches. */
static void apply(struct range *range, const CUmemAccessDesc *access, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		device_set bit = device_bit(access[i].location.id);
		range->readers |= bit;
		range->writers &= (device_set)~bit;
		if (access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			range->writers |= bit;
	}
	mprotect((void *)range->start, range->size, range->writers ? PROT_READ | PROT_WRITE : PROT_READ);
}

/* The range has to consist of whole mappings. Devices that access does not name keep the rights that they
 * have. */
static CUresult set_access(CUdeviceptr start, size_t size, const CUmemAccessDesc *access, size_t count)
{
	uint64_t end, here;
	if (!is_whole(size) || __builtin_add_overflow(start, size, &end) || !access || count == 0)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++)
		if (!is_access(&access[i]))
			return CUDA_ERROR_INVALID_VALUE;
	for (uint64_t at = start; at < end; at += here) {
		CUresult result = check_mapping(at, end, access, count, &here);
		if (result != CUDA_SUCCESS)
			return result;
	}
	for (uint64_t at = start; at < end; at += here) {
		struct range *range = range_find_kind(at, RANGE_MAPPED);
		apply(range, access, count);
		here = range->size;
	}
	return CUDA_SUCCESS;
}

static CUresult get_access(unsigned long long *ret, const CUmemLocation *location, CUdeviceptr address)
{
	const struct range *range = range_find_kind(address, RANGE_MAPPED);
	if (!ret || !location || !range || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device_exists(location->id))
		return CUDA_ERROR_INVALID_DEVICE;
	device_set bit = device_bit(location->id);
	*ret = range->writers & bit   ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
	       : range->readers & bit ? CU_MEM_ACCESS_FLAGS_PROT_READ
	                              : CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr *ret, size_t size, size_t alignment, CUdeviceptr hint,
                                     unsigned long long flags)
{
	(void)hint;
	return leave(enter(ENTRY_cuMemAddressReserve) ?: reserve(ret, size, alignment, flags));
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr start, size_t size)
{
	return leave(enter(ENTRY_cuMemAddressFree) ?: address_free(start, size));
}

CUresult CUDAAPI cuMemMap(CUdeviceptr start, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                          unsigned long long flags)
{
	return leave(enter_mapping(ENTRY_cuMemMap) ?: map(start, size, offset, handle, flags));
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr start, size_t size)
{
	return leave(enter_mapping(ENTRY_cuMemUnmap) ?: unmap(start, size));
}

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr start, size_t size, const CUmemAccessDesc *access, size_t count)
{
	return leave(enter_mapping(ENTRY_cuMemSetAccess) ?: set_access(start, size, access, count));
}

CUresult CUDAAPI cuMemGetAccess(unsigned long long *ret, const CUmemLocation *location, CUdeviceptr address)
{
	return leave(enter(ENTRY_cuMemGetAccess) ?: get_access(ret, location, address));
}
