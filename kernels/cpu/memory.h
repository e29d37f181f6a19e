/* Memory of the CPU engine: a shared mapping of a memfd. Mapped on any thread; the mapping never changes. */
#ifndef KERNELS_CPU_MEMORY_H
#define KERNELS_CPU_MEMORY_H

#include <stdint.h>

#include "fault.h"
#include "kernels/engine.h"

struct cpu_memory {
	struct engine_memory base;
	char *data;                /* the region's first byte */
	struct fault_range mapped; /* whole pages around it */
};

static inline struct cpu_memory *cpu_memory(struct engine_memory *memory)
{
	return (struct cpu_memory *)memory;
}

int cpu_memory_map(const struct engine_handle *handle, struct engine_memory **ret, struct error *err);
int cpu_memory_create(const struct engine_handle *wanted, struct engine_memory **ret,
                      struct engine_export *ret_export, struct error *err);
void cpu_memory_unmap(struct engine_memory *memory);

/* Forgets a mapping that something else may still write to: it stays until the process ends. */
void cpu_memory_leave(struct engine_memory *memory);

#endif
