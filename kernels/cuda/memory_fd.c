/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory by file descriptor: allocations of the driver's virtual memory management, mapped whole from
 * their start, because a part cannot be. Each import is a memory of its own: the driver does not say whether
 * two descriptors are of one allocation. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory.h"

static int check_fd(int fd, struct error *err);
static int import(struct cuda_memories *memories, int fd, struct cuda_memory *memory, struct error *err);
static int map(struct cuda_memories *memories, struct cuda_memory *memory, bool writable, struct error *err);
static int allocate(struct cuda_memories *memories, struct cuda_memory *memory, struct error *err);
static int fill_and_export(struct cuda_memories *memories, struct cuda_memory *memory,
                           struct engine_export *ret_export, struct error *err);

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

int fd_memory_map(struct cuda_memories *memories, const struct engine_handle *handle,
                  struct cuda_memory *memory, struct error *err)
{
	uint64_t end;
	size_t unit;
	int r = check_fd(handle->fd, err);

	if (r < 0)
		return r;
	if (__builtin_add_overflow(handle->offset, handle->size, &end))
		return error_set(err, STATUS_OUT_OF_RANGE,
		                 "size: offset %" PRIu64 " + size %" PRIu64 " overflows 64 bits",
		                 handle->offset, handle->size);
	if (handle->allocation && end > handle->allocation)
		return error_set(err, STATUS_OUT_OF_RANGE,
		                 "size: offset %" PRIu64 " + size %" PRIu64
		                 " exceeds the allocation, which has %" PRIu64 " bytes",
		                 handle->offset, handle->size, handle->allocation);
	r = get_granularity(memories, &unit, err);
	if (r < 0)
		return r;
	if (!cuda_memory_round_up(memories, handle->allocation ? handle->allocation : end, unit,
	                          &memory->mapped))
		return error_set(err, STATUS_OUT_OF_RANGE,
		                 "%s: %" PRIu64 " bytes exceed the %" PRIu64 " that the device has",
		                 handle->allocation ? "allocation" : "size",
		                 handle->allocation ? handle->allocation : end,
		                 memories->device->memory_bytes);
	r = import(memories, handle->fd, memory, err);
	if (r < 0)
		return r;
	r = map(memories, memory, handle->writable, err);
	if (r < 0) {
		driver.cuMemRelease(memory->allocation);
		return r;
	}
	memory->address = memory->start + handle->offset;
	memory->base.base = handle->offset;
	memory->base.memory[0] = ~(uint64_t)REGION_KIND_CUDA_FD;
	memory->base.memory[1] = memory->allocation;
	return 0;
}

int fd_memory_create(struct cuda_memories *memories, const struct engine_handle *wanted,
                     struct cuda_memory *memory, struct engine_export *ret_export, struct error *err)
{
	struct error why;
	size_t unit;
	int r = get_granularity(memories, &unit, err);

	if (r < 0)
		return r;
	if (!cuda_memory_round_up(memories, wanted->size, unit, &memory->mapped))
		return error_set(err, STATUS_NO_MEMORY,
		                 "size: %" PRIu64 " bytes, but the device has %" PRIu64, wanted->size,
		                 memories->device->memory_bytes);
	r = allocate(memories, memory, &why);
	if (r == 0)
		r = fill_and_export(memories, memory, ret_export, &why);
	if (r < 0)
		return error_set(err, r, "size: %" PRIu64 " bytes of device memory: %s", wanted->size,
		                 why.message);
	memory->address = memory->start;
	memory->base.memory[0] = ~(uint64_t)REGION_KIND_CUDA_FD;
	memory->base.memory[1] = memory->allocation;
	return 0;
}

/* Goes on past what fails, unless the device is lost. */
int fd_memory_unmap(struct cuda_memories *memories, struct cuda_memory *memory, struct error *err)
{
	(void)memories;
	int r = memory_call(err, cuMemUnmap, (memory->start, memory->mapped));

	if (r != STATUS_DEVICE_LOST)
		r = memory_call(err, cuMemRelease, (memory->allocation));
	if (r != STATUS_DEVICE_LOST)
		r = memory_call(err, cuMemAddressFree, (memory->start, memory->mapped));
	return r;
}

/* ---- What comes from outside ----------------------------------------------------------------------------
 */

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
static int check_fd(int fd, struct error *err)
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

static int check_properties(struct cuda_memories *memories, const CUmemAllocationProp *found,
                            struct error *err)
{
	if (found->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
	    found->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "fd: the allocation is not pinned device memory (type %d, location %d)",
		                 (int)found->type, (int)found->location.type);
	if (found->location.id != memories->device->handle)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "fd: the allocation is on device %d, but this service uses device %d",
		                 found->location.id, memories->device->handle);
	return 0;
}

static int import(struct cuda_memories *memories, int fd, struct cuda_memory *memory, struct error *err)
{
	CUmemAllocationProp found = { 0 };
	struct error why;
	int r = memory_call(
	    &why, cuMemImportFromShareableHandle,
	    (&memory->allocation, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));

	if (r < 0)
		return error_set(err, cuda_memory_refusal(&why), "fd: the driver cannot import it: %s",
		                 why.message);
	r = memory_call(err, cuMemGetAllocationPropertiesFromHandle, (&found, memory->allocation));
	if (r == 0)
		r = check_properties(memories, &found, err);
	if (r < 0)
		driver.cuMemRelease(memory->allocation);
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

static int map(struct cuda_memories *memories, struct cuda_memory *memory, bool writable, struct error *err)
{
	struct error why;
	int r = memory_call(err, cuMemAddressReserve, (&memory->start, memory->mapped, 0, 0, 0));

	if (r < 0)
		return r;
	/* Too few bytes and too many are UNSUPPORTED alike (driver 580). */
	r = memory_call(&why, cuMemMap, (memory->start, memory->mapped, 0, memory->allocation, 0));
	if (r == STATUS_INVALID_ARGUMENT || r == STATUS_UNSUPPORTED)
		r = STATUS_OUT_OF_RANGE;
	if (r < 0) {
		error_set(err, r,
		          "allocation: it is mapped as a whole and does not have %" PRIu64 " bytes: %s",
		          memory->mapped, why.message);
		driver.cuMemAddressFree(memory->start, memory->mapped);
		return r;
	}
	r = allow(memories, memory, writable, err);
	if (r < 0) {
		driver.cuMemUnmap(memory->start, memory->mapped);
		driver.cuMemAddressFree(memory->start, memory->mapped);
	}
	return r;
}

/* ---- Making ---------------------------------------------------------------------------------------------
 */

static int allocate(struct cuda_memories *memories, struct cuda_memory *memory, struct error *err)
{
	CUmemAllocationProp wanted = properties(memories);
	int r = memory_call(err, cuMemCreate, (&memory->allocation, memory->mapped, &wanted, 0));

	if (r < 0)
		return r;
	r = map(memories, memory, true, err);
	if (r < 0)
		driver.cuMemRelease(memory->allocation);
	return r;
}

static int export_fd(const struct cuda_memory *memory, int *ret, struct error *err)
{
	int fd;
	int r = memory_call(err, cuMemExportToShareableHandle,
	                    (&fd, memory->allocation, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));

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
	if (r < 0 && r != STATUS_DEVICE_LOST)
		fd_memory_unmap(memories, memory, &ignored);
	return r;
}
