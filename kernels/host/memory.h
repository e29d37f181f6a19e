/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory of either engine is a mapping of a memfd, or of a file of tmpfs or hugetlbfs, which is the same
 * to the kernel. Any thread may map it; the mapping never changes.
 *
 * A page of the file is charged to the cgroup of whoever touches it first, for as long as the file has it. So
 * the service makes none in a client's file: a file with holes is refused, and access to a hole that is
 * punched later fails (backing.h). A file that the service itself has made loses its pages with its region,
 * whoever still has its descriptor.
 */
#ifndef KERNELS_HOST_MEMORY_H
#define KERNELS_HOST_MEMORY_H

#include <stdint.h>

#include "fault.h"
#include "kernels/engine.h"

struct host_memory {
	struct engine_memory base;
	char *data;                /* the region's first byte */
	struct fault_range mapped; /* the whole pages around the region */
	size_t page;               /* bytes of a page of the file */
	bool is_made;              /* the service made the file, whose pages go when it is unmapped */
	size_t emptied;            /* bytes from the start of `mapped` that are empty and are unmapped next */
	int own_seals;             /* descriptor of base.seals, unless that is the backing's; else -1 */
};

static inline struct host_memory *host_memory(struct engine_memory *memory)
{
	return (struct host_memory *)memory;
}

/* Makes *ret all memory of this process, which no file stands for and no guard watches. Its first byte lies
 * at HOST_MEMORY_FIRST, since NULL would stand for memory of a device. */
#define HOST_MEMORY_FIRST 4096
void host_memory_init_own(struct host_memory *ret);

int host_memory_map(const struct engine_handle *handle, struct engine_memory **ret, struct error *err);

/* Maps memory that a device is going to pin: the mapping is shared, even if only for reading. If the
 * descriptor is open for reading alone, or the file is sealed against writing, such a mapping cannot be
 * watched while it is pinned: then the file has to be sealed against writing and shrinking, so that it can
 * get no hole. Memory that may stall is mapped and no more (is_loose of struct engine_memory); it is
 * UNSUPPORTED if its file can never be sealed. */
int host_memory_map_to_pin(const struct engine_handle *handle, struct engine_memory **ret, struct error *err);

/* Maps the pages of memory that host_memory_map_to_pin has left loose, once it has been sealed. The caller
 * then pins it. */
int host_memory_populate(struct engine_memory *memory, const atomic_bool *unwanted, struct error *err);

/* Tells whether a mapping of the memory can be made or removed now without a wait for its file, as far as can
 * be known (scout.h). */
bool host_memory_is_free(struct engine_memory *memory);

/* host_memory_pin must be called before a device pins a client's memory, which may happen at any time from
 * then on; host_memory_pinned once it has; and host_memory_unpin when it does no more, before the memory is
 * unmapped. */
int host_memory_pin(struct engine_memory *memory, struct error *err);
int host_memory_pinned(struct engine_memory *memory, struct error *err);
void host_memory_unpin(struct engine_memory *memory);

/* Maps memory that another process of the service has mapped and uses. Its pages are mapped as they are
 * touched. */
int host_memory_view(const struct engine_handle *handle, struct engine_memory **ret, struct error *err);

int host_memory_create(const struct engine_handle *wanted, struct engine_memory **ret,
                       struct engine_export *ret_export, struct error *err);

/* Takes a step of unmapping, during which no other thread of the process has to wait. Returns true if it was
 * the last. After the first step nothing may use the memory. */
bool host_memory_unmap_step(struct engine_memory *memory);

/* Takes all steps of unmapping. */
void host_memory_unmap(struct engine_memory *memory);

/* Forgets a mapping to which something else may still write: it stays until the process ends. */
void host_memory_leave(struct engine_memory *memory);

#endif
