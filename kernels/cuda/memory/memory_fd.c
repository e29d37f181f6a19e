/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory by file descriptor: allocations of the driver's virtual memory management, each mapped whole
 * from its start, because a part cannot be. A region has one, or a list of them (parts) at contiguous
 * addresses. Each import is a memory of its own: the driver does not say whether two descriptors are of one
 * allocation. One that a region refers to in another region is known to be the same. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>

#include "memory.h"

static int map(struct cuda_memories *memories, const struct engine_handle *handle, struct cuda_memory *memory,
               struct error *err);
static int allocate(struct cuda_memories *memories, uint64_t size, struct cuda_memory *memory,
                    struct error *err);
static int fill_and_export(struct cuda_memories *memories, struct cuda_memory *memory,
                           struct engine_export *ret_export, struct error *err);

#define STEP_CHUNKS 32 /* allocations that a step of unmapping lets go */

static CUmemAllocationProp properties(const struct cuda_memories *memories)
{
	return (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = memories->device->handle },
	};
}

static int get_granularity(struct cuda_memories *memories, size_t *ret, struct error *err)
{
	CUmemAllocationProp wanted = properties(memories);

	return memory_call(err, cuMemGetAllocationGranularity,
	                   (ret, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
}

/* What has been taken goes back, unless nobody is there to take it. */
static void give_back(struct cuda_chunks *chunks, int status)
{
	if (status == STATUS_DEVICE_LOST)
		cuda_chunks_leave(chunks);
	else
		cuda_chunks_deinit(chunks);
}

/* Regions of one allocation are one memory, in which each has its offset. One of several is a memory of its
 * own, compared with others allocation by allocation. */
static void identify(struct cuda_memory *memory, uint64_t offset)
{
	const struct cuda_chunks *chunks = &memory->chunks;

	memory->address = memory->start + offset;
	memory->base.base = offset;
	memory->base.chunks = &memory->chunks.base;
	memory->base.memory[0] = ~(uint64_t)(chunks->n == 1 ? REGION_KIND_CUDA_FD : REGION_KIND_COUNT);
	memory->base.memory[1] = chunks->n == 1 ? chunks->list[0]->handle : memory->start;
}

int fd_memory_map(struct cuda_memories *memories, const struct engine_handle *handle,
                  struct cuda_memory *memory, struct error *err)
{
	struct cuda_chunks *chunks = &memory->chunks;
	size_t unit;
	uint64_t end;
	int r;

	if (__builtin_add_overflow(handle->offset, handle->size, &end))
		return error_set(err, STATUS_OUT_OF_RANGE,
		                 "size: offset %" PRIu64 " + size %" PRIu64 " overflows 64 bits",
		                 handle->offset, handle->size);
	r = get_granularity(memories, &unit, err);
	if (r == 0)
		r = fd_memory_take(memories, handle, unit, chunks, err);
	if (r == 0)
		r = cuda_chunks_complete(chunks, err);
	if (r == 0)
		r = map(memories, handle, memory, err);
	if (r < 0)
		give_back(chunks, r);
	else
		identify(memory, handle->offset);
	return r;
}

int fd_memory_create(struct cuda_memories *memories, const struct engine_handle *wanted,
                     struct cuda_memory *memory, struct engine_export *ret_export, struct error *err)
{
	struct error why;
	uint64_t size;
	size_t unit;
	int r = get_granularity(memories, &unit, err);

	if (r < 0)
		return r;
	if (!cuda_memory_round_up(memories, wanted->size, unit, &size))
		return error_set(err, STATUS_NO_MEMORY,
		                 "size: %" PRIu64 " bytes, but the device has %" PRIu64, wanted->size,
		                 memories->device->memory_bytes);
	r = allocate(memories, size, memory, &why);
	if (r == 0)
		r = fill_and_export(memories, memory, ret_export, &why);
	if (r < 0)
		return error_set(err, r, "size: %" PRIu64 " bytes of device memory: %s", wanted->size,
		                 why.message);
	identify(memory, 0);
	return 0;
}

/* Goes on past what fails, unless the device is lost. */
int fd_memory_unmap(struct cuda_memories *memories, struct cuda_memory *memory, struct error *err)
{
	struct cuda_chunks *chunks = &memory->chunks;
	int r = 0;

	(void)memories;
	for (int i = 0; i < STEP_CHUNKS && chunks->n > 0 && r != STATUS_DEVICE_LOST; i++) {
		const uint64_t size = chunks->list[chunks->n - 1]->size;

		r = memory_call(err, cuMemUnmap, (memory->start + chunks->size - size, size));
		if (r != STATUS_DEVICE_LOST)
			r = cuda_chunks_drop_last(chunks, err);
	}
	if (r != STATUS_DEVICE_LOST && chunks->n > 0)
		return CUDA_MEMORY_LEFT;
	if (r != STATUS_DEVICE_LOST)
		r = memory_call(err, cuMemAddressFree, (memory->start, memory->mapped));
	cuda_chunks_leave(chunks);
	return r;
}

/* ---- Mapping --------------------------------------------------------------------------------------------
 */

/* Where reading alone cannot be had, only the engine's word keeps it from writing. */
static int allow(struct cuda_memories *memories, const struct cuda_memory *memory, bool writable,
                 struct error *err)
{
	CUmemAccessDesc access = {
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = memories->device->handle },
		.flags = writable ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ,
	};
	int r = memory_call(err, cuMemSetAccess, (memory->start, memory->mapped, &access, 1));

	if (writable || (r != STATUS_UNSUPPORTED && r != STATUS_INVALID_ARGUMENT))
		return r;
	access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	return memory_call(err, cuMemSetAccess, (memory->start, memory->mapped, &access, 1));
}

/* What an error calls the memory at this byte: its part, or all of it. */
static const char *name_part(const struct engine_handle *handle, uint64_t at, char *text, size_t size)
{
	uint32_t i = 0;

	while (i < handle->n_parts && at >= handle->parts[i].size)
		at -= handle->parts[i++].size;
	if (i < handle->n_parts)
		snprintf(text, size, "parts[%" PRIu32 "].size", i);
	else
		snprintf(text, size, "allocation");
	return text;
}

/* Too few bytes and too many are UNSUPPORTED alike (driver 580). */
static int map_chunk(const struct engine_handle *handle, const struct cuda_memory *memory,
                     const struct cuda_chunk *chunk, uint64_t at, struct error *err)
{
	struct error why;
	char name[32];
	int r = memory_call(&why, cuMemMap, (memory->start + at, chunk->size, 0, chunk->handle, 0));

	if (r == STATUS_INVALID_ARGUMENT || r == STATUS_UNSUPPORTED)
		r = STATUS_OUT_OF_RANGE;
	if (r < 0)
		error_set(err, r, "%s: it is mapped as a whole and does not have %" PRIu64 " bytes: %s",
		          name_part(handle, at, name, sizeof name), chunk->size, why.message);
	return r;
}

/* The first n allocations, and all the addresses. */
static void unmap_first(struct cuda_memory *memory, uint32_t n)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < n; i++) {
		driver.cuMemUnmap(memory->start + at, memory->chunks.list[i]->size);
		at += memory->chunks.list[i]->size;
	}
	driver.cuMemAddressFree(memory->start, memory->mapped);
}

