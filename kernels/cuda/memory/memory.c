/* SPDX-License-Identifier: Apache-2.0 */
/* Maps, creates and unmaps regions of every kind. Regions in host memory are entirely here: kernels/host maps
 * them and the driver pins them. The lists of counted allocations are here, too. */
#include "memory.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "kernels/host/memory.h"

static int memfd_memory_map(struct cuda_memories *memories, const struct engine_handle *handle,
                            struct cuda_memory *memory, struct error *err);
static int memfd_memory_create(struct cuda_memories *memories, const struct engine_handle *wanted,
                               struct cuda_memory *memory, struct engine_export *ret_export,
                               struct error *err);
static int memfd_memory_unmap(struct cuda_memories *memories, struct cuda_memory *memory, struct error *err);

int cuda_memories_init(struct cuda_memories *memories, const struct device *device, struct error *err)
{
	int read_only;
	int r =
	    memory_call(err, cuDeviceGetAttribute,
	                (&read_only, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, device->handle));

	*memories = (struct cuda_memories){ .device = device };
	if (r == 0)
		r = memory_call(err, cuStreamCreateWithPriority,
		                (&memories->stream, CU_STREAM_NON_BLOCKING, 0));
	if (r < 0)
		return r;
	memories->read_only_pins = read_only;
	LIST_INIT(&memories->ipc);
	return 0;
}

void cuda_memories_deinit(struct cuda_memories *memories, enum cuda_health health)
{
	if (!memories->stream)
		return;
	assert(LIST_EMPTY(&memories->ipc));
	if (health == CUDA_HEALTHY)
		driver.cuStreamDestroy(memories->stream);
}

/* ---- By kind ------------------------------------------------------------------------------------------ */

static const struct {
	int (*map)(struct cuda_memories *memories, const struct engine_handle *handle,
	           struct cuda_memory *memory, struct error *err);
	int (*create)(struct cuda_memories *memories, const struct engine_handle *wanted,
	              struct cuda_memory *memory, struct engine_export *ret_export,
	              struct error *err); /* NULL: clients bring it and the service never creates it */
	int (*unmap)(struct cuda_memories *memories, struct cuda_memory *memory, struct error *err);
} kinds[REGION_KIND_COUNT] = {
	[REGION_KIND_MEMFD] = { memfd_memory_map, memfd_memory_create, memfd_memory_unmap },
	[REGION_KIND_CUDA_IPC] = { ipc_memory_map, ipc_memory_create, ipc_memory_unmap },
	[REGION_KIND_CUDA_FD] = { fd_memory_map, fd_memory_create, fd_memory_unmap },
	[REGION_KIND_CUDA_POOL] = { pool_memory_map, NULL, pool_memory_unmap },
};

static int new_memory(enum region_kind kind, bool writable, uint64_t size, struct cuda_memory **ret,
                      struct error *err)
{
	assert(kind < REGION_KIND_COUNT);
	if (size == 0)
		return error_set(err, STATUS_INVALID_ARGUMENT, "size: a region has at least 1 byte, not 0");
	*ret = calloc(1, sizeof **ret);
	if (!*ret)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	(*ret)->base = (struct engine_memory){ .kind = kind, .writable = writable, .size = size };
	return 0;
}

static struct engine_memory *engine_memory_of(struct cuda_memory *memory)
{
	memory->base.address = memory->address;
	return &memory->base;
}

int cuda_memory_map(struct cuda_memories *memories, const struct engine_handle *handle,
                    struct engine_memory **ret, struct error *err)
{
	struct cuda_memory *memory;
	int r = new_memory(handle->kind, handle->writable, handle->size, &memory, err);

	if (r < 0)
		return r;
	r = kinds[handle->kind].map(memories, handle, memory, err);
	if (r < 0)
		free(memory);
	else
		*ret = engine_memory_of(memory);
	if (r == 0)
		memory->is_peer = handle->is_peer && !memory->host;
	return r;
}

int cuda_memory_create(struct cuda_memories *memories, const struct engine_handle *wanted,
                       struct engine_memory **ret, struct engine_export *ret_export, struct error *err)
{
	struct engine_export export = { .fd = -1 };
	struct cuda_memory *memory;
	int r;

	if (!kinds[wanted->kind].create)
		return error_set(err, STATUS_UNSUPPORTED,
		                 "kind %s: the service creates no such memory; register your own",
		                 region_kind_names[wanted->kind]);
	r = new_memory(wanted->kind, true, wanted->size, &memory, err);
	if (r < 0)
		return r;
	r = kinds[wanted->kind].create(memories, wanted, memory, &export, err);
	if (r < 0) {
		free(memory);
		return r;
	}
	*ret = engine_memory_of(memory);
	*ret_export = export;
	return 0;
}

