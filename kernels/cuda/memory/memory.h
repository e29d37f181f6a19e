/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that the CUDA engine works on: what clients bring (kinds memfd, cuda_ipc, cuda_fd and
 * cuda_pool), and what is made for them.
 *
 * It may be mapped and unmapped on any thread that has the device's context current, by several threads at
 * once. A mapping does not change while it exists. Sizes that a client states are checked against what the
 * kernel or the driver reports.
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

/* A memory of kind cuda_fd consists of allocations, which are mapped one after the other at contiguous
 * addresses.
 *
 * Several memories may map the same allocation, each at addresses of its own. Allocations are therefore
 * reference-counted, and released with the last memory. Counts may change on any thread.
 */

/* One allocation of the driver's virtual memory management, created or imported. */
struct cuda_chunk {
	CUmemGenericAllocationHandle handle;
	uint64_t size;
	atomic_uint refs;
};

/* The allocations of one memory, in address order. */
struct cuda_chunks {
	struct memory_chunks base; /* set by cuda_chunks_complete */
	uint32_t n;
	uint32_t room;
	struct cuda_chunk **list;
	uint64_t size; /* bytes of all allocations together */
};

/* Makes room in the list for n more allocations. Returns 0, or NO_MEMORY. */
int cuda_chunks_reserve(struct cuda_chunks *chunks, uint32_t n, struct error *err);

/* Adds an allocation of `size` bytes to the list, in which there must be room. Owns the handle from then on,
 * even if it fails. Returns 0 or NO_MEMORY. */
int cuda_chunks_add(struct cuda_chunks *chunks, CUmemGenericAllocationHandle handle, uint64_t size,
                    struct error *err);

/* Adds references to the allocations that make up bytes [offset, offset + size) of `others`, a complete list.
 * Returns OUT_OF_RANGE, and adds nothing, if these bytes are not whole allocations. Both lists are marked as
 * sharing. */
int cuda_chunks_share(struct cuda_chunks *chunks, struct cuda_chunks *others, uint64_t offset, uint64_t size,
                      struct error *err);

/* Completes the list, to which nothing is added afterwards. Returns INVALID_ARGUMENT if an allocation is in
 * it twice. */
int cuda_chunks_complete(struct cuda_chunks *chunks, struct error *err);

/* Removes the last allocation from the list and drops its reference. Returns 0, or the driver's error. */
int cuda_chunks_drop_last(struct cuda_chunks *chunks, struct error *err);

/* Drops all references and frees the list, whatever the driver answers. */
void cuda_chunks_deinit(struct cuda_chunks *chunks);

/* Like cuda_chunks_deinit, for a lost device: no driver call is made. */
void cuda_chunks_leave(struct cuda_chunks *chunks);

struct ipc_entry;
struct pool_entry;

struct cuda_memory {
	struct engine_memory base;
	uint64_t address; /* device address of the region's first byte */
	/* memfd: the host's mapping of it, which the driver pins; otherwise NULL. */
	struct engine_memory *host;
	char *data; /* memfd: host address of the region's first byte; otherwise NULL */
	/* memfd: it is not pinned, because it is loose (engine_memory.is_loose) or being unmapped. */
	bool is_unpinned;
	bool is_peer;          /* It is on another device, which is reached across a link. */
	struct ipc_entry *ipc; /* cuda_ipc: the opened or created handle; otherwise NULL */
	/* cuda_pool: the imported allocation, and this memory's own import of the pool; otherwise NULL. */
	struct pool_entry *allocation;
	CUmemoryPool pool;
	/* cuda_fd: the allocations, and the range of `mapped` bytes of addresses reserved for them. */
	struct cuda_chunks chunks;
	CUdeviceptr start;
	uint64_t mapped;
};

struct cuda_memories {
	const struct device *device;
	CUstream stream;     /* on which new memory is zeroed, and imports from pools are freed */
	bool read_only_pins; /* The device can pin memory that it must not write. */
	/* Handles that this engine has opened, each once. A lock in memory_ipc.c guards the lists of all
	 * engines. */
	LIST_HEAD(, ipc_entry) ipc;
};

static inline struct cuda_memory *cuda_memory(struct engine_memory *memory)
{
	return (struct cuda_memory *)memory;
}

int cuda_memories_init(struct cuda_memories *memories, const struct device *device, struct error *err);

enum cuda_health { CUDA_HEALTHY, CUDA_LOST };

/* Every memory must have been unmapped or left. On a lost device no driver call is made. */
void cuda_memories_deinit(struct cuda_memories *memories, enum cuda_health health);

/* These implement engine_map and engine_make. */
int cuda_memory_map(struct cuda_memories *memories, const struct engine_handle *handle,
                    struct engine_memory **ret, struct error *err);
