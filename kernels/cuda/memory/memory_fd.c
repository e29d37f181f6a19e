/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory by file descriptor: allocations of the driver's virtual memory management, each mapped as a
 * whole from its start, because the driver cannot map a part. A region has one allocation, or a list of them
 * (parts) at contiguous addresses. Each import counts as a different memory, because the driver does not say
 * whether two descriptors stand for the same allocation. Only an allocation that a region takes from another
 * region is known to be the same. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "memory.h"

/* ---- Taking -------------------------------------------------------------------------------------------- */

/* This section checks descriptors that a client shares and imports their memory, or takes parts of another
 * region. The caller gives back what was taken, even if the call fails. */

/* Returns whether the number is the major number of a character device of the NVIDIA driver's, according to
 * /proc/devices. */
static bool is_driver_major(unsigned wanted)
{
	FILE *file = fopen("/proc/devices", "re");
	bool found = false;
	char line[128];

	if (!file)
		return false;
	while (!found && fgets(line, sizeof line, file) && strncmp(line, "Block", 5) != 0) {
		unsigned major;
		char name[64];

		found = sscanf(line, "%u %63s", &major, name) == 2 && major == wanted &&
		        strncmp(name, "nvidia", 6) == 0;
	}
	fclose(file);
	return found;
}

/* Only the driver's own files, and memfds, with which it does nothing, are passed to the driver. The file
 * system of any other file is not asked anything, because it could delay its answer for ever. */
int fd_memory_check(int fd, struct error *err)
{
	struct statx status;
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0)
		return error_set(err, STATUS_INVALID_ARGUMENT, "fd: %s", strerror(errno));
	if (flags & O_PATH)
		return error_set(err, STATUS_INVALID_ARGUMENT, "fd: it is not open for reading (O_PATH)");
	if (fcntl(fd, F_GET_SEALS) >= 0)
		return 0;
	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &status) < 0)
		return error_set(err, STATUS_INVALID_ARGUMENT, "fd: %s", strerror(errno));
	if (!S_ISCHR(status.stx_mode) || !is_driver_major(status.stx_rdev_major))
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "fd: it does not come from the NVIDIA driver; export it with "
		                 "cuMemExportToShareableHandle");
	return 0;
}

static int check_properties(struct cuda_memories *memories, const struct engine_handle *handle,
                            const CUmemAllocationProp *found, struct error *err)
{
	if (found->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
	    found->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "fd: the allocation is not pinned device memory (type %d, location %d)",
		                 (int)found->type, (int)found->location.type);
	return cuda_memory_check_location(memories, handle, found->location.id, "fd: the allocation", err);
}

static int import(struct cuda_memories *memories, const struct engine_handle *handle, int fd,
                  CUmemGenericAllocationHandle *ret, struct error *err)
{
	CUmemAllocationProp found = { 0 };
	struct error why;
	int r = memory_call(&why, cuMemImportFromShareableHandle,
	                    (ret, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));

	if (r < 0)
		return error_set(err, cuda_memory_refusal(&why), "fd: the driver cannot import it: %s",
		                 why.message);
	r = memory_call(err, cuMemGetAllocationPropertiesFromHandle, (&found, *ret));
	if (r == 0)
		r = check_properties(memories, handle, &found, err);
	if (r < 0)
		driver.cuMemRelease(*ret);
	return r;
}

/* Imports the one allocation of the region's own descriptor. */
static int take_one(struct cuda_memories *memories, const struct engine_handle *handle, uint64_t unit,
                    struct cuda_chunks *chunks, struct error *err)
{
	const uint64_t end = handle->offset + handle->size;
	CUmemGenericAllocationHandle allocation;
	uint64_t size;
	int r = handle->allocation ? cuda_memory_check_range(handle, handle->allocation, err) : 0;

	if (r < 0)
		return r;
	if (!cuda_memory_round_up(memories, handle->allocation ? handle->allocation : end, unit, &size))
		return error_set(err, STATUS_OUT_OF_RANGE,
		                 "%s: %" PRIu64 " bytes exceed the %" PRIu64 " that the device has",
		                 handle->allocation ? "allocation" : "size",
		                 handle->allocation ? handle->allocation : end,
		                 memories->device->memory_bytes);
	r = fd_memory_check(handle->fd, err);
	if (r == 0)
		r = cuda_chunks_reserve(chunks, 1, err);
	if (r == 0)
		r = import(memories, handle, handle->fd, &allocation, err);
	return r < 0 ? r : cuda_chunks_add(chunks, allocation, size, err);
}

/* Checks the sizes of all parts before anything is imported: each must be possible for an allocation, and
 * their sum must fit the device. */
