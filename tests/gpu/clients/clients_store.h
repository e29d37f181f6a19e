/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a client that it can share with a service: device memory, or a memfd. The process itself writes
 * and reads all of its bytes, without the service. A failure ends the process (client_fail). */
#ifndef TESTS_GPU_CLIENTS_CLIENTS_STORE_H
#define TESTS_GPU_CLIENTS_CLIENTS_STORE_H

#include <stdint.h>

#include "clients.h"
#include "kernels/cuda/driver/driver.h"

struct store {
	size_t size;
	CUdeviceptr address;                     /* 0: host memory */
	CUmemGenericAllocationHandle allocation; /* valid if is_mapped */
	/* Comes from cuMemCreate, in this process or in the service. */
	bool is_mapped;
	uint8_t *host;
	int fd; /* the memfd; -1 for device memory */

	/* The region registered with the service: bytes [at, at + length). */
	tma_region *region;
	size_t at;
	size_t length;
};

/* Opens the driver and makes the device's primary context current. To be called once in a process, before any
 * store is made. */
void store_open_device(void);

void store_allocate(struct store *ret, size_t size); /* by cuMemAlloc */
void store_create(struct store *ret, size_t size);   /* by cuMemCreate; rounds the size up */
void store_host(struct store *ret, size_t size);     /* by a memfd */

/* Makes a store of memory that the service creates: all of a region of tma_region_create. */
void store_import(struct store *ret, tma_client *client, size_t size);

/* How a region is registered: by its pointer, where the library chooses the way, or by a descriptor of the
 * allocation. */
enum store_way { STORE_BY_POINTER, STORE_BY_FD };
tma_region *store_region(const struct store *store, tma_client *client, enum store_way way, size_t at,
                         size_t length);

/* Registers length bytes from byte at on; the second function also makes the region the store's own. */
void store_share(struct store *store, tma_client *client, enum store_way way, size_t at, size_t length);

/* Return a descriptor of memory made by store_create, which the caller closes, or the IPC handle of memory
 * made by store_allocate. */
int store_export(const struct store *store);
void store_handle(const struct store *store, CUipcMemHandle *ret);

void store_write(const struct store *store, const uint8_t *data);
void store_read(const struct store *store, uint8_t *data);

/* Frees the memory, after releasing the region. */
void store_free(struct store *store);

#endif
