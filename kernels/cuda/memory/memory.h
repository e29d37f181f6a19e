/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA engine's memory is what clients bring (memfd, cuda_ipc, cuda_fd, cuda_pool), and what is made for
 * them.
 *
 * It is mapped and unmapped on any thread that has the device's context current; several at once. A mapping
 * never changes while it lives. What a client brings is bounded by what the kernel or the driver says of it.
 */
#ifndef KERNELS_CUDA_MEMORY_MEMORY_H
#define KERNELS_CUDA_MEMORY_MEMORY_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "kernels/cuda/driver/driver.h"
#include "kernels/engine.h"
#include "kernels/transform/aliases.h"
#include "proto/status.h"

/* ---- Allocations --------------------------------------------------------------------------------------- */

/* A memory by descriptor consists of allocations at contiguous addresses in their order.
 *
 * Several memories may map an allocation, each at addresses of its own: it is counted, and let go with the
 * last of them. Counts change on any thread.
 */

/* An allocation, created or imported. */
struct cuda_chunk {
	CUmemGenericAllocationHandle handle;
	uint64_t size;
	atomic_uint refs;
};

/* A memory has these allocations. */
struct cuda_chunks {
	struct memory_chunks base; /* made when the list is complete */
	uint32_t n;
	uint32_t room;
	struct cuda_chunk **list;
	uint64_t size; /* bytes of all allocations */
};

/* Returns 0, or NO_MEMORY if there is no room for n more. */
int cuda_chunks_reserve(struct cuda_chunks *chunks, uint32_t n, struct error *err);

/* Takes the handle over, also on failure. Room must have been reserved. */
int cuda_chunks_add(struct cuda_chunks *chunks, CUmemGenericAllocationHandle handle, uint64_t size,
                    struct error *err);

/* Adds bytes [offset, offset + size) of what others map, which is complete, by reference. Returns
 * OUT_OF_RANGE, with nothing added, if these are not whole allocations. Both are marked as sharing. */
int cuda_chunks_share(struct cuda_chunks *chunks, struct cuda_chunks *others, uint64_t offset, uint64_t size,
                      struct error *err);

/* Completes the list. Returns INVALID_ARGUMENT if an allocation is there twice. */
int cuda_chunks_complete(struct cuda_chunks *chunks, struct error *err);

/* Lets the last allocation of the list go. Returns 0, or the driver's error. */
int cuda_chunks_drop_last(struct cuda_chunks *chunks, struct error *err);

/* Lets all of them go, whatever the driver says. */
void cuda_chunks_deinit(struct cuda_chunks *chunks);

/* Does the same without a word to the driver, which is lost. */
void cuda_chunks_leave(struct cuda_chunks *chunks);

struct ipc_entry;
struct pool_entry;

struct cuda_memory {
	struct engine_memory base;
	uint64_t address;           /* device address of the region's first byte */
	struct engine_memory *host; /* memfd: its mapping by the host, which is pinned; else NULL */
	char *data;                 /* memfd: the region's first byte; else NULL */
	bool is_unpinned;           /* memfd: it is not pinned, because it is loose or being unmapped */
	bool is_peer;               /* It is on another device, across a link. */
	struct ipc_entry *ipc;      /* cuda_ipc; else NULL */
	/* cuda_pool: these are its allocation, and the pool, imported once more; else NULL. */
	struct pool_entry *allocation;
	CUmemoryPool pool;
	/* cuda_fd: these are the allocations, and the addresses that are reserved for them. */
	struct cuda_chunks chunks;
	CUdeviceptr start;
	uint64_t mapped;
};

struct cuda_memories {
	const struct device *device;
	CUstream stream;     /* stream on which new memory is zeroed, and memory of pools is freed */
	bool read_only_pins; /* The device can pin memory that may not be written. */
	/* Handles opened, each once; memory_ipc.c has one lock for all engines. */
	LIST_HEAD(, ipc_entry) ipc;
};

static inline struct cuda_memory *cuda_memory(struct engine_memory *memory)
{
	return (struct cuda_memory *)memory;
}

int cuda_memories_init(struct cuda_memories *memories, const struct device *device, struct error *err);

enum cuda_health { CUDA_HEALTHY, CUDA_LOST };

/* Everything must have been unmapped or left. On a device that is lost the driver is not asked. */
void cuda_memories_deinit(struct cuda_memories *memories, enum cuda_health health);

