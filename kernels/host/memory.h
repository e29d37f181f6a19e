/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory of either engine: a mapping of a memfd, or of a file of tmpfs or hugetlbfs, which the kernel
 * treats alike. Any thread may map it; a mapping never changes.
 *
 * A page of the file is charged to the cgroup of whoever touches it first, for as long as the file has it.
 * The service therefore allocates no page in a client's file: a file with holes is refused, and access to a
 * hole that is punched later fails (backing.h). A file that the service itself has made loses its pages when
 * its region is released, even if somebody still has its descriptor.
 */
#ifndef KERNELS_HOST_MEMORY_H
#define KERNELS_HOST_MEMORY_H

#include <stdint.h>

#include "fault.h"
#include "kernels/engine.h"

struct host_memory {
	struct engine_memory base;
	char *data; /* address of the region's first byte */
	/* Mapping of the whole pages around the region; shrinks while it is unmapped. */
	struct fault_range mapped;
	size_t page;  /* bytes of a page of the file */
	bool is_made; /* the service made the file, whose pages are freed when it is unmapped */
	/* Number of bytes at the start of `mapped` that have been emptied and will be unmapped next. */
	size_t emptied;
	/* Descriptor base.seals if this memory has to close it; -1 if there is none or the backing owns
	 * it. */
	int own_seals;
};

static inline struct host_memory *host_memory(struct engine_memory *memory)
{
	return (struct host_memory *)memory;
}

/* Sets *ret to all memory of this process, without a file behind it and without watching for holes. Its first
 * byte is at HOST_MEMORY_FIRST, because a host address of NULL would mean device memory. */
#define HOST_MEMORY_FIRST 4096
void host_memory_init_own(struct host_memory *ret);

/* Maps and populates a client's file. Returns as engine_map does. */
int host_memory_map(const struct engine_handle *handle, struct engine_memory **ret, struct error *err);

/* Maps memory that a device is going to pin. The mapping is shared, even if it is only for reading. Such a
 * mapping cannot be watched while it is pinned if the descriptor is open for reading only or the file is
 * sealed against writing. The file must then be sealed against writing and shrinking, so that it can get no
 * hole. Memory that may stall is only mapped, not populated (is_loose of struct engine_memory); returns
 * UNSUPPORTED if its file can never be sealed. */
int host_memory_map_to_pin(const struct engine_handle *handle, struct engine_memory **ret, struct error *err);

/* Populates the pages of memory that host_memory_map_to_pin has left loose, once the memory has been sealed.
 * The caller then pins it. */
int host_memory_populate(struct engine_memory *memory, const atomic_bool *unwanted, struct error *err);

/* Returns whether, as far as that can be known (scout.h), a mapping of the memory can now be made or removed
 * without waiting for the lock of its file. */
bool host_memory_is_free(struct engine_memory *memory);

/* These functions bracket the time for which a device pins a client's memory. host_memory_pin must be called
 * before the device pins it. host_memory_pinned must be called once it has been pinned, and checks that the
 * file has not shrunk meanwhile. host_memory_unpin must be called once the memory is not pinned any more,
 * before it is unmapped. */
int host_memory_pin(struct engine_memory *memory, struct error *err);
int host_memory_pinned(struct engine_memory *memory, struct error *err);
void host_memory_unpin(struct engine_memory *memory);

/* Maps memory that another process of the service has mapped and uses. Pages are mapped when they are
 * touched. */
int host_memory_view(const struct engine_handle *handle, struct engine_memory **ret, struct error *err);

int host_memory_create(const struct engine_handle *wanted, struct engine_memory **ret,
                       struct engine_export *ret_export, struct error *err);

/* Does one step of unmapping, for which no other thread of the process has to wait long. Returns whether it
 * was the last step. Nothing may use the memory after the first step. */
bool host_memory_unmap_step(struct engine_memory *memory);

/* Does all steps of unmapping. */
void host_memory_unmap(struct engine_memory *memory);

/* Frees the memory but keeps its mapping, to which something else may still write, until the process ends. */
void host_memory_leave(struct engine_memory *memory);

#endif
