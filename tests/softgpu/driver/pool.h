/* SPDX-License-Identifier: Apache-2.0 */
/* Memory pools (pool.c) and their memory (pool_memory.c). */
#ifndef TESTS_SOFTGPU_POOL_H
#define TESTS_SOFTGPU_POOL_H

#include "softgpu.h"

#define POOL_BYTES (UINT64_C(256) << 20)

/* Which pool it is, wherever. */
struct pool_name {
	int32_t ordinal;
	int32_t pid; /* that made it */
	uint64_t id; /* there */
};

struct pool {
	TAILQ_ENTRY(pool) entry;
	struct pool_name name;
	int fd;
	uint64_t start;
	bool is_imported;
	unsigned owners; /* imports, or 1; 0: destroyed, but not all of its memory is freed */
	unsigned used;   /* ranges in it */
	CUmemAllocationHandleType types;
	device_set readers;
	device_set writers;
};

/* NULL when it is no handle. */
struct pool *pool_find(CUmemoryPool handle);

/* A range in it, which keeps it alive. */
CUresult pool_add_range(CUdeviceptr *ret, struct pool *pool, enum range_kind kind, uint64_t start,
                        uint64_t size);

/* Frees it if it has neither owners nor ranges. */
void pool_free_unused(struct pool *pool);

#endif