/* These do what engine_map and engine_make say. */
int cuda_memory_map(struct cuda_memories *memories, const struct engine_handle *handle,
                    struct engine_memory **ret, struct error *err);
int cuda_memory_create(struct cuda_memories *memories, const struct engine_handle *wanted,
                       struct engine_memory **ret, struct engine_export *ret_export, struct error *err);

/* Does what engine_settle says. */
int cuda_memory_settle(struct cuda_memories *memories, struct engine_memory *memory,
                       const atomic_bool *unwanted, struct error *err);

/* Does a step of unmapping. Returns LEFT if there are more. Else *memory is gone; an error of the driver's is
 * of interest if it is DEVICE_LOST. */
enum { CUDA_MEMORY_LEFT = 1 };
int cuda_memory_unmap(struct cuda_memories *memories, struct engine_memory *memory, struct error *err);

/* Lets memory go on a device that is lost, where nobody knows what still writes to it: the driver is not
 * asked, and mappings stay until the process ends. */
void cuda_memory_leave(struct cuda_memories *memories, struct engine_memory *memory);

/* Does what driver_call does, but says no more of the call than its name, because clients read it. */
#define memory_call(err, function, arguments) driver_check(err, driver.function arguments, #function)

/* ---- The kinds; each fills *memory, which is zeroed -----------------------------------------------------
 */

/* These are for memory by handle (memory_ipc.c). */
int ipc_memory_map(struct cuda_memories *memories, const struct engine_handle *handle,
                   struct cuda_memory *memory, struct error *err);
int ipc_memory_create(struct cuda_memories *memories, const struct engine_handle *wanted,
                      struct cuda_memory *memory, struct engine_export *ret_export, struct error *err);
int ipc_memory_unmap(struct cuda_memories *memories, struct cuda_memory *memory, struct error *err);
void ipc_memory_leave(struct cuda_memories *memories, struct cuda_memory *memory);

/* These are for memory by file descriptor (memory_fd.c). */
int fd_memory_map(struct cuda_memories *memories, const struct engine_handle *handle,
                  struct cuda_memory *memory, struct error *err);
int fd_memory_create(struct cuda_memories *memories, const struct engine_handle *wanted,
                     struct cuda_memory *memory, struct engine_export *ret_export, struct error *err);
int fd_memory_unmap(struct cuda_memories *memories, struct cuda_memory *memory, struct error *err);

/* These are for memory by the descriptor of a pool and a pointer (memory_ipc.c). */
int pool_memory_map(struct cuda_memories *memories, const struct engine_handle *handle,
                    struct cuda_memory *memory, struct error *err);
int pool_memory_unmap(struct cuda_memories *memories, struct cuda_memory *memory, struct error *err);
void pool_memory_leave(struct cuda_memories *memories, struct cuda_memory *memory);

/* Returns 0 if the driver may be asked about a descriptor, because it made it or it is a memfd. */
int fd_memory_check(int fd, struct error *err);

/* Returns the status of a handle or descriptor that the driver refused, whose reason is *why: a reason that
 * is neither the device's end nor want of memory lies in what the client brought, INVALID_ARGUMENT. What
 * would be the end (CUDA_ERROR_UNKNOWN, mostly) is believed when the device does not answer any more, so that
 * no client's bytes bring the service down. */
int cuda_memory_refusal(const struct error *why);

/* Returns OUT_OF_RANGE unless offset and size lie within the allocation's bytes. */
int cuda_memory_check_range(const struct engine_handle *handle, uint64_t bytes, struct error *err);

/* Returns INVALID_ARGUMENT unless the memory is on the device, and UNSUPPORTED for a peer's unless the device
 * may reach it. `what` is such as "fd: the allocation". */
int cuda_memory_check_location(struct cuda_memories *memories, const struct engine_handle *handle,
                               CUdevice device, const char *what, struct error *err);

/* Does the same for memory that has an address here. */
int cuda_memory_check_pointer(struct cuda_memories *memories, const struct engine_handle *handle,
                              CUdeviceptr address, const char *what, struct error *err);

/* Zeros new memory, and waits for it. Returns DEVICE_LOST if that cannot be waited for, and then nothing may
 * be done to the memory. */
int cuda_memory_zero(struct cuda_memories *memories, uint64_t address, uint64_t size, struct error *err);

/* Rounds size up to a multiple of unit, a power of two. Returns false if that passes what the device has. */
bool cuda_memory_round_up(const struct cuda_memories *memories, uint64_t size, uint64_t unit, uint64_t *ret);

#endif
