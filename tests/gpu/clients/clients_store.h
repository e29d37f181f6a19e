/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a client's that a service can be given: of the device, or a memfd. Its bytes are written and read
 * whole by the process itself, past the service. What fails ends the process (client_fail).
 */
#ifndef TESTS_GPU_CLIENTS_CLIENTS_STORE_H
#define TESTS_GPU_CLIENTS_CLIENTS_STORE_H

#include <stdint.h>

#include "clients.h"
#include "kernels/cuda/driver/driver.h"

struct store {
	size_t size;
	CUdeviceptr address;                     /* 0: on the host */
	CUmemGenericAllocationHandle allocation; /* when is_mapped */
	bool is_mapped;                          /* made by cuMemCreate, here or in the service */
	uint8_t *host;
	int fd; /* the memfd; else -1 */

	/* What the service has of it: bytes [at, at + length). */
	tma_region *region;
	size_t at;
	size_t length;
};

/* Opens the driver, and makes the device's primary context current; once a process, before any store. */
void store_open_device(void);

void store_allocate(struct store *ret, size_t size); /* cuMemAlloc */
void store_create(struct store *ret, size_t size);   /* cuMemCreate; the size is rounded up */
void store_host(struct store *ret, size_t size);     /* a memfd */

/* Of the service's making: a region of tma_region_create, whole. */
void store_import(struct store *ret, tma_client *client, size_t size);

/* A region of length bytes from byte at on. By its pointer the library chooses how; by descriptor is what
 * made it asked for. */
enum store_way { STORE_BY_POINTER, STORE_BY_FD };
tma_region *store_region(const struct store *store, tma_client *client, enum store_way way, size_t at,
                         size_t length);

/* The same, and the store's own from then on. */
void store_share(struct store *store, tma_client *client, enum store_way way, size_t at, size_t length);

/* A descriptor of a created one, the caller's to close; the handle of an allocated one. */
int store_export(const struct store *store);
void store_handle(const struct store *store, CUipcMemHandle *ret);

void store_write(const struct store *store, const uint8_t *data);
void store_read(const struct store *store, uint8_t *data);

/* Releases the region, too. */
void store_free(struct store *store);

#endif
