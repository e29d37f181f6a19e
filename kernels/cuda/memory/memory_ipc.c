/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory by CUDA IPC handle. Each handle is opened once and its users are counted, because the driver
 * gives the same address for an allocation that is open already, and because opening takes about a
 * millisecond. The lock is held while a handle is opened or closed, so that nobody meets one half-way. */
#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"

/* A handle stands for the whole stretch that the driver cut the allocation from, and it cuts them from
 * stretches of this size: what is handed out fills its own. */
#define STRETCH_BYTES UINT64_C(2097152)

static_assert(sizeof(CUipcMemHandle) == ENGINE_HANDLE_BYTES, "a handle is what engine_export holds");

struct ipc_entry {
	LIST_ENTRY(ipc_entry) entry;
	CUipcMemHandle handle;
	CUdeviceptr address;
	bool ours;                   /* allocated here, not opened */
	const struct device *device; /* ours: where */
	uint32_t refs;
	/* The allocation: [start, start + size) holds address. */
	CUdeviceptr start;
	uint64_t size;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Of the process, which cannot open what it has made. Only for peers: who guesses a handle gets nothing by
 * it. */
static LIST_HEAD(, ipc_entry) made = LIST_HEAD_INITIALIZER(made);

static struct ipc_entry *ipc_find_made(const CUipcMemHandle *handle)
{
	struct ipc_entry *entry;

	LIST_FOREACH(entry, &made, entry)
		if (memcmp(&entry->handle, handle, sizeof *handle) == 0)
			return entry;
	return NULL;
}

static struct ipc_entry *ipc_find(struct cuda_memories *memories, const CUipcMemHandle *handle)
{
	struct ipc_entry *entry;

	LIST_FOREACH(entry, &memories->ipc, entry)
		if (memcmp(&entry->handle, handle, sizeof *handle) == 0)
			return entry;
	return NULL;
}

static void ipc_forget(struct ipc_entry *entry)
{
	if (--entry->refs > 0)
		return;
	LIST_REMOVE(entry, entry);
	free(entry);
}

static int ipc_drop(struct ipc_entry *entry, struct error *err)
{
	return entry->ours ? memory_call(err, cuMemFree, (entry->address))
	                   : memory_call(err, cuIpcCloseMemHandle, (entry->address));
}

static int ipc_open(struct ipc_entry *entry, struct error *err)
{
	struct error why;
	size_t size;
	int r = memory_call(&why, cuIpcOpenMemHandle,
	                    (&entry->address, entry->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));

	if (r < 0)
		return error_set(err, cuda_memory_refusal(&why), "handle: the driver cannot open it: %s",
		                 why.message);
	r = memory_call(err, cuMemGetAddressRange, (&entry->start, &size, entry->address));
	if (r < 0)
		driver.cuIpcCloseMemHandle(entry->address);
	else
		entry->size = size;
	return r;
}

/* With a reference for the caller. */
static int ipc_get(struct cuda_memories *memories, const CUipcMemHandle *handle, struct ipc_entry **ret,
                   struct error *err)
{
	struct ipc_entry *entry = ipc_find(memories, handle);
	int r;

	if (!entry) {
		entry = calloc(1, sizeof *entry);
		if (!entry)
			return error_set(err, STATUS_NO_MEMORY, "out of memory");
		entry->handle = *handle;
		r = ipc_open(entry, err);
		if (r < 0) {
			free(entry);
			return r;
		}
		LIST_INSERT_HEAD(&memories->ipc, entry, entry);
	}
	entry->refs++;
	*ret = entry;
	return 0;
}

static int ipc_unref(struct ipc_entry *entry, struct error *err)
{
	int r = 0;

	if (entry->refs == 1)
		r = ipc_drop(entry, err);
	ipc_forget(entry);
	return r;
}

/* Regions of one allocation are one memory: they have its start in common. */
static void ipc_use(struct cuda_memory *memory, struct ipc_entry *entry, uint64_t offset)
{
	memory->ipc = entry;
	memory->address = entry->address + offset;
	memory->base.base = memory->address - entry->start;
	memory->base.memory[0] = ~(uint64_t)REGION_KIND_CUDA_IPC;
	memory->base.memory[1] = entry->start;
}

/* With a reference, as ipc_get. */
static int ipc_get_made(struct cuda_memories *memories, struct ipc_entry *entry, struct error *err)
{
	int r = device_reach(memories->device, entry->device, err);

	if (r == 0)
		entry->refs++;
	return r;
}

static int map_locked(struct cuda_memories *memories, const struct engine_handle *handle,
                      struct cuda_memory *memory, struct error *err)
{
	struct ipc_entry *entry = NULL;
	struct error closing;
	CUipcMemHandle key;
	int r;

