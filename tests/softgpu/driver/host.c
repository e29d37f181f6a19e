/* SPDX-License-Identifier: Apache-2.0 */
/* Registered host memory. What the process has mapped, and with which rights, is read from the kernel. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>

#include "call.h"
#include "softgpu.h"

/* Returns whether all of the range is mapped, and is writable if writable is set. */
static bool is_mapped(uint64_t start, uint64_t size, bool writable)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512], mode[5];
	uint64_t at = start, first, last;
	while (maps && at < start + size && fgets(line, sizeof line, maps)) {
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", &first, &last, mode) != 3 || last <= at)
			continue;
		if (first > at || mode[0] != 'r' || (writable && mode[1] != 'w'))
			break;
		at = last;
	}
	if (maps)
		fclose(maps);
	return at >= start + size;
}

/* Pages beyond the end of a file cannot be pinned, nor can holes watched by userfaultfd. Kernels before 5.14
 * cannot tell, which counts as success. */
static bool has_pages(void *start, size_t size)
{
	return madvise(start, size, MADV_POPULATE_READ) == 0 || errno == EINVAL;
}

static bool is_registered(uint64_t start, uint64_t size)
{
	const struct range *range;
	TAILQ_FOREACH(range, &ranges, entry)
		if (range->kind == RANGE_HOST && range->start < start + size &&
		    start < range->start + range->size)
			return true;
	return false;
}

static CUresult host_register(void *p, size_t size, unsigned int flags)
{
	const unsigned int known =
	    CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY;
	uint64_t start = (uint64_t)p, end;
	bool writable = !(flags & CU_MEMHOSTREGISTER_READ_ONLY);
	if (!p || size == 0 || (flags & ~known) || __builtin_add_overflow(start, size, &end))
		return CUDA_ERROR_INVALID_VALUE;
	if (is_registered(start, size))
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	if (!is_mapped(start, size, writable) || !has_pages(p, size))
		return CUDA_ERROR_INVALID_VALUE;
	struct range *range = range_add(RANGE_HOST, start, size);
	if (!range)
		return CUDA_ERROR_OUT_OF_MEMORY;
	range->writable = writable;
	return CUDA_SUCCESS;
}

static CUresult host_unregister(void *p)
{
	struct range *range = range_find_kind((uint64_t)p, RANGE_HOST);
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	if (!range || range->start != (uint64_t)p || range->is_allocated)
		return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	CUresult result = queue_drain(ALL_DEVICES, range->home);
	if (result == CUDA_SUCCESS)
		range_remove(range);
	return result;
}

static CUresult host_alloc(void **ret, size_t size, unsigned int flags)
{
	const unsigned int known = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
	if (!ret || size == 0 || (flags & ~known))
		return CUDA_ERROR_INVALID_VALUE;
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct range *range = range_add(RANGE_HOST, (uint64_t)p, size);
	if (!range) {
		munmap(p, size);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	range->is_allocated = true;
	*ret = p;
	return CUDA_SUCCESS;
}

static CUresult host_free(void *p)
{
	struct range *range = range_find_kind((uint64_t)p, RANGE_HOST);
	if (!p || !range || range->start != (uint64_t)p || !range->is_allocated)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = queue_drain(ALL_DEVICES, range->home);
	if (result != CUDA_SUCCESS)
		return result;
	munmap(p, range->size);
	range_remove(range);
	return CUDA_SUCCESS;
}

static CUresult get_device_pointer(CUdeviceptr *ret, void *p, unsigned int flags)
{
	if (!ret || flags != 0 || !range_find_kind((uint64_t)p, RANGE_HOST))
		return CUDA_ERROR_INVALID_VALUE;
	*ret = (CUdeviceptr)p;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostRegister(void *p, size_t size, unsigned int flags)
{
	return leave(enter_mapping(ENTRY_cuMemHostRegister) ?: host_register(p, size, flags));
}

CUresult CUDAAPI cuMemHostUnregister(void *p)
{
	return leave(enter_mapping(ENTRY_cuMemHostUnregister) ?: host_unregister(p));
}

CUresult CUDAAPI cuMemHostGetDevicePointer(CUdeviceptr *ret, void *p, unsigned int flags)
{
	return leave(enter(ENTRY_cuMemHostGetDevicePointer) ?: get_device_pointer(ret, p, flags));
}

CUresult CUDAAPI cuMemHostAlloc(void **ret, size_t size, unsigned int flags)
{
	return leave(enter_mapping(ENTRY_cuMemHostAlloc) ?: host_alloc(ret, size, flags));
}

CUresult CUDAAPI cuMemFreeHost(void *p)
{
	return leave(enter_mapping(ENTRY_cuMemFreeHost) ?: host_free(p));
}
