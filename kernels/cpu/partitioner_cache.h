/* SPDX-License-Identifier: Apache-2.0 */
/* How the last transforms of a stream were divided, for the next time: planning the first subregion takes
 * some microseconds, during which nobody else gets the lock under which work is handed out. */
#ifndef KERNELS_CPU_PARTITIONER_CACHE_H
#define KERNELS_CPU_PARTITIONER_CACHE_H

#include "partition.h"
#include "transform_key.h"

#define PARTITIONER_CACHE_ENTRIES 4

/* Zeroed: nothing. For one number of threads. */
struct partitioner_cache {
	unsigned next;
	struct partitioner_cache_entry {
		uint64_t hash; /* of the key; 0: no entry */
		struct transform_key key;
		struct partitioner partitioner; /* as it was at first */
	} entry[PARTITIONER_CACHE_ENTRIES];
};

/* As partitioner_init, the first subregion planned. */
void partitioner_cache_begin(struct partitioner_cache *cache, struct partitioner *ret,
                             const struct task *task, uint32_t threads);

#endif