int cuda_memory_unmap(struct cuda_memories *memories, struct engine_memory *base, struct error *err)
{
	int r = kinds[base->kind].unmap(memories, cuda_memory(base), err);

	if (r != CUDA_MEMORY_LEFT)
		free(base);
	return r;
}

void cuda_memory_leave(struct cuda_memories *memories, struct engine_memory *base)
{
	struct cuda_memory *memory = cuda_memory(base);

	if (memory->host)
		host_memory_leave(memory->host);
	if (memory->ipc)
		ipc_memory_leave(memories, memory);
	if (memory->allocation)
		pool_memory_leave(memories, memory);
	cuda_chunks_leave(&memory->chunks);
	free(memory);
}

/* ---- Host memory --------------------------------------------------------------------------------------- */

/* Pins the mapping. Sets *ret_address to the device address of its first page, and *ret_registered as soon as
 * the driver has pinned it, even if the call then fails. */
static int pin(struct cuda_memories *memories, struct engine_memory *host, CUdeviceptr *ret_address,
               bool *ret_registered, struct error *err)
{
	struct fault_range range = host_memory(host)->mapped;
	void *start = (void *)range.start;
	unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
	struct error why;

	if (!host->writable && memories->read_only_pins)
		flags |= CU_MEMHOSTREGISTER_READ_ONLY;
	int r = host_memory_pin(host, err);
	if (r < 0)
		return r;
	r = memory_call(&why, cuMemHostRegister, (start, range.size, flags));
	if (r < 0 && host_memory_pinned(host, err) < 0)
		return err->status;
	if (r < 0)
		return error_set(err, r == STATUS_DEVICE_LOST ? cuda_memory_refusal(&why) : r,
		                 "size: %" PRIu64 " bytes cannot be pinned for the device: %s", host->size,
		                 why.message);
	*ret_registered = true;
	r = memory_call(&why, cuMemHostGetDevicePointer, (ret_address, start, 0));
	if (r < 0)
		error_set(err, r, "size: %" PRIu64 " bytes cannot be pinned for the device: %s", host->size,
		          why.message);
	else
		r = host_memory_pinned(host, err);
	return r;
}

static void adopt(struct engine_memory *host, struct cuda_memory *memory)
{
	memory->base = *host;
	memory->host = host;
	memory->data = host_memory(host)->data;
}

static uint64_t address_of(const struct cuda_memory *memory, CUdeviceptr first_page)
{
	return first_page + (uint64_t)(memory->data - (char *)host_memory(memory->host)->mapped.start);
}

/* Pins a host mapping for *memory. Owns host from then on, even if it fails: what cannot be unpinned stays
 * mapped. */
static int take_host(struct cuda_memories *memories, struct engine_memory *host, struct cuda_memory *memory,
                     struct error *err)
{
	void *start = (void *)host_memory(host)->mapped.start;
	bool is_registered = false;
	CUdeviceptr address;
	int r = pin(memories, host, &address, &is_registered, err);

	if (r < 0 && is_registered && driver.cuMemHostUnregister(start) != CUDA_SUCCESS)
		host_memory_leave(host);
	else if (r < 0)
		host_memory_unmap(host);
	if (r < 0)
		return r;
	adopt(host, memory);
	memory->address = address_of(memory, address);
	return 0;
}

static int memfd_memory_map(struct cuda_memories *memories, const struct engine_handle *handle,
                            struct cuda_memory *memory, struct error *err)
{
	struct engine_memory *host;
	int r = host_memory_map_to_pin(handle, &host, err);

	if (r < 0)
		return r;
	if (!atomic_load(&host->is_loose))
		return take_host(memories, host, memory, err);
	adopt(host, memory);
	memory->address = host->address;
	memory->is_unpinned = true;
	return 0;
}

/* Pins a memory that was loose. No other thread reads the fields that this writes while the memory is
 * loose. */
int cuda_memory_settle(struct cuda_memories *memories, struct engine_memory *base,
                       const atomic_bool *unwanted, struct error *err)
{
	struct cuda_memory *memory = cuda_memory(base);
	void *start = (void *)host_memory(memory->host)->mapped.start;
	bool is_registered = false;
	CUdeviceptr address;
	int r = host_memory_populate(memory->host, unwanted, err);

	if (r < 0)
		return r;
	r = pin(memories, memory->host, &address, &is_registered, err);
	if (r == 0 && address_of(memory, address) != memory->address)
		r = error_set(err, STATUS_UNSUPPORTED,
		              "size: the device has another address for the memory than the host; seal the "
		              "file before it is registered");
	if (r < 0) {
		memory->is_unpinned = !is_registered || driver.cuMemHostUnregister(start) == CUDA_SUCCESS;
		if (memory->is_unpinned && memory->host->backing)
			host_memory_unpin(memory->host);
		return r;
	}
	memory->base.backing = memory->host->backing;
	memory->is_unpinned = false;
	atomic_store(&memory->host->is_loose, false);
	atomic_store(&memory->base.may_stall, false);
	atomic_store(&memory->base.is_loose, false);
	return 0;
}

