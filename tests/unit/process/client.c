/* SPDX-License-Identifier: Apache-2.0 */
#include "client.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "kernels/cuda/driver/driver.h"
#include "rig.h"

#define FD CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

#define cuda(call) cr_assert_eq(call, CUDA_SUCCESS, "%s", #call)

const char *const client_kind_names[CLIENT_KINDS] = {
	[CLIENT_MEMFD] = "memfd",    [CLIENT_IPC] = "cuda_ipc",
	[CLIENT_FD] = "cuda_fd",     [CLIENT_PARTS_OF_FD] = "cuda_fd of parts",
	[CLIENT_POOL] = "cuda_pool",
};

static struct device device;

void client_open(void)
{
	struct error err;

	cr_assert_eq(device_open(&device, NULL, &err), 0, "%s", err.message);
}

void client_close(void)
{
	device_close(&device);
	driver_close();
}

static void new_memfd(struct client_memory *memory)
{
	memory->fd[0] = rig_file(memory->size);
	memory->bytes = mmap(NULL, memory->size, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd[0], 0);
	cr_assert_neq(memory->bytes, MAP_FAILED);
	memory->handle.kind = REGION_KIND_MEMFD;
	memory->handle.fd = memory->fd[0];
}

static void new_ipc(struct client_memory *memory)
{
	cuda(cuMemAlloc(&memory->address, memory->size));
	cuda(cuIpcGetMemHandle((CUipcMemHandle *)memory->exported, memory->address));
	memory->bytes = (unsigned char *)memory->address;
	memory->handle.kind = REGION_KIND_CUDA_IPC;
	memory->handle.handle = (struct bytes){ (const void *)memory->exported, sizeof memory->exported };
}

static void new_pool(struct client_memory *memory)
{
	const CUmemPoolProps properties = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		                            .handleTypes = FD,
		                            .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 } };

	cuda(cuMemPoolCreate(&memory->pool, &properties));
	cuda(cuMemAllocFromPoolAsync(&memory->address, memory->size, memory->pool, NULL));
	cuda(cuStreamSynchronize(NULL));
	cuda(cuMemPoolExportToShareableHandle(&memory->fd[0], memory->pool, FD, 0));
	cuda(cuMemPoolExportPointer((CUmemPoolPtrExportData *)memory->exported, memory->address));
	memory->bytes = (unsigned char *)memory->address;
	memory->handle.kind = REGION_KIND_CUDA_POOL;
	memory->handle.fd = memory->fd[0];
	memory->handle.allocation = memory->size;
	memory->handle.handle = (struct bytes){ (const void *)memory->exported, sizeof memory->exported };
}

/* Makes n allocations at contiguous addresses. */
static void new_fd(struct client_memory *memory, int n)
{
	const CUmemAllocationProp properties = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = FD,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 },
	};
	CUmemAccessDesc access = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 },
		                   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	size_t unit, each;

	cuda(cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	each = (memory->size / (size_t)n + unit) / unit * unit;
	memory->size = each * (size_t)n;
	cuda(cuMemAddressReserve(&memory->address, memory->size, 0, 0, 0));
	for (int i = 0; i < n; i++) {
		cuda(cuMemCreate(&memory->allocation[i], each, &properties, 0));
		cuda(cuMemMap(memory->address + (size_t)i * each, each, 0, memory->allocation[i], 0));
		cuda(cuMemExportToShareableHandle(&memory->fd[i], memory->allocation[i], FD, 0));
		memory->parts[i] = (struct engine_part){ .fd = memory->fd[i], .size = each };
	}
	cuda(cuMemSetAccess(memory->address, memory->size, &access, 1));
	memory->bytes = (unsigned char *)memory->address;
	memory->handle.kind = REGION_KIND_CUDA_FD;
	memory->handle.fd = n == 1 ? memory->fd[0] : -1;
	memory->handle.parts = n == 1 ? NULL : memory->parts;
	memory->handle.n_parts = n == 1 ? 0 : (uint32_t)n;
}

void client_new(struct client_memory *ret, enum client_kind kind, uint64_t size)
{
	*ret = (struct client_memory){ .kind = kind, .size = size, .fd = { -1, -1, -1 } };
	ret->handle.fd = -1;
	switch (kind) {
	case CLIENT_MEMFD:
		new_memfd(ret);
		break;
	case CLIENT_IPC:
		new_ipc(ret);
		break;
	case CLIENT_POOL:
		new_pool(ret);
		break;
	default:
		new_fd(ret, kind == CLIENT_FD ? 1 : CLIENT_PARTS);
	}
	ret->handle.size = ret->size;
	ret->handle.writable = true;
	memset(ret->bytes, 0, ret->size);
}

void client_free(struct client_memory *memory)
{
	switch (memory->kind) {
	case CLIENT_MEMFD:
		munmap(memory->bytes, memory->size);
		break;
	case CLIENT_IPC:
		cuda(cuMemFree(memory->address));
		break;
	case CLIENT_POOL:
		cuda(cuMemFreeAsync(memory->address, NULL));
		cuda(cuMemPoolDestroy(memory->pool));
		break;
	default:
		for (uint64_t i = 0, at = 0; i < CLIENT_PARTS && memory->fd[i] >= 0; i++) {
			const uint64_t each = memory->handle.n_parts ? memory->parts[i].size : memory->size;

			cuda(cuMemUnmap(memory->address + at, each));
			cuda(cuMemRelease(memory->allocation[i]));
			at += each;
		}
		cuda(cuMemAddressFree(memory->address, memory->size));
	}
	for (int i = 0; i < CLIENT_PARTS; i++)
		if (memory->fd[i] >= 0)
			close(memory->fd[i]);
}
