/* SPDX-License-Identifier: Apache-2.0 */
/* The cache of tensor maps: a hash table with chains, and an LRU list, over a fixed array of entries. */
#include "launch.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/driver/driver.h"

#define MAX_BUCKETS (1u << 20)

/* The enums of tensor_map.h have the same values as the driver's. */
#define SAME(ours, theirs) static_assert((int)(ours) == (int)(theirs), #ours)
SAME(TENSOR_MAP_UINT8, CU_TENSOR_MAP_DATA_TYPE_UINT8);
SAME(TENSOR_MAP_UINT16, CU_TENSOR_MAP_DATA_TYPE_UINT16);
SAME(TENSOR_MAP_UINT32, CU_TENSOR_MAP_DATA_TYPE_UINT32);
SAME(TENSOR_MAP_INT32, CU_TENSOR_MAP_DATA_TYPE_INT32);
SAME(TENSOR_MAP_UINT64, CU_TENSOR_MAP_DATA_TYPE_UINT64);
SAME(TENSOR_MAP_INT64, CU_TENSOR_MAP_DATA_TYPE_INT64);
SAME(TENSOR_MAP_FLOAT16, CU_TENSOR_MAP_DATA_TYPE_FLOAT16);
SAME(TENSOR_MAP_FLOAT32, CU_TENSOR_MAP_DATA_TYPE_FLOAT32);
SAME(TENSOR_MAP_FLOAT64, CU_TENSOR_MAP_DATA_TYPE_FLOAT64);
SAME(TENSOR_MAP_BFLOAT16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
SAME(TENSOR_MAP_FLOAT32_FTZ, CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ);
SAME(TENSOR_MAP_TFLOAT32, CU_TENSOR_MAP_DATA_TYPE_TFLOAT32);
SAME(TENSOR_MAP_TFLOAT32_FTZ, CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ);
SAME(TENSOR_MAP_16U4_ALIGN8B, CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B);
SAME(TENSOR_MAP_16U4_ALIGN16B, CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B);
SAME(TENSOR_MAP_16U6_ALIGN16B, CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B);
SAME(TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_INTERLEAVE_NONE);
SAME(TENSOR_MAP_INTERLEAVE_16B, CU_TENSOR_MAP_INTERLEAVE_16B);
SAME(TENSOR_MAP_INTERLEAVE_32B, CU_TENSOR_MAP_INTERLEAVE_32B);
SAME(TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE);
SAME(TENSOR_MAP_SWIZZLE_32B, CU_TENSOR_MAP_SWIZZLE_32B);
SAME(TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_SWIZZLE_64B);
SAME(TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_SWIZZLE_128B);
SAME(TENSOR_MAP_SWIZZLE_128B_ATOM_32B, CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B);
SAME(TENSOR_MAP_SWIZZLE_128B_ATOM_32B_FLIP_8B, CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B_FLIP_8B);
SAME(TENSOR_MAP_SWIZZLE_128B_ATOM_64B, CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B);
SAME(TENSOR_MAP_L2_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE);
SAME(TENSOR_MAP_L2_64B, CU_TENSOR_MAP_L2_PROMOTION_L2_64B);
SAME(TENSOR_MAP_L2_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
SAME(TENSOR_MAP_L2_256B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
SAME(TENSOR_MAP_FILL_ZERO, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
SAME(TENSOR_MAP_FILL_NAN, CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA);

static struct map_entry *find(const struct map_cache *cache, const struct tensor_map_layout *layout,
                              uint64_t hash);
static int hit(struct map_cache *cache, struct map_entry *entry, uint64_t address, CUtensorMap *ret,
               struct error *err);
static int encode(CUtensorMap *ret, const struct tensor_map_layout *layout, uint64_t address,
                  struct error *err);
static void keep(struct map_cache *cache, const struct tensor_map_layout *layout, uint64_t hash,
                 uint64_t address, const CUtensorMap *map);
static int check(const struct tensor_map_layout *layout, uint64_t address, struct error *err);

/* ---- Counters ---------------------------------------------------------------------------------------- */

static uint64_t read_counter(const _Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

/* Increments a counter. Caller holds cache->lock, so no atomic read-modify-write is needed. */
static void count(_Atomic uint64_t *counter)
{
	atomic_store_explicit(counter, read_counter(counter) + 1, memory_order_relaxed);
}

void map_cache_stats(const struct map_cache *cache, struct engine_cache_stats *ret)
{
	*ret = (struct engine_cache_stats){
		.hits = read_counter(&cache->hits),
		.misses = read_counter(&cache->misses),
		.evictions = read_counter(&cache->evictions),
		.entries = read_counter(&cache->n_entries),
	};
}

/* ---- Life -------------------------------------------------------------------------------------------- */

int map_cache_init(struct map_cache *cache, uint64_t capacity, uint64_t seed, struct error *err)
{
	uint64_t n = 16;
	size_t bytes;

	while (n < capacity && n < MAX_BUCKETS)
		n *= 2;
	*cache = (struct map_cache){ .capacity = capacity, .n_buckets = n, .seed = seed };
	TAILQ_INIT(&cache->used);
	if (!__builtin_mul_overflow(capacity, sizeof *cache->entries, &bytes)) {
		cache->buckets = calloc(n, sizeof *cache->buckets);
		cache->entries = aligned_alloc(_Alignof(struct map_entry), bytes);
	}
	if (!cache->buckets || (!cache->entries && capacity > 0)) {
		map_cache_deinit(cache);
		return error_set(err, STATUS_NO_MEMORY, "no memory for %" PRIu64 " tensor maps", capacity);
	}
	pthread_mutex_init(&cache->lock, NULL);
	return 0;
}

void map_cache_deinit(struct map_cache *cache)
{
	free(cache->entries);
	free(cache->buckets);
	*cache = (struct map_cache){ 0 };
}

/* ---- Get --------------------------------------------------------------------------------------------- */

static int get(struct map_cache *cache, const struct tensor_map_layout *layout, uint64_t address,
               CUtensorMap *ret, struct error *err)
{
	uint64_t hash = tensor_map_hash(layout, cache->seed);
	struct map_entry *entry = find(cache, layout, hash);
	CUtensorMap map;
	int r;

	if (entry)
		return hit(cache, entry, address, ret, err);

	r = encode(&map, layout, address, err);
	if (r < 0)
		return r;
	count(&cache->misses);
	if (cache->capacity > 0)
		keep(cache, layout, hash, address, &map);
	*ret = map;
	return 0;
}

int map_cache_get(struct map_cache *cache, const struct tensor_map_layout *layout, uint64_t address,
                  CUtensorMap *ret, struct error *err)
{
	int r;

	pthread_mutex_lock(&cache->lock);
	r = get(cache, layout, address, ret, err);
	pthread_mutex_unlock(&cache->lock);
	return r;
}

static struct map_bucket *bucket_of(const struct map_cache *cache, uint64_t hash)
{
	return &cache->buckets[hash & (cache->n_buckets - 1)];
}

static struct map_entry *find(const struct map_cache *cache, const struct tensor_map_layout *layout,
                              uint64_t hash)
{
	struct map_entry *entry;

	LIST_FOREACH(entry, bucket_of(cache, hash), bucket)
		if (entry->hash == hash && tensor_map_equal(&entry->layout, layout))
			return entry;
	return NULL;
}

/* Sets *ret to the entry's map with this address. The entry itself keeps its address, so a failed patch
 * leaves the cache intact. Caller holds cache->lock. */
static int hit(struct map_cache *cache, struct map_entry *entry, uint64_t address, CUtensorMap *ret,
               struct error *err)
{
	CUtensorMap map = entry->map;
	int r;

	if (address % tensor_map_align(&entry->layout))
		return check(&entry->layout, address, err);
	if (address != entry->address) {
		r = driver_check(err, driver.cuTensorMapReplaceAddress(&map, (void *)address),
		                 "cuTensorMapReplaceAddress");
		if (r < 0)
			return r;
	}
	count(&cache->hits);
	TAILQ_REMOVE(&cache->used, entry, used);
	TAILQ_INSERT_HEAD(&cache->used, entry, used);
	*ret = map;
	return 0;
}

static int encode(CUtensorMap *ret, const struct tensor_map_layout *layout, uint64_t address,
                  struct error *err)
{
	int r = check(layout, address, err);

	if (r < 0)
		return r;
	return driver_check(err,
	                    driver.cuTensorMapEncodeTiled(
				ret, (CUtensorMapDataType)layout->type, layout->rank, (void *)address,
				layout->dim, layout->stride, layout->box, layout->element_stride,
				(CUtensorMapInterleave)layout->interleave,
				(CUtensorMapSwizzle)layout->swizzle, (CUtensorMapL2promotion)layout->l2,
				(CUtensorMapFloatOOBfill)layout->fill),
	                    "cuTensorMapEncodeTiled");
}

/* Stores the map in an unused entry or, if there is none, in place of the least recently used one. Caller
 * holds cache->lock, and the capacity is not 0. */
static void keep(struct map_cache *cache, const struct tensor_map_layout *layout, uint64_t hash,
                 uint64_t address, const CUtensorMap *map)
{
	uint64_t n = read_counter(&cache->n_entries);
	struct map_entry *entry;

	if (n < cache->capacity) {
		entry = &cache->entries[n];
		count(&cache->n_entries);
	} else {
		entry = TAILQ_LAST(&cache->used, map_list);
		TAILQ_REMOVE(&cache->used, entry, used);
		LIST_REMOVE(entry, bucket);
		count(&cache->evictions);
	}
	entry->map = *map;
	entry->address = address;
	entry->layout = *layout;
	entry->hash = hash;
	TAILQ_INSERT_HEAD(&cache->used, entry, used);
	LIST_INSERT_HEAD(bucket_of(cache, hash), entry, bucket);
}

/* Returns 0 if no rule is broken. Otherwise it returns INVALID_ARGUMENT and lists the broken rules in the
 * message, with the number of those that do not fit. */
static int check(const struct tensor_map_layout *layout, uint64_t address, struct error *err)
{
	enum { MORE = sizeof "; 99 more" };
	char text[sizeof err->message - sizeof "tensor map: "];
	struct tensor_map_rules rules;
	size_t used = 0;
	int i;

	if (tensor_map_check(layout, address, &rules) == 0)
		return 0;
	for (i = 0; i < rules.n; i++) {
		size_t room = sizeof text - used - (i + 1 < rules.n ? MORE : 0);

		if (strlen("; ") + strlen(rules.text[i]) >= room)
			break;
		used += (size_t)sprintf(text + used, "%s%s", i ? "; " : "", rules.text[i]);
	}
	if (i < rules.n)
		sprintf(text + used, "; %d more", rules.n - i);
	return error_set(err, STATUS_INVALID_ARGUMENT, "tensor map: %s", text);
}
