/* Memory of the CPU engine: a mapping of a memfd. Mapped on any thread; the mapping never changes.
 *
 * A page of the file is charged to the cgroup of who touches it first, for as long as the file has it. So the
 * service makes none in a client's file: one with holes is refused, and access to a hole that is punched
 * later fails (holes.h). What the service itself has made loses its pages with its region, whoever still has
 * its descriptor. */
#ifndef KERNELS_HOST_MEMORY_H
#define KERNELS_HOST_MEMORY_H

#include <stdint.h>

#include "fault.h"
#include "kernels/engine.h"

struct cpu_memory {
	struct engine_memory base;
	char *data;                /* the region's first byte */
	struct fault_range mapped; /* whole pages around it */
	bool is_made;              /* by the service: its pages go when it is unmapped */
	size_t emptied;            /* of those, from the first: on the way to be unmapped */
};

static inline struct cpu_memory *cpu_memory(struct engine_memory *memory)
{
	return (struct cpu_memory *)memory;
}

int cpu_memory_map(const struct engine_handle *handle, struct engine_memory **ret, struct error *err);

/* The same for memory that a device pins: a mapping that is shared, also for reading alone. A descriptor that
 * is open for reading alone then has to be of a file that is sealed against writing, because such a mapping
 * cannot be watched while it is pinned. */
int cpu_memory_map_to_pin(const struct engine_handle *handle, struct engine_memory **ret, struct error *err);
int cpu_memory_create(const struct engine_handle *wanted, struct engine_memory **ret,
                      struct engine_export *ret_export, struct error *err);

/* A step of unmapping it, which no other thread of the process has to wait for (unmap.c): whether it was the
 * last. From the first one on nothing may use the memory. */
bool cpu_memory_unmap_step(struct engine_memory *memory);

/* All steps. */
void cpu_memory_unmap(struct engine_memory *memory);

/* Forgets a mapping that something else may still write to: it stays until the process ends. */
void cpu_memory_leave(struct engine_memory *memory);

#endif
