/* SPDX-License-Identifier: Apache-2.0 */
/* Devices and their attributes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "call.h"
#include "softgpu.h"

#define FIRST_BUS 0x1a /* PCI bus number of the first device */

static struct {
	int count;
	struct {
		int major;
		int minor;
	} device[MOST_DEVICES];
	uint64_t memory_bytes;
	int multiprocessors;
} state;

/* Reads a comma-separated list; its last item applies to all further devices. */
static void read_capabilities(void)
{
	const char *text = getenv("SOFTGPU_CAPABILITY");
	int major = 9, minor = 0;
	for (int i = 0; i < MOST_DEVICES; i++) {
		if (text && sscanf(text, "%d.%d", &major, &minor) == 2 && (text = strchr(text, ',')))
			text++;
		state.device[i].major = major;
		state.device[i].minor = minor;
	}
}

void devices_init(void)
{
	unsigned long long count = call_number("SOFTGPU_DEVICES", 1);
	state.count = count < MOST_DEVICES ? (int)count : MOST_DEVICES;
	state.memory_bytes = call_number("SOFTGPU_MEMORY", 1u << 30);
	state.multiprocessors = (int)call_number("SOFTGPU_MULTIPROCESSORS", 2);
	read_capabilities();
	contexts_init();
}

int devices_count(void)
{
	return state.count;
}

bool device_exists(int ordinal)
{
	return ordinal >= 0 && ordinal < state.count;
}

uint64_t device_memory_bytes(void)
{
	return state.memory_bytes;
}

bool device_can_access(int device, int other)
{
	return device == other || (link_between(device, other) != LINK_NONE &&
	                           state.device[device].major == state.device[other].major);
}

/* ---- Questions --------------------------------------------------------------------------------------- */

static CUresult get_count(int *ret)
{
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = state.count;
	return CUDA_SUCCESS;
}

static CUresult get(CUdevice *ret, int ordinal)
{
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	if (!device_exists(ordinal))
		return CUDA_ERROR_INVALID_DEVICE;
	*ret = ordinal;
	return CUDA_SUCCESS;
}

static CUresult check_device(const void *ret, CUdevice device)
{
	if (!ret)
		return CUDA_ERROR_INVALID_VALUE;
	return device_exists(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult get_name(char *ret, int size)
{
	if (size <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(ret, (size_t)size, "softgpu");
	return CUDA_SUCCESS;
}

static CUresult get_pci_bus_id(char *ret, int size, CUdevice device)
{
	char text[16];
	int n = snprintf(text, sizeof text, "0000:%02x:00.0", FIRST_BUS + device);
	if (size <= n)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(ret, text, (size_t)n + 1);
	return CUDA_SUCCESS;
}

struct place {
	unsigned domain, bus, slot, function;
};

/* The PCI domain and the function may be omitted. */
static bool read_place(struct place *ret, const char *text)
{
	int n = 0;
	if (sscanf(text, "%x:%x:%x.%x%n", &ret->domain, &ret->bus, &ret->slot, &ret->function, &n) == 4)
		return !text[n];
	ret->function = 0;
	if (sscanf(text, "%x:%x:%x%n", &ret->domain, &ret->bus, &ret->slot, &n) == 3)
		return !text[n];
	ret->domain = 0;
	return sscanf(text, "%x:%x.%x%n", &ret->bus, &ret->slot, &ret->function, &n) == 3 && !text[n];
}

static CUresult get_by_pci_bus_id(CUdevice *ret, const char *text)
{
	struct place place;
	if (!ret || !text || !read_place(&place, text))
		return CUDA_ERROR_INVALID_VALUE;
	int device = (int)place.bus - FIRST_BUS;
	if (place.domain || place.slot || place.function || !device_exists(device))
		return CUDA_ERROR_INVALID_DEVICE;
	*ret = device;
	return CUDA_SUCCESS;
}

/* The UUID of device N is GPU-50f7900N-0000-4000-8000-000000000000. */
static CUresult get_uuid(CUuuid *ret, CUdevice device)
{
	static const unsigned char bytes[16] = { 0x50, 0xf7, 0x90, 0, 0, 0, 0x40, 0, 0x80 };
	memcpy(ret->bytes, bytes, sizeof bytes);
	ret->bytes[3] = (char)device;
	return CUDA_SUCCESS;
}

static CUresult get_attribute(int *ret, CUdevice_attribute attribute, CUdevice device)
{
	switch (attribute) {
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		*ret = state.device[device].major;
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
		*ret = state.device[device].minor;
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
		*ret = state.multiprocessors;
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
		*ret = 2;
		return CUDA_SUCCESS;
	/* With the bus width it makes 16 GB/s, about the bandwidth of a host's memory. */
	case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
		*ret = 1000000;
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
		*ret = 64;
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
		*ret = 8 << 20;
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE:
		*ret = WINDOW_BYTES;
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
		*ret = SHARED_BYTES;
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
		*ret = SHARED_BYTES + 1024;
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
		*ret = 48 << 10;
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
		*ret = 32;
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
	case CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
	case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
	case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
		*ret = 1;
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
		*ret = FIRST_BUS + device;
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
	case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
	case CU_DEVICE_ATTRIBUTE_MPS_ENABLED:
		*ret = 0;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static CUresult get_total(size_t *ret)
{
	*ret = state.memory_bytes;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetCount(int *ret)
{
	return leave(enter(ENTRY_cuDeviceGetCount) ?: get_count(ret));
}

CUresult CUDAAPI cuDeviceGet(CUdevice *ret, int ordinal)
{
	return leave(enter(ENTRY_cuDeviceGet) ?: get(ret, ordinal));
}

CUresult CUDAAPI cuDeviceGetName(char *ret, int size, CUdevice device)
{
	return leave(enter(ENTRY_cuDeviceGetName) ?: check_device(ret, device) ?: get_name(ret, size));
}

CUresult CUDAAPI cuDeviceGetUuid(CUuuid *ret, CUdevice device)
{
	return leave(enter(ENTRY_cuDeviceGetUuid) ?: check_device(ret, device) ?: get_uuid(ret, device));
}

CUresult CUDAAPI cuDeviceGetPCIBusId(char *ret, int size, CUdevice device)
{
	return leave(enter(ENTRY_cuDeviceGetPCIBusId)
	                 ?: check_device(ret, device) ?: get_pci_bus_id(ret, size, device));
}

CUresult CUDAAPI cuDeviceGetByPCIBusId(CUdevice *ret, const char *text)
{
	return leave(enter(ENTRY_cuDeviceGetByPCIBusId) ?: get_by_pci_bus_id(ret, text));
}

CUresult CUDAAPI cuDeviceGetAttribute(int *ret, CUdevice_attribute attribute, CUdevice device)
{
	return leave(enter(ENTRY_cuDeviceGetAttribute)
	                 ?: check_device(ret, device) ?: get_attribute(ret, attribute, device));
}

CUresult CUDAAPI cuDeviceTotalMem(size_t *ret, CUdevice device)
{
	return leave(enter(ENTRY_cuDeviceTotalMem) ?: check_device(ret, device) ?: get_total(ret));
}