	memcpy(&key, handle->handle.data, sizeof key);
	entry = handle->is_peer ? ipc_find_made(&key) : NULL;
	r = entry ? ipc_get_made(memories, entry, err) : ipc_get(memories, &key, &entry, err);
	if (r < 0)
		return r;
	if (!entry->ours)
		r = cuda_memory_check_pointer(memories, handle, entry->address, "handle: the allocation",
		                              err);
	if (r == 0)
		r = cuda_memory_check_range(handle, entry->start + entry->size - entry->address, err);
	if (r == 0) {
		ipc_use(memory, entry, handle->offset);
	} else if (ipc_unref(entry, &closing) == STATUS_DEVICE_LOST) {
		*err = closing;
		r = STATUS_DEVICE_LOST;
	}
	return r;
}

int ipc_memory_map(struct cuda_memories *memories, const struct engine_handle *handle,
                   struct cuda_memory *memory, struct error *err)
{
	if (handle->handle.len != sizeof(CUipcMemHandle))
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "handle: a CUDA IPC handle has %zu bytes, not %zu", sizeof(CUipcMemHandle),
		                 handle->handle.len);
	pthread_mutex_lock(&lock);
	int r = map_locked(memories, handle, memory, err);
	pthread_mutex_unlock(&lock);
	return r;
}

int ipc_memory_unmap(struct cuda_memories *memories, struct cuda_memory *memory, struct error *err)
{
	(void)memories;
	pthread_mutex_lock(&lock);
	int r = ipc_unref(memory->ipc, err);
	pthread_mutex_unlock(&lock);
	return r;
}

void ipc_memory_leave(struct cuda_memories *memories, struct cuda_memory *memory)
{
	(void)memories;
	pthread_mutex_lock(&lock);
	ipc_forget(memory->ipc);
	pthread_mutex_unlock(&lock);
}

/* ---- Making ------------------------------------------------------------------------------------------- */

static int ipc_allocate(struct cuda_memories *memories, struct ipc_entry *entry, struct error *err)
{
	int r = memory_call(err, cuMemAlloc, (&entry->address, entry->size));

	if (r < 0)
		return r;
	entry->start = entry->address;
	r = cuda_memory_zero(memories, entry->address, entry->size, err);
	if (r == 0)
		r = memory_call(err, cuIpcGetMemHandle, (&entry->handle, entry->address));
	if (r < 0 && r != STATUS_DEVICE_LOST)
		driver.cuMemFree(entry->address);
	return r;
}

int ipc_memory_create(struct cuda_memories *memories, const struct engine_handle *wanted,
                      struct cuda_memory *memory, struct engine_export *ret_export, struct error *err)
{
	struct ipc_entry *entry;
	struct error why;
	uint64_t rounded;
	int r;

	if (!cuda_memory_round_up(memories, wanted->size, STRETCH_BYTES, &rounded))
		return error_set(err, STATUS_NO_MEMORY,
		                 "size: %" PRIu64 " bytes, but the device has %" PRIu64, wanted->size,
		                 memories->device->memory_bytes);
	entry = calloc(1, sizeof *entry);
	if (!entry)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	*entry = (struct ipc_entry){ .ours = true, .device = memories->device, .refs = 1, .size = rounded };
	r = ipc_allocate(memories, entry, &why);
	if (r < 0) {
		free(entry);
		return error_set(err, r, "size: %" PRIu64 " bytes of device memory: %s", wanted->size,
		                 why.message);
	}
	pthread_mutex_lock(&lock);
	LIST_INSERT_HEAD(&made, entry, entry);
	pthread_mutex_unlock(&lock);
	ipc_use(memory, entry, 0);
	memcpy(ret_export->handle, &entry->handle, sizeof entry->handle);
	ret_export->handle_len = sizeof entry->handle;
	return 0;
}