static int memfd_memory_create(struct cuda_memories *memories, const struct engine_handle *wanted,
                               struct cuda_memory *memory, struct engine_export *ret_export,
                               struct error *err)
{
	struct engine_memory *host;
	int r = host_memory_create(wanted, &host, ret_export, err);

	if (r < 0)
		return r;
	r = take_host(memories, host, memory, err);
	if (r < 0)
		close(ret_export->fd);
	return r;
}

/* The first step unpins all of the memory, because the driver cannot unpin a part of it. If that fails, the
 * memory also stays mapped, because nothing else at its addresses could be pinned. */
static int memfd_memory_unmap(struct cuda_memories *memories, struct cuda_memory *memory, struct error *err)
{
	(void)memories;
	if (memory->is_unpinned)
		return host_memory_unmap_step(memory->host) ? 0 : CUDA_MEMORY_LEFT;
	int r = memory_call(err, cuMemHostUnregister, ((void *)host_memory(memory->host)->mapped.start));

	if (r < 0) {
		host_memory_leave(memory->host);
		return r;
	}
	host_memory_unpin(memory->host);
	memory->is_unpinned = true;
	return CUDA_MEMORY_LEFT;
}

/* ---- What the kinds share -------------------------------------------------------------------------------
 */

int cuda_memory_refusal(const struct error *why)
{
	size_t free_bytes, total_bytes;

	switch (why->status) {
	case STATUS_DEVICE_LOST:
		return driver.cuMemGetInfo(&free_bytes, &total_bytes) == CUDA_SUCCESS
		           ? STATUS_INVALID_ARGUMENT
		           : STATUS_DEVICE_LOST;
	case STATUS_NO_MEMORY:
		return STATUS_NO_MEMORY;
	default:
		return STATUS_INVALID_ARGUMENT;
	}
}

int cuda_memory_check_range(const struct engine_handle *handle, uint64_t bytes, struct error *err)
{
	uint64_t end;

	if (!__builtin_add_overflow(handle->offset, handle->size, &end) && end <= bytes)
		return 0;
	return error_set(err, STATUS_OUT_OF_RANGE,
	                 "size: offset %" PRIu64 " + size %" PRIu64
	                 " exceeds the allocation, which has %" PRIu64 " bytes",
	                 handle->offset, handle->size, bytes);
}

int cuda_memory_check_location(struct cuda_memories *memories, const struct engine_handle *handle,
                               CUdevice device, const char *what, struct error *err)
{
	if (handle->is_peer)
		return device_check_reach(memories->device, device, err);
	if (device == memories->device->handle)
		return 0;
	return error_set(err, STATUS_INVALID_ARGUMENT, "%s is on device %d, but this service uses device %d",
	                 what, device, memories->device->handle);
}

int cuda_memory_check_pointer(struct cuda_memories *memories, const struct engine_handle *handle,
                              CUdeviceptr address, const char *what, struct error *err)
{
	int device = -1;
	int r =
	    memory_call(err, cuPointerGetAttribute, (&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));

	return r < 0 ? r : cuda_memory_check_location(memories, handle, device, what, err);
}

int cuda_memory_zero(struct cuda_memories *memories, uint64_t address, uint64_t size, struct error *err)
{
	int r = memory_call(err, cuMemsetD8Async, (address, 0, size, memories->stream));

	if (r < 0)
		return r;
	r = memory_call(err, cuStreamSynchronize, (memories->stream));
	return r < 0 ? err->status = STATUS_DEVICE_LOST : 0;
}

bool cuda_memory_round_up(const struct cuda_memories *memories, uint64_t size, uint64_t unit, uint64_t *ret)
{
	if (size > memories->device->memory_bytes)
		return false;
	*ret = (size + unit - 1) & ~(unit - 1);
	return true;
}

/* ---- Allocations --------------------------------------------------------------------------------------- */

int cuda_chunks_reserve(struct cuda_chunks *chunks, uint32_t n, struct error *err)
{
	struct cuda_chunk **grown;
	uint32_t room = chunks->room;

	if (n <= room - chunks->n)
		return 0;
	if (n > UINT32_MAX / 2 - chunks->n)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	room = chunks->n + n > 2 * room ? chunks->n + n : 2 * room;
	grown = realloc(chunks->list, room * sizeof *grown);
	if (!grown)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	chunks->list = grown;
	chunks->room = room;
	return 0;
}

