/* SPDX-License-Identifier: Apache-2.0 */
/* Encoded tensor maps are kept by layout, and the address is patched into a copy.
 *
 * Room for every entry is taken at the start, so that neither a hit nor a miss allocates. The least recently
 * used map goes first, and only once the map that takes its place has been encoded. Any thread may use a
 * cache; it is locked for as long as it takes to look a map up or to encode one.
 */
#ifndef KERNELS_CUDA_LAUNCH_MAP_CACHE_H
#define KERNELS_CUDA_LAUNCH_MAP_CACHE_H

#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/queue.h>

#include "kernels/cuda/strategy/tensor_map.h"
#include "kernels/engine.h"
#include "proto/status.h"

struct map_entry {
	CUtensorMap map; /* of the layout at the address */
	uint64_t address;
	struct tensor_map_layout layout;
	uint64_t hash;
	TAILQ_ENTRY(map_entry) used; /* most recent first */
	LIST_ENTRY(map_entry) bucket;
};

struct map_cache {
	pthread_mutex_t lock;      /* It guards everything but the counters, which only its holder changes. */
	struct map_entry *entries; /* the first n_entries are in use */
	uint64_t capacity;
	TAILQ_HEAD(map_list, map_entry) used;
	LIST_HEAD(map_bucket, map_entry) * buckets;
	uint64_t n_buckets; /* a power of two */
	uint64_t seed;
	_Atomic uint64_t hits;
	_Atomic uint64_t misses;
	_Atomic uint64_t evictions;
	_Atomic uint64_t n_entries;
};

/* capacity 0: nothing is kept. seed: random, so that collisions cannot be chosen. 0, or NO_MEMORY and nothing
 * is left. */
int map_cache_init(struct map_cache *cache, uint64_t capacity, uint64_t seed, struct error *err);

/* A zeroed cache is allowed. */
void map_cache_deinit(struct map_cache *cache);

/* Sets *ret to the map of the layout at the address. Returns 0, INVALID_ARGUMENT with every rule that the two
 * break, or the driver's error. On failure *ret and what is kept stay as they were. The context must be
 * current. */
int map_cache_get(struct map_cache *cache, const struct tensor_map_layout *layout, uint64_t address,
                  CUtensorMap *ret, struct error *err);

/* Any thread may call this; it takes no lock. */
void map_cache_stats(const struct map_cache *cache, struct engine_cache_stats *ret);

#endif
