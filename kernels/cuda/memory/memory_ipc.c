/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory by CUDA IPC handle, and memory of a pool (cudaMallocAsync). Opened handles and imported
 * pointers are reference-counted. A lock is held while one is opened or closed, so that no thread finds it
 * half done. */
#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"

/* ---- By handle ----------------------------------------------------------------------------------------- */

/* Each handle is opened once and its users are counted, because the driver gives the same address for an
 * allocation that is already open, and because opening one takes about a millisecond. */

/* A handle gives access to the whole stretch of memory from which the driver cut the allocation. The sizes of
 * stretches are multiples of STRETCH_BYTES. So the size of memory that is made for a client is rounded up to
 * such a multiple, and the memory shares its stretch with nothing else. */
#define STRETCH_BYTES UINT64_C(2097152)

static_assert(sizeof(CUipcMemHandle) == ENGINE_HANDLE_BYTES, "a handle is what engine_export holds");

struct ipc_entry {
	LIST_ENTRY(ipc_entry) entry;
	CUipcMemHandle handle;
	CUdeviceptr address;
	bool ours;                   /* allocated by this process, not opened */
	const struct device *device; /* if ours: the device where it was allocated */
	uint32_t refs;
	/* The allocation is [start, start + size), in which address lies. */
	CUdeviceptr start;
	uint64_t size;
};

static pthread_mutex_t ipc_lock = PTHREAD_MUTEX_INITIALIZER;

/* The allocations that were made by this process. They are listed because a process cannot open its own
 * handles. The list is searched only for handles of peers, which come from the engine's owner, so a client
 * that guesses a handle gains nothing. */
static LIST_HEAD(, ipc_entry) ipc_made = LIST_HEAD_INITIALIZER(ipc_made);

static struct ipc_entry *ipc_find_made(const CUipcMemHandle *handle)
{
	struct ipc_entry *entry;

	LIST_FOREACH(entry, &ipc_made, entry)
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

/* Sets *ret to the entry of the handle, opening it if need be, and takes a reference. Caller holds
 * ipc_lock. */
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

/* Points the memory into the entry's allocation. Regions of one allocation count as one memory, which is
 * identified by the allocation's start. */
static void ipc_use(struct cuda_memory *memory, struct ipc_entry *entry, uint64_t offset)
{
	memory->ipc = entry;
	memory->address = entry->address + offset;
	memory->base.base = memory->address - entry->start;
	memory->base.memory[0] = ~(uint64_t)REGION_KIND_CUDA_IPC;
	memory->base.memory[1] = entry->start;
}

/* Makes an allocation of this process accessible to the device, and takes a reference. Caller holds
 * ipc_lock. */
static int ipc_get_made(struct cuda_memories *memories, struct ipc_entry *entry, struct error *err)
{
	int r = device_reach(memories->device, entry->device, err);

	if (r == 0)
		entry->refs++;
	return r;
}

static int ipc_map_locked(struct cuda_memories *memories, const struct engine_handle *handle,
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
	pthread_mutex_lock(&ipc_lock);
	int r = ipc_map_locked(memories, handle, memory, err);
	pthread_mutex_unlock(&ipc_lock);
	return r;
}

int ipc_memory_unmap(struct cuda_memories *memories, struct cuda_memory *memory, struct error *err)
{
	(void)memories;
	pthread_mutex_lock(&ipc_lock);
	int r = ipc_unref(memory->ipc, err);
	pthread_mutex_unlock(&ipc_lock);
	return r;
}

void ipc_memory_leave(struct cuda_memories *memories, struct cuda_memory *memory)
{
	(void)memories;
	pthread_mutex_lock(&ipc_lock);
	ipc_forget(memory->ipc);
	pthread_mutex_unlock(&ipc_lock);
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
	pthread_mutex_lock(&ipc_lock);
	LIST_INSERT_HEAD(&ipc_made, entry, entry);
	pthread_mutex_unlock(&ipc_lock);
	ipc_use(memory, entry, 0);
	memcpy(ret_export->handle, &entry->handle, sizeof entry->handle);
	ret_export->handle_len = sizeof entry->handle;
	return 0;
}

/* ---- Of a pool ----------------------------------------------------------------------------------------- */

/* The client sends a descriptor of the pool, and the bytes of an exported pointer for an allocation from it.
 * All imports of a pool have the same handle, and each of them must be destroyed. All imports of a pointer
 * have the same address, and the first call that frees it ends all of them, so the users of an address are
 * counted here.
 *
 * The driver does not check every byte of an exported pointer, and forged ones can crash it (driver 580). The
 * daemon decides whose pointers are accepted (pool_regions_per_uid).
 */

static_assert(sizeof(CUmemPoolPtrExportData) == ENGINE_HANDLE_BYTES, "a pointer fits into a handle");

struct pool_entry {
	LIST_ENTRY(pool_entry) entry;
	CUdeviceptr address;
	uint32_t refs;
};

/* All engines of the process share these, because freeing an address ends its use for all of them. */
static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, pool_entry) imported = LIST_HEAD_INITIALIZER(imported);

static struct pool_entry *pool_find(CUdeviceptr address)
{
	struct pool_entry *entry;

	LIST_FOREACH(entry, &imported, entry)
		if (entry->address == address)
			return entry;
	return NULL;
}

/* No job uses the memory any more, so freeing it need not wait for another stream. */
static int pool_free_import(struct cuda_memories *memories, CUdeviceptr address, struct error *err)
{
	int r = memory_call(err, cuMemFreeAsync, (address, memories->stream));

	return r < 0 ? r : memory_call(err, cuStreamSynchronize, (memories->stream));
}

