/* SPDX-License-Identifier: Apache-2.0 */
/* Plays another process: opens memory twice, by its IPC handle in hex (ipc HANDLE) or by an inherited fd (fd
 * N SIZE), and adds one to every byte. Exits with 0, or prints what failed and exits with 1. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/driver/driver.h"

static int add_one(CUdeviceptr address, size_t size, struct error *err)
{
	unsigned char *bytes = malloc(size);
	int r = bytes ? driver_call(err, cuMemcpyDtoHAsync, (bytes, address, size, NULL))
	              : error_set(err, STATUS_NO_MEMORY, "malloc");
	for (size_t i = 0; r == 0 && i < size; i++)
		bytes[i]++;
	if (r == 0)
		r = driver_call(err, cuMemcpyHtoDAsync, (address, bytes, size, NULL));
	if (r == 0)
		r = driver_call(err, cuStreamSynchronize, (NULL));
	free(bytes);
	return r;
}

/* Opening a handle that is already open returns the same address. */
static int by_ipc(const char *hex, struct error *err)
{
	CUdeviceptr address = 0, again = 0;
	CUipcMemHandle handle;
	size_t size;
	for (size_t i = 0; i < sizeof handle; i++)
		if (sscanf(hex + 2 * i, "%2hhx", (unsigned char *)&handle.reserved[i]) != 1)
			return error_set(err, STATUS_INVALID_ARGUMENT, "%s is no handle", hex);
	int r = driver_call(err, cuIpcOpenMemHandle, (&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	if (r == 0)
		r = driver_call(err, cuIpcOpenMemHandle,
		                (&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	if (r == 0 && address != again)
		r = error_set(err, STATUS_INTERNAL, "two openings have two addresses");
	if (r == 0)
		r = driver_call(err, cuIpcCloseMemHandle, (again));
	if (r == 0)
		r = driver_call(err, cuMemGetAddressRange, (&again, &size, address));
	if (r == 0)
		r = add_one(address, size, err);
	if (r == 0)
		r = driver_call(err, cuIpcCloseMemHandle, (address));
	return r;
}

static int by_fd(int fd, size_t size, struct error *err)
{
	const CUmemAccessDesc access = {
		.location.type = CU_MEM_LOCATION_TYPE_DEVICE,
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address = 0;
	int r = driver_call(err, cuMemImportFromShareableHandle,
	                    (&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	if (r == 0)
		r = driver_call(err, cuMemAddressReserve, (&address, size, 0, 0, 0));
	if (r == 0)
		r = driver_call(err, cuMemMap, (address, size, 0, handle, 0));
	if (r == 0)
		r = driver_call(err, cuMemRelease, (handle));
	if (r == 0)
		r = driver_call(err, cuMemSetAccess, (address, size, &access, 1));
	if (r == 0)
		r = add_one(address, size, err);
	if (r == 0)
		r = driver_call(err, cuMemUnmap, (address, size));
	if (r == 0)
		r = driver_call(err, cuMemAddressFree, (address, size));
	return r;
}

int main(int argc, char **argv)
{
	struct device device;
	struct error err;
	int r = device_open(&device, NULL, &err);
	if (r == 0 && argc == 3 && strcmp(argv[1], "ipc") == 0)
		r = by_ipc(argv[2], &err);
	else if (r == 0 && argc == 4 && strcmp(argv[1], "fd") == 0)
		r = by_fd(atoi(argv[2]), strtoull(argv[3], NULL, 10), &err);
	else if (r == 0)
		r = error_set(&err, STATUS_INVALID_ARGUMENT, "usage: peer ipc HANDLE | fd N SIZE");
	if (r < 0)
		printf("%s: %s\n", status_name(r), err.message);
	else
		device_close(&device);
	return r < 0;
}