static void append(struct cuda_chunks *chunks, struct cuda_chunk *chunk)
{
	chunks->list[chunks->n++] = chunk;
	chunks->size += chunk->size;
}

int cuda_chunks_add(struct cuda_chunks *chunks, CUmemGenericAllocationHandle handle, uint64_t size,
                    struct error *err)
{
	struct cuda_chunk *chunk = malloc(sizeof *chunk);

	if (!chunk) {
		driver.cuMemRelease(handle);
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	}
	chunk->handle = handle;
	chunk->size = size;
	atomic_init(&chunk->refs, 1);
	append(chunks, chunk);
	return 0;
}

/* Returns the index of the first allocation that begins at byte `at` or later, and sets *ret_start to where
 * it begins. If there is none, returns chunks->n and sets *ret_start to chunks->size. The list must be
 * complete. */
static uint32_t find(const struct cuda_chunks *chunks, uint64_t at, uint64_t *ret_start)
{
	const struct memory_chunk *by_place = chunks->base.by_place;
	uint32_t low = 0, high = chunks->n;

	while (low < high) {
		const uint32_t middle = low + (high - low) / 2;

		if (by_place[middle].at < at)
			low = middle + 1;
		else
			high = middle;
	}
	*ret_start = low < chunks->n ? by_place[low].at : chunks->size;
	return low;
}

int cuda_chunks_share(struct cuda_chunks *chunks, struct cuda_chunks *others, uint64_t offset, uint64_t size,
                      struct error *err)
{
	uint64_t start, end;
	uint32_t first, last;
	int r;

	if (offset > others->size || size > others->size - offset)
		return error_set(err, STATUS_OUT_OF_RANGE,
		                 "offset %" PRIu64 " + size %" PRIu64
		                 " exceeds the memory of the region that it refers to, which has %" PRIu64
		                 " bytes",
		                 offset, size, others->size);
	first = find(others, offset, &start);
	last = find(others, offset + size, &end);
	if (start != offset || end != offset + size)
		return error_set(err, STATUS_OUT_OF_RANGE,
		                 "bytes [%" PRIu64 ", %" PRIu64
		                 ") are not whole allocations; the nearest end at bytes %" PRIu64
		                 " and %" PRIu64,
		                 offset, offset + size, start, end);
	r = cuda_chunks_reserve(chunks, last - first, err);
	if (r < 0)
		return r;
	for (uint32_t i = first; i < last; i++) {
		atomic_fetch_add(&others->list[i]->refs, 1);
		append(chunks, others->list[i]);
	}
	atomic_store(&others->base.shared, true);
	atomic_store(&chunks->base.shared, true);
	return 0;
}

int cuda_chunks_complete(struct cuda_chunks *chunks, struct error *err)
{
	struct memory_chunks *base = &chunks->base;
	uint64_t at = 0;

	base->by_place = malloc(chunks->n * sizeof *base->by_place);
	base->by_id = malloc(chunks->n * sizeof *base->by_id);
	if (!base->by_place || !base->by_id)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	base->n = chunks->n;
	for (uint32_t i = 0; i < chunks->n; i++) {
		base->by_place[i] =
		    (struct memory_chunk){ (uintptr_t)chunks->list[i], at, chunks->list[i]->size };
		at += chunks->list[i]->size;
	}
	if (memory_chunks_sort(base, &at))
		return 0;
	return error_set(err, STATUS_INVALID_ARGUMENT,
	                 "parts: the allocation at byte %" PRIu64 " is there twice; a region has each once",
	                 at);
}

static int unref(struct cuda_chunk *chunk, struct error *err)
{
	int r = 0;

	if (atomic_fetch_sub(&chunk->refs, 1) == 1) {
		r = memory_call(err, cuMemRelease, (chunk->handle));
		free(chunk);
	}
	return r;
}

int cuda_chunks_drop_last(struct cuda_chunks *chunks, struct error *err)
{
	struct cuda_chunk *chunk = chunks->list[--chunks->n];

	chunks->size -= chunk->size;
	return unref(chunk, err);
}

static void free_lists(struct cuda_chunks *chunks)
{
	free(chunks->list);
	free(chunks->base.by_place);
	free(chunks->base.by_id);
	*chunks = (struct cuda_chunks){ 0 };
}

void cuda_chunks_deinit(struct cuda_chunks *chunks)
{
	struct error ignored;

	while (chunks->n > 0)
		cuda_chunks_drop_last(chunks, &ignored);
	free_lists(chunks);
}

void cuda_chunks_leave(struct cuda_chunks *chunks)
{
	for (uint32_t i = 0; i < chunks->n; i++)
		if (atomic_fetch_sub(&chunks->list[i]->refs, 1) == 1)
			free(chunks->list[i]);
	free_lists(chunks);
}
