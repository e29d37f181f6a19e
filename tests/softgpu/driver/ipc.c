/* SPDX-License-Identifier: Apache-2.0 */
/* IPC handles of memory. A handle names the exporting process, the descriptor there, and the memfd's name, so
 * that a reused descriptor number is not taken for the original memory. The importer reaches the memory
 * through /proc/<pid>/fd, so the exporter has to be alive and of the same user. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "call.h"
#include "softgpu.h"

struct handle {
	char magic[8];
	int32_t pid;
	int32_t fd;
	uint64_t id;
	uint64_t size;
	int32_t ordinal;
	char rest[28];
};
_Static_assert(sizeof(struct handle) == sizeof(CUipcMemHandle), "a handle fills CUDA's");

static const char magic[8] = "softgpu";

static CUresult get_handle(CUipcMemHandle *ret, CUdeviceptr pointer)
{
	const struct range *range = range_find(pointer);
	if (!ret || !range || range->kind != RANGE_MEMORY)
		return CUDA_ERROR_INVALID_VALUE;
	struct handle handle = {
		.pid = getpid(),
		.fd = range->fd,
		.id = range->id,
		.size = range->size,
		.ordinal = range->home,
	};
	memcpy(handle.magic, magic, sizeof magic);
	memcpy(ret, &handle, sizeof handle);
	return CUDA_SUCCESS;
}

static int open_memory(const struct handle *handle)
{
	char path[64], name[64];
	struct stat st;
	snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)handle->pid, (int)handle->fd);
	snprintf(name, sizeof name, "softgpu-memory-%d-%" PRIu64 "-", (int)handle->pid, handle->id);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -1;
	if (memory_is_fd(fd, name) && fstat(fd, &st) == 0 && (uint64_t)st.st_size == handle->size)
		return fd;
	close(fd);
	return -1;
}

/* Finds what the current context opened: each context opens a handle for itself. */
static struct range *find_opened(const CUipcMemHandle *handle)
{
	struct range *range;
	TAILQ_FOREACH(range, &ranges, entry)
		if (range->kind == RANGE_OPENED && range->context == context_current() &&
		    memcmp(&range->handle, handle, sizeof *handle) == 0)
			return range;
	return NULL;
}

static CUresult open_new(CUdeviceptr *ret, const struct handle *handle)
{
	int fd = open_memory(handle);
	if (fd < 0)
		return CUDA_ERROR_MAP_FAILED;
	uint64_t start = space_map(fd, handle->size);
	struct range *range = start ? range_add(RANGE_OPENED, start, handle->size) : NULL;
	close(fd);
	if (!range) {
		if (start)
			space_free(start, handle->size);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	range->refs = 1;
	range->home = handle->ordinal;
	memcpy(&range->handle, handle, sizeof *handle);
	*ret = start;
	return CUDA_SUCCESS;
}

static CUresult check_home(int home)
{
	if (!device_exists(home))
		return CUDA_ERROR_MAP_FAILED;
	return device_can_access(context_current()->ordinal, home) ? call_stuck(home)
	                                                           : CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
}

/* Opening memory of another device enables access to all memory of that device's context. */
static void allow_access(int home)
{
	struct context *context = context_current();
	if (home != context->ordinal)
		context->peers |= device_bit(home);
}

/* The process that made a handle cannot open it. */
static CUresult open_handle(CUdeviceptr *ret, CUipcMemHandle opaque, unsigned int flags)
{
	struct handle handle;
	memcpy(&handle, &opaque, sizeof handle);
	if (!ret || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
		return CUDA_ERROR_INVALID_VALUE;
	if (memcmp(handle.magic, magic, sizeof magic) != 0)
		return CUDA_ERROR_INVALID_HANDLE;
	if (handle.pid == getpid())
		return CUDA_ERROR_INVALID_CONTEXT;
	CUresult result = check_home(handle.ordinal);
	if (result != CUDA_SUCCESS)
		return result;
	struct range *range = find_opened(&opaque);
	if (!range && (result = open_new(ret, &handle)) != CUDA_SUCCESS)
		return result;
	allow_access(handle.ordinal);
	if (!range)
		return CUDA_SUCCESS;
	range->refs++;
	*ret = range->start;
	return CUDA_SUCCESS;
}

static CUresult close_handle(CUdeviceptr pointer)
{
	struct range *range = range_find_kind(pointer, RANGE_OPENED);
	if (!range || range->start != pointer)
		return CUDA_ERROR_INVALID_VALUE;
	if (range->refs > 1) {
		range->refs--;
		return CUDA_SUCCESS;
	}
	CUresult result = queue_drain(range_users(range), range->context->ordinal);
	if (result != CUDA_SUCCESS)
		return result;
	space_free(range->start, range->size);
	range_remove(range);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle *ret, CUdeviceptr pointer)
{
	return leave(enter(ENTRY_cuIpcGetMemHandle) ?: get_handle(ret, pointer));
}

CUresult CUDAAPI cuIpcOpenMemHandle(CUdeviceptr *ret, CUipcMemHandle handle, unsigned int flags)
{
	return leave(enter_mapping(ENTRY_cuIpcOpenMemHandle) ?: open_handle(ret, handle, flags));
}

CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr pointer)
{
	return leave(enter_mapping(ENTRY_cuIpcCloseMemHandle) ?: close_handle(pointer));
}