int cuda_memory_create(struct cuda_memories *memories, const struct engine_handle *wanted,
                       struct engine_memory **ret, struct engine_export *ret_export, struct error *err);

/* Implements engine_settle. */
int cuda_memory_settle(struct cuda_memories *memories, struct engine_memory *memory,
                       const atomic_bool *unwanted, struct error *err);

/* Does one step of unmapping. Returns CUDA_MEMORY_LEFT if there are more. Otherwise *memory has been freed,
 * and 0 or the driver's error is returned, of which only DEVICE_LOST matters. */
enum { CUDA_MEMORY_LEFT = 1 };
int cuda_memory_unmap(struct cuda_memories *memories, struct engine_memory *memory, struct error *err);

/* Frees only the structs that describe the memory; for a lost device. Nobody knows what that device still
 * writes, so no driver call is made, and mappings stay until the process ends. */
void cuda_memory_leave(struct cuda_memories *memories, struct engine_memory *memory);

/* Like driver_call, but the error gives only the name of the function and not its arguments, because clients
 * read it. */
#define memory_call(err, function, arguments) driver_check(err, driver.function arguments, #function)

/* ---- The kinds; each fills *memory, which is zeroed -----------------------------------------------------
 */

/* Memory by CUDA IPC handle (memory_ipc.c). */
int ipc_memory_map(struct cuda_memories *memories, const struct engine_handle *handle,
                   struct cuda_memory *memory, struct error *err);
int ipc_memory_create(struct cuda_memories *memories, const struct engine_handle *wanted,
                      struct cuda_memory *memory, struct engine_export *ret_export, struct error *err);
int ipc_memory_unmap(struct cuda_memories *memories, struct cuda_memory *memory, struct error *err);
void ipc_memory_leave(struct cuda_memories *memories, struct cuda_memory *memory);

/* Memory by file descriptor (memory_fd.c). */
int fd_memory_map(struct cuda_memories *memories, const struct engine_handle *handle,
                  struct cuda_memory *memory, struct error *err);
int fd_memory_create(struct cuda_memories *memories, const struct engine_handle *wanted,
                     struct cuda_memory *memory, struct engine_export *ret_export, struct error *err);
int fd_memory_unmap(struct cuda_memories *memories, struct cuda_memory *memory, struct error *err);

/* Memory by the descriptor of a pool and an exported pointer (memory_ipc.c). */
int pool_memory_map(struct cuda_memories *memories, const struct engine_handle *handle,
                    struct cuda_memory *memory, struct error *err);
int pool_memory_unmap(struct cuda_memories *memories, struct cuda_memory *memory, struct error *err);
void pool_memory_leave(struct cuda_memories *memories, struct cuda_memory *memory);

/* Returns 0 if the descriptor may be given to the driver: it is a file of the driver's, or a memfd. Otherwise
 * returns INVALID_ARGUMENT. */
int fd_memory_check(int fd, struct error *err);

/* Returns the status to report when the driver refused a handle or descriptor of a client's with the error
 * *why. Unless memory is lacking or the device is lost, the client is at fault: INVALID_ARGUMENT. An error
 * that would mean that the device is lost (mostly CUDA_ERROR_UNKNOWN) is believed only if the device no
 * longer answers, so that no client's bytes can bring the service down. */
int cuda_memory_refusal(const struct error *why);

/* Returns OUT_OF_RANGE unless [handle->offset, handle->offset + handle->size) lies within an allocation of
 * `bytes` bytes. */
int cuda_memory_check_range(const struct engine_handle *handle, uint64_t bytes, struct error *err);

/* Returns INVALID_ARGUMENT unless the memory is on this device or, for a peer's memory, UNSUPPORTED unless
 * this device may access it. `what` names the memory in the error, such as "fd: the allocation". */
int cuda_memory_check_location(struct cuda_memories *memories, const struct engine_handle *handle,
                               CUdevice device, const char *what, struct error *err);

/* Does the same check for memory that is mapped at `address`, of which it asks the driver for the device. */
int cuda_memory_check_pointer(struct cuda_memories *memories, const struct engine_handle *handle,
                              CUdeviceptr address, const char *what, struct error *err);

/* Zeros new memory and waits until that is done. Returns DEVICE_LOST if the end cannot be awaited; the memory
 * must not be touched or freed then. */
int cuda_memory_zero(struct cuda_memories *memories, uint64_t address, uint64_t size, struct error *err);

/* Sets *ret to size rounded up to a multiple of unit, a power of two. Returns false if size exceeds the
 * device's memory. */
bool cuda_memory_round_up(const struct cuda_memories *memories, uint64_t size, uint64_t unit, uint64_t *ret);

#endif
