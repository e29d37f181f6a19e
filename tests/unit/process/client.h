/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory that this process has, as a client of the service would, and gives to an engine. The stand-in
 * driver keeps devices in files, so tests read and write this memory directly. Failures are Criterion's. */
#ifndef TESTS_UNIT_PROCESS_CLIENT_H
#define TESTS_UNIT_PROCESS_CLIENT_H

#include <cuda.h>
#include <stdint.h>

#include "kernels/engine.h"
#include "proto/schema.h"

#define CLIENT_PARTS 3

enum client_kind {
	CLIENT_MEMFD,
	CLIENT_IPC,
	CLIENT_FD,
	CLIENT_PARTS_OF_FD, /* several allocations at contiguous addresses */
	CLIENT_POOL,
	CLIENT_KINDS
};

extern const char *const client_kind_names[CLIENT_KINDS];

struct client_memory {
	enum client_kind kind;
	uint64_t size;
	unsigned char *bytes; /* mapping of the memory in this process */
	struct engine_handle handle;
	struct engine_part parts[CLIENT_PARTS];
	uint8_t exported[ENGINE_HANDLE_BYTES];
	/* The kind decides which of these are used. */
	CUdeviceptr address;
	CUmemoryPool pool;
	CUmemGenericAllocationHandle allocation[CLIENT_PARTS];
	int fd[CLIENT_PARTS];
};

/* Makes this process use the first device. */
void client_open(void);
void client_close(void);

/* Makes zeroed memory of at least `size` bytes; ret->handle is what an engine maps it by. */
void client_new(struct client_memory *ret, enum client_kind kind, uint64_t size);
void client_free(struct client_memory *memory);

#endif