static int check_parts(struct cuda_memories *memories, const struct engine_handle *handle, uint64_t unit,
                       struct error *err)
{
	const uint64_t most = memories->device->memory_bytes;
	uint64_t total = 0;

	for (uint32_t i = 0; i < handle->n_parts; i++) {
		const uint64_t size = handle->parts[i].size;

		if (size == 0 || size % unit)
			return error_set(err, STATUS_INVALID_ARGUMENT,
			                 "parts[%" PRIu32 "].size: %" PRIu64
			                 " bytes are no allocations, which have multiples of %" PRIu64,
			                 i, size, unit);
		if (size > most || total > most - size)
			return error_set(err, STATUS_OUT_OF_RANGE,
			                 "parts[%" PRIu32 "].size: %" PRIu64 " bytes, after %" PRIu64
			                 " of the parts before, exceed the %" PRIu64 " that the device has",
			                 i, size, total, most);
		total += size;
	}
	if (handle->offset > total || handle->size > total - handle->offset)
		return error_set(err, STATUS_OUT_OF_RANGE,
		                 "size: offset %" PRIu64 " + size %" PRIu64
		                 " exceeds the parts, which have %" PRIu64 " bytes",
		                 handle->offset, handle->size, total);
	return 0;
}

static int take_part(struct cuda_memories *memories, const struct engine_handle *handle,
                     const struct engine_part *part, struct cuda_chunks *chunks, struct error *err)
{
	CUmemGenericAllocationHandle allocation;
	int r;

	if (part->memory)
		return cuda_chunks_share(chunks, &cuda_memory(part->memory)->chunks, part->offset, part->size,
		                         err);
	r = fd_memory_check(part->fd, err);
	if (r == 0)
		r = cuda_chunks_reserve(chunks, 1, err);
	if (r == 0)
		r = import(memories, handle, part->fd, &allocation, err);
	return r < 0 ? r : cuda_chunks_add(chunks, allocation, part->size, err);
}

static int take_parts(struct cuda_memories *memories, const struct engine_handle *handle, uint64_t unit,
                      struct cuda_chunks *chunks, struct error *err)
{
	struct error why;
	int r = check_parts(memories, handle, unit, err);

	for (uint32_t i = 0; r == 0 && i < handle->n_parts; i++) {
		if (handle->unwanted && atomic_load(handle->unwanted))
			return error_set(err, STATUS_CANCELED, "nobody is waiting for the memory any longer");
		r = take_part(memories, handle, &handle->parts[i], chunks, &why);
		if (r < 0)
			error_set(err, r, "parts[%" PRIu32 "]: %s", i, why.message);
	}
	return r;
}

/* Adds the allocations of a handle to chunks. The handle's offset + size must fit 64 bits. unit is the
 * granularity of allocations in bytes. */
static int fd_memory_take(struct cuda_memories *memories, const struct engine_handle *handle, uint64_t unit,
                          struct cuda_chunks *chunks, struct error *err)
{
	return handle->n_parts ? take_parts(memories, handle, unit, chunks, err)
	                       : take_one(memories, handle, unit, chunks, err);
}

static int map(struct cuda_memories *memories, const struct engine_handle *handle, struct cuda_memory *memory,
               struct error *err);
static int allocate(struct cuda_memories *memories, uint64_t size, struct cuda_memory *memory,
                    struct error *err);
static int fill_and_export(struct cuda_memories *memories, struct cuda_memory *memory,
                           struct engine_export *ret_export, struct error *err);

#define STEP_CHUNKS 32 /* maximum number of allocations that one step of unmapping releases */

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

/* Gives back the allocations that were taken; on a lost device no driver call is made. */
static void give_back(struct cuda_chunks *chunks, int status)
{
	if (status == STATUS_DEVICE_LOST)
		cuda_chunks_leave(chunks);
	else
		cuda_chunks_deinit(chunks);
}

/* Sets the memory's identity, from which overlaps of regions are found. Regions of a single allocation have
 * the identity of that allocation and an offset in it. A region of several allocations has one of its own and
 * is compared with others allocation by allocation. */
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

/* Unmaps up to STEP_CHUNKS allocations, the last ones of the memory. After a failure it goes on with the next
 * one, unless the device is lost. */
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

/* Gives the device access to the memory. Where the driver does not support read-only access, it gives full
 * access, and the engine itself must not write. */
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

/* Returns the name of the memory at byte `at` for an error: its part, or the allocation. The name is written
 * to text, which has room for `size` bytes. */
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

/* Maps an allocation as a whole at byte `at` of the memory. If the allocation does not have chunk->size
 * bytes, but more or fewer, the driver reports UNSUPPORTED (driver 580). */
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

/* Unmaps the first n allocations, and frees the whole range of addresses. */
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

/* Zeros new memory and exports it. On failure the memory has been unmapped, except on a lost device. */
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
