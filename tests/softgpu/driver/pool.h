/* SPDX-License-Identifier: Apache-2.0 */
/* Memory pools (pool.c) and their memory (pool_memory.c). */
#ifndef TESTS_SOFTGPU_POOL_H
#define TESTS_SOFTGPU_POOL_H

#include "softgpu.h"

#define POOL_BYTES (UINT64_C(256) << 20)

/* Identifies a pool in all processes. */
struct pool_name {
	int32_t ordinal;
	int32_t pid; /* the process that made the pool */
	uint64_t id; /* unique among the pools of that process */
};

struct pool {
	TAILQ_ENTRY(pool) entry;
	struct pool_name name;
	int fd;
	uint64_t start;
	bool is_imported;
	/* Number of imports, or 1 in the process that made it; 0: destroyed, while some of its memory is not
	 * freed yet. */
	unsigned owners;
	unsigned used; /* number of ranges in it */
	CUmemAllocationHandleType types;
	device_set readers;
	device_set writers;
};

/* Returns NULL if the handle is no pool. */
struct pool *pool_find(CUmemoryPool handle);

/* Adds a range to the pool, which keeps the pool alive. */
CUresult pool_add_range(CUdeviceptr *ret, struct pool *pool, enum range_kind kind, uint64_t start,
                        uint64_t size);

/* Frees the pool if it has neither owners nor ranges. */
void pool_free_unused(struct pool *pool);

#endif
