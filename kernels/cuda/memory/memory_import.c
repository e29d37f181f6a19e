/* SPDX-License-Identifier: Apache-2.0 */
/* Takes what a client shares by descriptors: checks it, imports it, and refers to what another region has.
 * What is taken is the caller's to give back, also when it ends in an error. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "memory.h"

/* Whether the machine's list of character devices has the number under a name of the driver's. */
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

/* The driver is asked about its own files alone, and about memfds, with which it does nothing. The file's own
 * file system is not asked at all: it may let that wait for as long as it likes. */
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

/* The allocation of the region's own descriptor. */
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

/* Before anything is taken: sizes that no part can have, alone or with the others. */
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

int fd_memory_take(struct cuda_memories *memories, const struct engine_handle *handle, uint64_t unit,
                   struct cuda_chunks *chunks, struct error *err)
{
	return handle->n_parts ? take_parts(memories, handle, unit, chunks, err)
	                       : take_one(memories, handle, unit, chunks, err);
}
