/* SPDX-License-Identifier: Apache-2.0 */
/* Makes memory through the driver's table, as a client would without any service. */
#include "clients_store.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define cuda(function, arguments)                                                                      \
	do {                                                                                           \
		struct error cuda_error;                                                               \
		require(driver_call(&cuda_error, function, arguments) == 0, "%s", cuda_error.message); \
	} while (0)

static CUstream stream;

void store_open_device(void)
{
	struct error err;
	CUcontext context;
	CUdevice device;

	require(driver_open(&err) == 0, "%s", err.message);
	cuda(cuDeviceGet, (&device, 0));
	cuda(cuDevicePrimaryCtxRetain, (&context, device));
	cuda(cuCtxSetCurrent, (context));
	cuda(cuStreamCreateWithPriority, (&stream, CU_STREAM_NON_BLOCKING, 0));
}

/* ---- Made
 * ----------------------------------------------------------------------------------------------- */

void store_allocate(struct store *ret, size_t size)
{
	*ret = (struct store){ .size = size, .fd = -1 };
	cuda(cuMemAlloc, (&ret->address, size));
}

static size_t whole(const CUmemAllocationProp *properties, size_t size)
{
	size_t unit;

	cuda(cuMemGetAllocationGranularity, (&unit, properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	return (size + unit - 1) / unit * unit;
}

static const CUmemAllocationProp properties = {
	.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE },
};

static void map(struct store *store)
{
	CUmemAccessDesc access = { .location = properties.location,
		                   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };

	cuda(cuMemAddressReserve, (&store->address, store->size, 0, 0, 0));
	cuda(cuMemMap, (store->address, store->size, 0, store->allocation, 0));
	cuda(cuMemSetAccess, (store->address, store->size, &access, 1));
}

void store_create(struct store *ret, size_t size)
{
	*ret = (struct store){ .size = whole(&properties, size), .is_mapped = true, .fd = -1 };
	cuda(cuMemCreate, (&ret->allocation, ret->size, &properties, 0));
	map(ret);
}

void store_host(struct store *ret, size_t size)
{
	*ret = (struct store){ .size = size, .fd = memfd_create("clients", MFD_CLOEXEC | MFD_ALLOW_SEALING) };
	require(ret->fd >= 0 && ftruncate(ret->fd, (off_t)size) == 0 &&
	            fcntl(ret->fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0,
	        "no memfd of %zu bytes", size);
	ret->host = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, ret->fd, 0);
	require(ret->host != MAP_FAILED, "no memfd of %zu bytes", size);
}

void store_import(struct store *ret, tma_client *client, size_t size)
{
	tma_region *region;

	must(client, tma_region_create(client, size, &region));
	require(tma_region_kind(region) == TMA_REGION_CUDA_FD && !tma_region_data(region),
	        "the service's own memory is of kind %d", (int)tma_region_kind(region));
	*ret = (struct store){ .size = whole(&properties, size),
		               .is_mapped = true,
		               .fd = -1,
		               .region = region,
		               .length = size };
	cuda(cuMemImportFromShareableHandle, (&ret->allocation, (void *)(intptr_t)tma_region_fd(region),
	                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	map(ret);
}

/* ---- Shared
 * --------------------------------------------------------------------------------------------- */

int store_export(const struct store *store)
{
	int fd;

	cuda(cuMemExportToShareableHandle,
	     (&fd, store->allocation, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	return fd;
}

void store_handle(const struct store *store, CUipcMemHandle *ret)
{
	cuda(cuIpcGetMemHandle, (ret, store->address));
}

tma_region *store_region(const struct store *store, tma_client *client, enum store_way way, size_t at,
                         size_t length)
{
	void *pointer = (void *)(uintptr_t)(store->address + at);
	tma_region *region;
	enum tma_region_kind kind;

	if (store->host) {
		must(client, tma_region_register_memfd(client, store->fd, at, length, 0, &region));
		return region;
	}
	if (way == STORE_BY_FD) {
		int fd = store_export(store);

		must(client, tma_region_register_cuda_fd(client, fd, store->size, at, length, 0, &region));
		close(fd);
		return region;
	}
	must(client, tma_region_from_device_ptr(client, pointer, length, 0, &region));
	kind = store->is_mapped ? TMA_REGION_CUDA_FD : TMA_REGION_CUDA_IPC;
	require(tma_region_kind(region) == kind, "a pointer made a region of kind %d, not %d",
	        (int)tma_region_kind(region), (int)kind);
	return region;
}

void store_share(struct store *store, tma_client *client, enum store_way way, size_t at, size_t length)
{
	store->region = store_region(store, client, way, at, length);
	store->at = at;
	store->length = length;
}

/* ---- Used
 * ----------------------------------------------------------------------------------------------- */

void store_write(const struct store *store, const uint8_t *data)
{
	if (store->host) {
		memcpy(store->host, data, store->size);
		return;
	}
	cuda(cuMemcpyHtoDAsync, (store->address, data, store->size, stream));
	cuda(cuStreamSynchronize, (stream));
}

void store_read(const struct store *store, uint8_t *data)
{
	if (store->host) {
		memcpy(data, store->host, store->size);
		return;
	}
	cuda(cuMemcpyDtoHAsync, (data, store->address, store->size, stream));
	cuda(cuStreamSynchronize, (stream));
}

void store_free(struct store *store)
{
	tma_region_release(store->region);
	if (store->host) {
		munmap(store->host, store->size);
		close(store->fd);
	} else if (store->is_mapped) {
		cuda(cuMemUnmap, (store->address, store->size));
		cuda(cuMemAddressFree, (store->address, store->size));
		cuda(cuMemRelease, (store->allocation));
	} else {
		cuda(cuMemFree, (store->address));
	}
}
