/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory of a pool (cudaMallocAsync): the pool comes as a descriptor, an allocation of it as the bytes
 * of an exported pointer. All imports of a pool have one handle, and each has to be destroyed; all imports of
 * a pointer have one address, which the first call that frees it ends for all of them. So users of an address
 * are counted here. The lock is held while a pointer is imported or freed, so that nobody meets one half-way.
 *
 * The driver does not check all bytes of a pointer: forged ones can crash it (driver 580). Whose are accepted
 * is the daemon's decision (pool_regions_per_uid). */
#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"

static_assert(sizeof(CUmemPoolPtrExportData) == ENGINE_HANDLE_BYTES, "a pointer fits into a handle");

struct pool_entry {
	LIST_ENTRY(pool_entry) entry;
	CUdeviceptr address;
	uint32_t refs;
};

/* Of the process: whichever engine frees an address ends it for all. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, pool_entry) imported = LIST_HEAD_INITIALIZER(imported);

static struct pool_entry *find(CUdeviceptr address)
{
	struct pool_entry *entry;

	LIST_FOREACH(entry, &imported, entry)
		if (entry->address == address)
			return entry;
	return NULL;
}

/* No job uses the memory any more, so that it need not wait for any stream. */
static int free_import(struct cuda_memories *memories, CUdeviceptr address, struct error *err)
{
	int r = memory_call(err, cuMemFreeAsync, (address, memories->stream));

	return r < 0 ? r : memory_call(err, cuStreamSynchronize, (memories->stream));
}

static void forget(struct pool_entry *entry)
{
	if (--entry->refs > 0)
		return;
	LIST_REMOVE(entry, entry);
	free(entry);
}

static int unref(struct cuda_memories *memories, struct pool_entry *entry, struct error *err)
{
	int r = entry->refs == 1 ? free_import(memories, entry->address, err) : 0;

	forget(entry);
	return r;
}

/* With a reference for the caller. */
static int get(CUmemoryPool pool, const struct engine_handle *handle, struct pool_entry **ret,
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
	entry = find(address);
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

static int check_location(struct cuda_memories *memories, const struct engine_handle *handle,
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

/* Of a pool, peers have nothing until that is said; for all of its memory at once. */
static int allow(struct cuda_memories *memories, CUmemoryPool pool, struct error *err)
{
	const CUmemAccessDesc access = {
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = memories->device->handle },
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};

	return memory_call(err, cuMemPoolSetAccess, (pool, &access, 1));
}

/* The pool's import is the memory's; its allocations are everybody's who names them. */
static int map_locked(struct cuda_memories *memories, const struct engine_handle *handle,
                      struct cuda_memory *memory, struct error *err)
{
	struct pool_entry *entry = NULL;
	struct error freeing;
	int r = get(memory->pool, handle, &entry, err);

	if (r < 0)
		return r;
	r = check_location(memories, handle, entry->address, err);
	if (r == 0 && handle->is_peer)
		r = allow(memories, memory->pool, err);
	if (r == STATUS_DEVICE_LOST) {
		forget(entry);
		return r;
	}
	if (r < 0) {
		if (unref(memories, entry, &freeing) == STATUS_DEVICE_LOST)
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

static int check(const struct engine_handle *handle, struct error *err)
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
	int r = check(handle, err);

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
	pthread_mutex_lock(&lock);
	r = map_locked(memories, handle, memory, err);
	pthread_mutex_unlock(&lock);
	if (r < 0 && r != STATUS_DEVICE_LOST)
		driver.cuMemPoolDestroy(memory->pool);
	return r;
}

int pool_memory_unmap(struct cuda_memories *memories, struct cuda_memory *memory, struct error *err)
{
	pthread_mutex_lock(&lock);
	int r = unref(memories, memory->allocation, err);
	pthread_mutex_unlock(&lock);
	return r == STATUS_DEVICE_LOST ? r : memory_call(err, cuMemPoolDestroy, (memory->pool));
}

void pool_memory_leave(struct cuda_memories *memories, struct cuda_memory *memory)
{
	(void)memories;
	pthread_mutex_lock(&lock);
	forget(memory->allocation);
	pthread_mutex_unlock(&lock);
}