static void pool_forget(struct pool_entry *entry)
{
	if (--entry->refs > 0)
		return;
	LIST_REMOVE(entry, entry);
	free(entry);
}

static int pool_unref(struct cuda_memories *memories, struct pool_entry *entry, struct error *err)
{
	int r = entry->refs == 1 ? pool_free_import(memories, entry->address, err) : 0;

	pool_forget(entry);
	return r;
}

/* Imports the pointer, sets *ret to the entry of its address, and takes a reference. Caller holds
 * pool_lock. */
static int pool_get(CUmemoryPool pool, const struct engine_handle *handle, struct pool_entry **ret,
                    struct error *err)
{
	struct pool_entry *entry, *made = calloc(1, sizeof *made);
	CUmemPoolPtrExportData data;
	struct error why;
	CUdeviceptr address;
	int r;

	if (!made)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	memcpy(&data, handle->handle.data, sizeof data);
	r = memory_call(&why, cuMemPoolImportPointer, (&address, pool, &data));
	if (r < 0) {
		free(made);
		return error_set(err, cuda_memory_refusal(&why), "handle: the driver cannot import it: %s",
		                 why.message);
	}
	entry = pool_find(address);
	if (entry) {
		free(made);
	} else {
		entry = made;
		entry->address = address;
		LIST_INSERT_HEAD(&imported, entry, entry);
	}
	entry->refs++;
	*ret = entry;
	return 0;
}

static int pool_check_location(struct cuda_memories *memories, const struct engine_handle *handle,
                               CUdeviceptr address, struct error *err)
{
	unsigned type = 0;
	int r = memory_call(err, cuPointerGetAttribute, (&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));

	if (r < 0)
		return r;
	if (type != CU_MEMORYTYPE_DEVICE)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "fd: the pool's memory is not on a device (memory type %u)", type);
	return cuda_memory_check_pointer(memories, handle, address, "fd: the pool", err);
}

/* Gives the device access to all memory of a pool. A device other than the pool's own has none by default. */
static int pool_allow(struct cuda_memories *memories, CUmemoryPool pool, struct error *err)
{
	const CUmemAccessDesc access = {
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = memories->device->handle },
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};

	return memory_call(err, cuMemPoolSetAccess, (pool, &access, 1));
}

/* Maps the allocation. The import of the pool belongs to this memory; entries of addresses are shared by all
 * memories that name them. */
static int pool_map_locked(struct cuda_memories *memories, const struct engine_handle *handle,
                           struct cuda_memory *memory, struct error *err)
{
	struct pool_entry *entry = NULL;
	struct error freeing;
	int r = pool_get(memory->pool, handle, &entry, err);

	if (r < 0)
		return r;
	r = pool_check_location(memories, handle, entry->address, err);
	if (r == 0 && handle->is_peer)
		r = pool_allow(memories, memory->pool, err);
	if (r == STATUS_DEVICE_LOST) {
		pool_forget(entry);
		return r;
	}
	if (r < 0) {
		if (pool_unref(memories, entry, &freeing) == STATUS_DEVICE_LOST)
			*err = freeing;
		return err->status;
	}
	memory->allocation = entry;
	memory->address = entry->address + handle->offset;
	memory->base.base = handle->offset;
	memory->base.memory[0] = ~(uint64_t)REGION_KIND_CUDA_POOL;
	memory->base.memory[1] = entry->address;
	return 0;
}

static int pool_check(const struct engine_handle *handle, struct error *err)
{
	if (handle->handle.len != sizeof(CUmemPoolPtrExportData))
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "handle: a pointer exported from a pool has %zu bytes, not %zu",
		                 sizeof(CUmemPoolPtrExportData), handle->handle.len);
	if (handle->allocation == 0)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "allocation: it is 0; an allocation of a pool has at least 1 byte");
	return cuda_memory_check_range(handle, handle->allocation, err);
}

int pool_memory_map(struct cuda_memories *memories, const struct engine_handle *handle,
                    struct cuda_memory *memory, struct error *err)
{
	struct error why;
	int r = pool_check(handle, err);

	if (r == 0)
		r = fd_memory_check(handle->fd, err);
	if (r < 0)
		return r;
	r = memory_call(
	    &why, cuMemPoolImportFromShareableHandle,
	    (&memory->pool, (void *)(uintptr_t)handle->fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	if (r < 0)
		return error_set(err, cuda_memory_refusal(&why), "fd: the driver cannot import the pool: %s",
		                 why.message);
	pthread_mutex_lock(&pool_lock);
	r = pool_map_locked(memories, handle, memory, err);
	pthread_mutex_unlock(&pool_lock);
	if (r < 0 && r != STATUS_DEVICE_LOST)
		driver.cuMemPoolDestroy(memory->pool);
	return r;
}

int pool_memory_unmap(struct cuda_memories *memories, struct cuda_memory *memory, struct error *err)
{
	pthread_mutex_lock(&pool_lock);
	int r = pool_unref(memories, memory->allocation, err);
	pthread_mutex_unlock(&pool_lock);
	return r == STATUS_DEVICE_LOST ? r : memory_call(err, cuMemPoolDestroy, (memory->pool));
}

void pool_memory_leave(struct cuda_memories *memories, struct cuda_memory *memory)
{
	(void)memories;
	pthread_mutex_lock(&pool_lock);
	pool_forget(memory->allocation);
	pthread_mutex_unlock(&pool_lock);
}