static int map(struct cuda_memories *memories, const struct engine_handle *handle, struct cuda_memory *memory,
               struct error *err)
{
	const struct cuda_chunks *chunks = &memory->chunks;
	uint64_t at = 0;
	uint32_t i = 0;
	int r;

	memory->mapped = chunks->size;
	r = memory_call(err, cuMemAddressReserve, (&memory->start, memory->mapped, 0, 0, 0));
	if (r < 0)
		return r;
	for (; r == 0 && i < chunks->n; i++) {
		r = map_chunk(handle, memory, chunks->list[i], at, err);
		at += chunks->list[i]->size;
	}
	if (r < 0)
		i--;
	else
		r = allow(memories, memory, handle->writable, err);
	if (r < 0 && r != STATUS_DEVICE_LOST)
		unmap_first(memory, i);
	return r;
}

/* ---- Making ---------------------------------------------------------------------------------------------
 */

static int allocate(struct cuda_memories *memories, uint64_t size, struct cuda_memory *memory,
                    struct error *err)
{
	const struct engine_handle all = { .writable = true };
	CUmemAllocationProp wanted = properties(memories);
	CUmemGenericAllocationHandle allocation;
	int r = cuda_chunks_reserve(&memory->chunks, 1, err);

	if (r == 0)
		r = memory_call(err, cuMemCreate, (&allocation, size, &wanted, 0));
	if (r == 0)
		r = cuda_chunks_add(&memory->chunks, allocation, size, err);
	if (r == 0)
		r = cuda_chunks_complete(&memory->chunks, err);
	if (r == 0)
		r = map(memories, &all, memory, err);
	if (r < 0)
		give_back(&memory->chunks, r);
	return r;
}

static int export_fd(const struct cuda_memory *memory, int *ret, struct error *err)
{
	int fd;
	int r =
	    memory_call(err, cuMemExportToShareableHandle,
	                (&fd, memory->chunks.list[0]->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));

	if (r < 0)
		return r;
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	*ret = fd;
	return 0;
}

/* On failure the memory is gone. */
static int fill_and_export(struct cuda_memories *memories, struct cuda_memory *memory,
                           struct engine_export *ret_export, struct error *err)
{
	struct error ignored;
	int r = cuda_memory_zero(memories, memory->start, memory->mapped, err);

	if (r == 0)
		r = export_fd(memory, &ret_export->fd, err);
	if (r == STATUS_DEVICE_LOST)
		cuda_chunks_leave(&memory->chunks);
	else if (r < 0)
		fd_memory_unmap(memories, memory, &ignored);
	return r;
}
