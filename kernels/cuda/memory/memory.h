/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the CUDA engine: what clients bring (memfd, cuda_ipc, cuda_fd, cuda_pool), and what
 * is made for them.
 *
 * Mapped and unmapped on any thread that has the device's context current; several at once. A mapping never
 * changes while it lives. What a client brings is bounded by what the kernel or the driver says of it.
 */
#ifndef KERNELS_CUDA_MEMORY_MEMORY_H
#define KERNELS_CUDA_MEMORY_MEMORY_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "kernels/cuda/driver/device.h"
#include "kernels/cuda/driver/driver.h"
#include "kernels/engine.h"
#include "memory_chunks.h"
#include "proto/status.h"

struct ipc_entry;
struct pool_entry;

struct cuda_memory {
	struct engine_memory base;
	uint64_t address;           /* of the region's first byte, for the device */
	struct engine_memory *host; /* memfd: its mapping, which is pinned; else NULL */
	char *data;                 /* memfd: the region's first byte; else NULL */
	bool is_unpinned;           /* memfd: it is loose, or on the way to be unmapped */
	bool is_peer;               /* on another device, across a link */
	struct ipc_entry *ipc;      /* cuda_ipc; else NULL */
	/* cuda_pool: its allocation, and the pool, imported once more; else NULL. */
	struct pool_entry *allocation;
	CUmemoryPool pool;
	/* cuda_fd: the allocations, and the addresses that are reserved for them. */
	struct cuda_chunks chunks;
	CUdeviceptr start;
	uint64_t mapped;
};

struct cuda_memories {
	const struct device *device;
	CUstream stream;            /* on which new memory is zeroed, and that of pools freed */
	bool read_only_pins;        /* the device can pin what may not be written */
	LIST_HEAD(, ipc_entry) ipc; /* opened, each handle once; memory_ipc.c has a lock for all of them */
};

static inline struct cuda_memory *cuda_memory(struct engine_memory *memory)
{
	return (struct cuda_memory *)memory;
}

int cuda_memories_init(struct cuda_memories *memories, const struct device *device, struct error *err);

/* Everything must have been unmapped or left. On a device that is lost the driver is not asked. */
enum cuda_health { CUDA_HEALTHY, CUDA_LOST };
void cuda_memories_deinit(struct cuda_memories *memories, enum cuda_health health);

/* As engine_map and engine_make. */
int cuda_memory_map(struct cuda_memories *memories, const struct engine_handle *handle,
                    struct engine_memory **ret, struct error *err);
int cuda_memory_create(struct cuda_memories *memories, const struct engine_handle *wanted,
                       struct engine_memory **ret, struct engine_export *ret_export, struct error *err);

/* Does what engine_settle says. */
int cuda_memory_settle(struct cuda_memories *memories, struct engine_memory *memory,
                       const atomic_bool *unwanted, struct error *err);

/* A step of unmapping. LEFT: there are more. Else *memory is gone; an error of the driver's is of interest
 * when it is DEVICE_LOST. */
enum { CUDA_MEMORY_LEFT = 1 };
int cuda_memory_unmap(struct cuda_memories *memories, struct engine_memory *memory, struct error *err);

/* On a device that is lost, where nobody knows what still writes to it: the driver is not asked, and mappings
 * stay until the process ends. */
void cuda_memory_leave(struct cuda_memories *memories, struct engine_memory *memory);

/* As driver_call, but says no more of the call than its name: clients read it. */
#define memory_call(err, function, arguments) driver_check(err, driver.function arguments, #function)

/* ---- The kinds; each fills *memory, which is zeroed -----------------------------------------------------
 */

/* memory_ipc.c: by handle. */
int ipc_memory_map(struct cuda_memories *memories, const struct engine_handle *handle,
                   struct cuda_memory *memory, struct error *err);
int ipc_memory_create(struct cuda_memories *memories, const struct engine_handle *wanted,
                      struct cuda_memory *memory, struct engine_export *ret_export, struct error *err);
int ipc_memory_unmap(struct cuda_memories *memories, struct cuda_memory *memory, struct error *err);
void ipc_memory_leave(struct cuda_memories *memories, struct cuda_memory *memory);

/* memory_fd.c: by file descriptor. */
int fd_memory_map(struct cuda_memories *memories, const struct engine_handle *handle,
                  struct cuda_memory *memory, struct error *err);
int fd_memory_create(struct cuda_memories *memories, const struct engine_handle *wanted,
                     struct cuda_memory *memory, struct engine_export *ret_export, struct error *err);
int fd_memory_unmap(struct cuda_memories *memories, struct cuda_memory *memory, struct error *err);

/* memory_pool.c: by the descriptor of a pool and a pointer. */
int pool_memory_map(struct cuda_memories *memories, const struct engine_handle *handle,
                    struct cuda_memory *memory, struct error *err);
int pool_memory_unmap(struct cuda_memories *memories, struct cuda_memory *memory, struct error *err);
void pool_memory_leave(struct cuda_memories *memories, struct cuda_memory *memory);

/* memory_import.c: whether the driver may be asked about a descriptor: it made it, or it is a memfd. */
int fd_memory_check(int fd, struct error *err);

/* The allocations of a handle, whose offset + size fits 64 bits; unit is the granularity.
 * What is in chunks afterwards is the caller's, also after an error. */
int fd_memory_take(struct cuda_memories *memories, const struct engine_handle *handle, uint64_t unit,
                   struct cuda_chunks *chunks, struct error *err);

/* The status of a handle or descriptor that the driver refused, whose reason is *why: a reason that is
 * neither the device's end nor want of memory lies in what the client brought, INVALID_ARGUMENT. What would
 * be the end (CUDA_ERROR_UNKNOWN, mostly) is believed when the device does not answer any more, so that no
 * client's bytes bring the service down. */
int cuda_memory_refusal(const struct error *why);

/* OUT_OF_RANGE unless offset and size lie within the allocation's bytes. */
int cuda_memory_check_range(const struct engine_handle *handle, uint64_t bytes, struct error *err);

/* INVALID_ARGUMENT unless the memory is on the device; of a peer's, UNSUPPORTED unless the device may reach
 * it. what: "fd: the allocation". */
int cuda_memory_check_location(struct cuda_memories *memories, const struct engine_handle *handle,
                               CUdevice device, const char *what, struct error *err);

/* The same for memory that has an address here. */
int cuda_memory_check_pointer(struct cuda_memories *memories, const struct engine_handle *handle,
                              CUdeviceptr address, const char *what, struct error *err);

/* Zeros new memory, and waits for it. DEVICE_LOST when that cannot be waited for: nothing may be done to the
 * memory then. */
int cuda_memory_zero(struct cuda_memories *memories, uint64_t address, uint64_t size, struct error *err);

/* size rounded up to a multiple of unit, a power of two; false when that passes what the device has. */
bool cuda_memory_round_up(const struct cuda_memories *memories, uint64_t size, uint64_t unit, uint64_t *ret);

#endif
