/* SPDX-License-Identifier: Apache-2.0 */
/* cuMemAlloc and related calls, and the attributes of pointers. */
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "call.h"
#include "softgpu.h"

/* ---- Allocation -------------------------------------------------------------------------------------- */

/* cuIpcOpenMemHandle compares the memfd's name, which distinguishes allocations that have the same descriptor
 * number one after the other. */
static CUresult allocate(CUdeviceptr *ret, size_t size)
{
	char name[64];
	if (!ret || size == 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (size > memory_free(context_current()->ordinal))
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct range *range = range_add(RANGE_MEMORY, 0, 0);
	if (!range)
		return CUDA_ERROR_OUT_OF_MEMORY;
	snprintf(name, sizeof name, "softgpu-memory-%d-%" PRIu64 "-", (int)getpid(), range->id);
	range->fd = memory_new_fd(name, size);
	if (range->fd >= 0)
		range->start = space_map(range->fd, size);
	if (range->start == 0) {
		range_remove(range);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	range->size = size;
	memory_charge(range->home, size);
	*ret = range->start;
	return CUDA_SUCCESS;
}

/* Frees a range of memory that belongs to a context. */
static void range_destroy(struct range *range)
{
	if (range->kind == RANGE_MEMORY)
		memory_discharge(range->home, range->size);
	if (range->kind != RANGE_HOST)
		space_free(range->start, range->size);
	else if (range->is_allocated)
		munmap((void *)range->start, range->size);
	range_remove(range);
}

/* Memory of a pool or of cuMemCreate belongs to the device instead. */
static bool belongs_to_context(const struct range *range)
{
	return range->kind == RANGE_MEMORY || range->kind == RANGE_OPENED || range->kind == RANGE_HOST;
}

void ranges_destroy(const struct context *context)
{
	struct range *range, *next;
	for (range = TAILQ_FIRST(&ranges); range; range = next) {
		next = TAILQ_NEXT(range, entry);
		if (range->context == context && belongs_to_context(range))
			range_destroy(range);
	}
}

/* Waits for the work under way on the devices that may access the memory, as the driver does. */
static CUresult release(CUdeviceptr pointer)
{
	struct range *range = range_find_kind(pointer, RANGE_MEMORY);
	if (pointer == 0)
		return CUDA_SUCCESS;
	if (!range || range->start != pointer)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = context_fails(range->context) ?: queue_drain(range_users(range), range->home);
	if (result != CUDA_SUCCESS)
		return result;
	range_destroy(range);
	return CUDA_SUCCESS;
}

static CUresult get_info(size_t *ret_free, size_t *ret_total)
{
	if (!ret_free || !ret_total)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_free = memory_free(context_current()->ordinal);
	*ret_total = device_memory_bytes();
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAlloc(CUdeviceptr *ret, size_t size)
{
	return leave(enter(ENTRY_cuMemAlloc) ?: allocate(ret, size));
}

CUresult CUDAAPI cuMemFree(CUdeviceptr pointer)
{
	return leave(enter(ENTRY_cuMemFree) ?: release(pointer));
}

CUresult CUDAAPI cuMemGetInfo(size_t *ret_free, size_t *ret_total)
{
	return leave(enter(ENTRY_cuMemGetInfo) ?: get_info(ret_free, ret_total));
}

/* ---- What a pointer points to ------------------------------------------------------------------------- */

static CUresult get_address_range(CUdeviceptr *ret_base, size_t *ret_size, CUdeviceptr pointer)
{
	const struct range *range = range_find(pointer);
	if (!range || range->kind == RANGE_RESERVED)
		return CUDA_ERROR_NOT_FOUND;
	if (ret_base)
		*ret_base = range->start;
	if (ret_size)
		*ret_size = range->size;
	return CUDA_SUCCESS;
}

/* Returns the reservation that a mapping lies in: cuMemGetAddressRange reports that. Returns any other range
 * unchanged. */
static const struct range *whole(const struct range *range)
{
	return range->kind == RANGE_MAPPED ? range_find_kind(range->start, RANGE_RESERVED) : range;
}

static CUresult get_attribute(void *ret, CUpointer_attribute attribute, CUdeviceptr pointer)
{
	const struct range *range = range_find(pointer);
	if (!ret || !range)
		return CUDA_ERROR_INVALID_VALUE;
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)ret = belongs_to_context(range) ? (CUcontext)range->context : NULL;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned int *)ret = range->kind == RANGE_HOST ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*(CUdeviceptr *)ret = pointer;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		if (range->kind != RANGE_HOST)
			return CUDA_ERROR_INVALID_VALUE;
		*(void **)ret = (void *)pointer;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*(unsigned long long *)ret = range->id;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned int *)ret = 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)ret = range->home;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		*(unsigned int *)ret = range->kind == RANGE_MEMORY;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*(CUmemoryPool *)ret = (CUmemoryPool)range->pool;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)ret = whole(range)->start;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)ret = whole(range)->size;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*(unsigned int *)ret = range->kind != RANGE_RESERVED;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		*(unsigned int *)ret =
		    range->allocation ? range->allocation->properties.requestedHandleTypes : 0;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult CUDAAPI cuMemGetAddressRange(CUdeviceptr *ret_base, size_t *ret_size, CUdeviceptr pointer)
{
	return leave(enter(ENTRY_cuMemGetAddressRange) ?: get_address_range(ret_base, ret_size, pointer));
}

CUresult CUDAAPI cuPointerGetAttribute(void *ret, CUpointer_attribute attribute, CUdeviceptr pointer)
{
	return leave(enter(ENTRY_cuPointerGetAttribute) ?: get_attribute(ret, attribute, pointer));
}
