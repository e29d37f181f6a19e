/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the entry of a transform, and moves a copy of its partitioner to the transform's place. */
#include "partitioner_cache.h"

#include "hash.h"

/* Whether two tasks of transforms that agree are divided alike, wherever they lie. */
static bool is_alike(const struct task *a, const struct task *b)
{
	return a->isa == b->isa && a->place.piece_bytes == b->place.piece_bytes &&
	       a->place.tiled_bytes == b->place.tiled_bytes && a->place.stream == b->place.stream;
}

void partitioner_cache_begin(struct partitioner_cache *cache, struct partitioner *ret,
                             const struct task *task, uint32_t threads)
{
	struct transform_key key;
	if (task->transform->conversion.is) {
		partitioner_init(ret, task, threads);
		return;
	}
	transform_key_init(&key, task->transform);
	const size_t bytes = transform_key_bytes(&key);
	const uint64_t hash = hash_bytes(&key, bytes) | 1;
	for (int i = 0; i < PARTITIONER_CACHE_ENTRIES; i++) {
		const struct partitioner_cache_entry *entry = &cache->entry[i];
		if (entry->hash == hash && memcmp(&entry->key, &key, bytes) == 0 &&
		    is_alike(&entry->partitioner.task, task)) {
			*ret = entry->partitioner;
			partitioner_replace(ret, task);
			return;
		}
	}
	partitioner_init(ret, task, threads);
	if (!partitioner_plan_first(ret))
		return;
	struct partitioner_cache_entry *entry = &cache->entry[cache->next];
	cache->next = (cache->next + 1) % PARTITIONER_CACHE_ENTRIES;
	entry->hash = hash;
	memcpy(&entry->key, &key, bytes);
	entry->partitioner = *ret;
}
