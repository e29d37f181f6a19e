/* Regions by kind; and those in host memory, which the CPU engine's code maps and the driver pins. */
#include "memory.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "driver.h"
#include "kernels/cpu/memory.h"

static int host_memory_map(struct cuda_memories *memories, const struct engine_handle *handle,
                           struct cuda_memory *memory, struct error *err);
static int host_memory_create(struct cuda_memories *memories, uint64_t size, struct cuda_memory *memory,
                              struct engine_export *ret_export, struct error *err);
static int host_memory_unmap(struct cuda_memory *memory, struct error *err);

int cuda_memories_init(struct cuda_memories *memories, const struct device *device, struct error *err)
{
	int read_only;
	int r = driver_call(
	    err, cuDeviceGetAttribute,
	    (&read_only, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, device->handle));

	*memories = (struct cuda_memories){ .device = device };
	if (r == 0)
		r = driver_call(err, cuStreamCreateWithPriority,
		                (&memories->stream, CU_STREAM_NON_BLOCKING, 0));
	if (r < 0)
		return r;
	memories->read_only_pins = read_only;
	LIST_INIT(&memories->ipc);
	pthread_mutex_init(&memories->lock, NULL);
	return 0;
}

void cuda_memories_deinit(struct cuda_memories *memories)
{
	if (!memories->stream)
		return;
	assert(LIST_EMPTY(&memories->ipc));
	driver.cuStreamDestroy(memories->stream);
	pthread_mutex_destroy(&memories->lock);
}

/* ---- By kind ------------------------------------------------------------------------------------------ */

static int refuse_kind(enum region_kind kind, struct error *err)
{
	return error_set(err, STATUS_INVALID_ARGUMENT, "kind %s: it names no memory", region_kind_names[kind]);
}

int cuda_memory_map(struct cuda_memories *memories, const struct engine_handle *handle,
                    struct engine_memory **ret, struct error *err)
{
	struct cuda_memory *memory = calloc(1, sizeof *memory);
	int r;

	if (!memory)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	memory->base = (struct engine_memory){
		.kind = handle->kind, .writable = handle->writable, .size = handle->size
	};
	switch (handle->kind) {
	case REGION_KIND_MEMFD:
		r = host_memory_map(memories, handle, memory, err);
		break;
	case REGION_KIND_CUDA_IPC:
		r = ipc_memory_map(memories, handle, memory, err);
		break;
	case REGION_KIND_CUDA_FD:
		r = fd_memory_map(memories, handle, memory, err);
		break;
	default:
		r = refuse_kind(handle->kind, err);
		break;
	}
	if (r < 0)
		free(memory);
	else
		*ret = &memory->base;
	return r;
}

int cuda_memory_create(struct cuda_memories *memories, enum region_kind kind, uint64_t size,
                       struct engine_memory **ret, struct engine_export *ret_export, struct error *err)
{
	struct engine_export export = { .fd = -1 };
	struct cuda_memory *memory;
	int r;

	if (size == 0)
		return error_set(err, STATUS_INVALID_ARGUMENT, "size: a region has at least 1 byte, not 0");
	memory = calloc(1, sizeof *memory);
	if (!memory)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	memory->base = (struct engine_memory){ .kind = kind, .writable = true, .size = size };
	switch (kind) {
	case REGION_KIND_MEMFD:
		r = host_memory_create(memories, size, memory, &export, err);
		break;
	case REGION_KIND_CUDA_IPC:
		r = ipc_memory_create(memories, size, memory, &export, err);
		break;
	case REGION_KIND_CUDA_FD:
		r = fd_memory_create(memories, size, memory, &export, err);
		break;
	default:
		r = refuse_kind(kind, err);
		break;
	}
	if (r < 0) {
		free(memory);
		return r;
	}
	*ret = &memory->base;
	*ret_export = export;
	return 0;
}

int cuda_memory_unmap(struct cuda_memories *memories, struct engine_memory *base, struct error *err)
{
	struct cuda_memory *memory = cuda_memory(base);
	int r;

	if (memory->host)
		r = host_memory_unmap(memory, err);
	else if (memory->ipc)
		r = ipc_memory_unmap(memories, memory, err);
	else
		r = fd_memory_unmap(memory, err);
	free(memory);
	return r;
}

/* ---- Host memory --------------------------------------------------------------------------------------- */

/* Takes over host, but not on failure. */
static int pin(struct cuda_memories *memories, struct engine_memory *host, struct cuda_memory *memory,
               struct error *err)
{
	struct fault_range range = cpu_memory(host)->mapped;
	void *start = (void *)range.start;
	char *data = cpu_memory(host)->data;
	unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
	struct error why;
	CUdeviceptr address;

	if (!host->writable && memories->read_only_pins)
		flags |= CU_MEMHOSTREGISTER_READ_ONLY;
	int r = driver_call(&why, cuMemHostRegister, (start, range.size, flags));
	if (r == 0) {
		r = driver_call(&why, cuMemHostGetDevicePointer, (&address, start, 0));
		if (r < 0)
			driver.cuMemHostUnregister(start);
	}
	if (r < 0)
		return error_set(err, r, "size: %" PRIu64 " bytes cannot be pinned for the device: %s",
		                 host->size, why.message);
	memory->base = *host;
	memory->host = host;
	memory->data = data;
	memory->address = address + (uint64_t)(data - (char *)start);
	return 0;
}

static int host_memory_map(struct cuda_memories *memories, const struct engine_handle *handle,
                           struct cuda_memory *memory, struct error *err)
{
	struct engine_memory *host;
	int r = cpu_memory_map(handle, &host, err);

	if (r < 0)
		return r;
	r = pin(memories, host, memory, err);
	if (r < 0)
		cpu_memory_unmap(host);
	return r;
}

static int host_memory_create(struct cuda_memories *memories, uint64_t size, struct cuda_memory *memory,
                              struct engine_export *ret_export, struct error *err)
{
	struct engine_memory *host;
	int r = cpu_memory_create(REGION_KIND_MEMFD, size, &host, ret_export, err);

	if (r < 0)
		return r;
	r = pin(memories, host, memory, err);
	if (r < 0) {
		cpu_memory_unmap(host);
		close(ret_export->fd);
	}
	return r;
}

static int host_memory_unmap(struct cuda_memory *memory, struct error *err)
{
	int r = driver_call(err, cuMemHostUnregister, ((void *)cpu_memory(memory->host)->mapped.start));

	cpu_memory_unmap(memory->host);
	return r;
}

/* ---- What the kinds share ------------------------------------------------------------------------------- */

int cuda_memory_zero(struct cuda_memories *memories, uint64_t address, uint64_t size, struct error *err)
{
	int r = driver_call(err, cuMemsetD8Async, (address, 0, size, memories->stream));

	return r < 0 ? r : driver_call(err, cuStreamSynchronize, (memories->stream));
}

bool cuda_memory_round_up(const struct cuda_memories *memories, uint64_t size, uint64_t unit, uint64_t *ret)
{
	if (size > memories->device->memory_bytes)
		return false;
	*ret = (size + unit - 1) & ~(unit - 1);
	return true;
}
