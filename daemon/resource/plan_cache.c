/* SPDX-License-Identifier: Apache-2.0 */
/* A hash table of chains, with an LRU list through its entries. The key is the packed spec: equal keys mean
 * equal plans. */
#include "plan_cache.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Four layouts, or those of amax and its blocks, perm, before and after of the greatest rank, and the fixed
 * part. */
#define KEY_WORDS (TENSOR_MAX_RANK * 12 + 24)

struct key {
	uint32_t n;
	uint64_t word[KEY_WORDS];
};

static uint64_t buckets_for(uint64_t capacity)
{
	uint64_t n = 16;

	while (n < capacity && n < (1u << 20))
		n *= 2;
	return n;
}

int plan_cache_init(struct plan_cache *cache, uint64_t capacity, uint64_t seed)
{
	uint64_t n = buckets_for(capacity);

	*cache = (struct plan_cache){ .n_buckets = n, .capacity = capacity, .seed = seed };
	TAILQ_INIT(&cache->used);
	TAILQ_INIT(&cache->searching);
	cache->buckets = calloc(n, sizeof *cache->buckets);
	return cache->buckets ? 0 : STATUS_NO_MEMORY;
}

static void evict(struct plan_cache *cache, struct plan_entry *entry)
{
	TAILQ_REMOVE(&cache->used, entry, used);
	LIST_REMOVE(entry, bucket);
	cache->entries--;
	plan_entry_unref(entry);
}

void plan_cache_resize(struct plan_cache *cache, uint64_t capacity)
{
	uint64_t n = buckets_for(capacity);
	struct plan_bucket *buckets;
	struct plan_entry *entry;

	while (cache->entries > capacity)
		evict(cache, TAILQ_LAST(&cache->used, plan_list));
	cache->capacity = capacity;
	buckets = n == cache->n_buckets ? NULL : calloc(n, sizeof *buckets);
	if (!buckets)
		return;
	TAILQ_FOREACH(entry, &cache->used, used)
		LIST_INSERT_HEAD(&buckets[entry->hash & (n - 1)], entry, bucket);
	free(cache->buckets);
	cache->buckets = buckets;
	cache->n_buckets = n;
}

void plan_cache_deinit(struct plan_cache *cache)
{
	struct plan_entry *entry;

	if (!cache->buckets)
		return;
	while ((entry = TAILQ_FIRST(&cache->used))) {
		assert(entry->refs == 1); /* no job uses it */
		evict(cache, entry);
	}
	assert(cache->entries == 0 && cache->n_searching == 0);
	free(cache->buckets);
}

/* ---- Keys --------------------------------------------------------------------------------------------- */

/* Packs nothing for a count of -1. The lists are short: a call would cost more than the loop. */
static void key_add(struct key *key, const int64_t *values, int n)
{
	uint64_t *word = key->word + key->n;

	if (n <= 0)
		return;
	assert((uint32_t)n <= KEY_WORDS - key->n);
	for (int i = 0; i < n; i++)
		word[i] = (uint64_t)values[i];
	key->n += (uint32_t)n;
}

static void key_add_operand(struct key *key, const struct operand_spec *operand)
{
	const struct tensor_layout *layout = &operand->layout;

	key->word[key->n++] = (uint64_t)operand->kind;
	if (operand->kind != OPERAND_TENSOR)
		return;
	key->word[key->n++] = (uint64_t)layout->dtype << 32 | (uint32_t)layout->rank;
	key_add(key, layout->shape, layout->rank);
	key_add(key, layout->stride, layout->rank);
}

static void key_add_result(struct key *key, const struct amax_result_spec *result)
{
	const struct operand_spec as_tensor = { .kind = OPERAND_TENSOR, .layout = result->layout };
	const struct operand_spec none = { .kind = OPERAND_NONE };

	key_add_operand(key, result->is_given ? &as_tensor : &none);
}

static void key_add_amax(struct key *key, const struct amax_spec *amax)
{
	key->word[key->n++] = amax->is_given ? 1 + (uint64_t)amax->power_of_two : 0;
	if (!amax->is_given)
		return;
	memcpy(&key->word[key->n++], &amax->least, sizeof(amax->least));
	key->word[key->n++] = (uint64_t)amax->n_block;
	key_add(key, amax->block, amax->n_block);
	key_add_result(key, &amax->scale);
	key_add_result(key, &amax->inverse);
}

/* Counts come before the items, so that no two specs pack alike. */
static void key_pack(struct key *key, const struct transform_spec *spec, const struct plan_facts *facts)
{
	const struct conversion_spec *conversion = &spec->conversion;
	const struct tensor_layout *dst = &spec->dst, *src = &spec->src;
	const int32_t head[] = {
		(int32_t)dst->dtype,
		(int32_t)src->dtype,
		dst->rank,
		src->rank,
		spec->n_perm,
		spec->n_before,
		spec->n_after,
		(int32_t)spec->mode,
		(int32_t)facts->align,
		(int32_t)spec->value.kind,
		facts->dst_phase,
		facts->src_phase,
		facts->spread | facts->variant << 1,
		spec->conversion.is_given ? 1 + (int32_t)spec->conversion.cast : 0,
	};

	memcpy(key->word, head, sizeof head);
	key->n = sizeof head / (sizeof(uint64_t));
	key->word[key->n++] = spec->value.u;
	memcpy(&key->word[key->n++], &spec->value.im, sizeof spec->value.im);
	key_add(key, dst->shape, dst->rank);
	key_add(key, dst->stride, dst->rank);
	key_add(key, src->shape, src->rank);
	key_add(key, src->stride, src->rank);
	key_add(key, spec->perm, spec->n_perm);
	key_add(key, spec->before, spec->n_before);
	key_add(key, spec->after, spec->n_after);
	if (conversion->is_given || conversion->scale.kind || conversion->bias.kind ||
	    conversion->amax.is_given) {
		key_add_operand(key, &conversion->scale);
		key_add_operand(key, &conversion->bias);
		key_add_amax(key, &conversion->amax);
	}
}

/* Mixes both halves of a product, which depend on all bits of its factors. */
static uint64_t mix(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* The seed is part of each factor, so that no key can make one 0. The two chains run in parallel on a CPU. */
static uint64_t key_hash(const struct key *key, uint64_t seed)
{
	uint64_t secret = seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
	uint64_t a = seed ^ key->n, b = ~seed;
	const uint64_t *word = key->word;
	uint32_t n = key->n;

	for (; n >= 4; n -= 4, word += 4) {
		a = mix(a ^ word[0], secret ^ word[1]);
		b = mix(b ^ word[2], secret ^ word[3]);
	}
	for (; n > 0; n--, word++)
		a = mix(a ^ *word, secret);
	return mix(a, b ^ secret);
}

/* ---- Entries ------------------------------------------------------------------------------------------ */

static struct plan_entry *entry_new(const struct transform_spec *spec, const struct plan_facts *facts,
                                    const struct key *key, struct error *err)
{
	struct plan_entry *entry = calloc(1, sizeof *entry + key->n * sizeof key->word[0]);

	if (!entry) {
		error_set(err, STATUS_NO_MEMORY, "no memory for a plan");
		return NULL;
	}
	if (transform_init(&entry->transform, spec, err) < 0) {
		free(entry);
		return NULL;
	}
	plan_init(&entry->plan, &entry->transform, facts);
	entry->facts = *facts;
	entry->measured = &entry->plan;
	if (!alternatives_are_worth_trying(&entry->plan, entry->transform.bytes, &facts->copy))
		entry->settled = &entry->plan;
	entry->refs = 1;
	entry->key_words = key->n;
	memcpy(entry->key, key->word, key->n * sizeof key->word[0]);
	return entry;
}

int plan_entry_new(const struct transform_spec *spec, const struct plan_facts *facts, struct plan_entry **ret,
                   struct error *err)
{
	static const struct key none;

	*ret = entry_new(spec, facts, &none, err);
	return *ret ? 0 : err->status;
}

static bool entry_has(const struct plan_entry *entry, const struct key *key)
{
	return entry->key_words == key->n && !memcmp(entry->key, key->word, key->n * sizeof key->word[0]);
}

static struct plan_entry *entry_used(struct plan_cache *cache, struct plan_entry *entry)
{
	cache->hits++;
	entry->refs++;
	return entry;
}

static void entry_insert(struct plan_cache *cache, struct plan_bucket *bucket, struct plan_entry *entry)
{
	if (cache->capacity == 0)
		return;
	if (cache->entries >= cache->capacity) {
		evict(cache, TAILQ_LAST(&cache->used, plan_list));
		cache->evictions++;
	}
	entry->refs++;
	TAILQ_INSERT_HEAD(&cache->used, entry, used);
	LIST_INSERT_HEAD(bucket, entry, bucket);
	cache->entries++;
}

/* A client often asks for the same plan again: the plan used last is compared before a hash is computed. */
int plan_cache_get(struct plan_cache *cache, const struct transform_spec *spec,
                   const struct plan_facts *facts, struct plan_entry **ret, struct error *err)
{
	struct plan_entry *entry = TAILQ_FIRST(&cache->used);
	struct plan_bucket *bucket;
	struct key key;
	uint64_t hash;

	key_pack(&key, spec, facts);
	if (entry && entry_has(entry, &key)) {
		*ret = entry_used(cache, entry);
		return 0;
	}
	hash = key_hash(&key, cache->seed);
	bucket = &cache->buckets[hash & (cache->n_buckets - 1)];
	LIST_FOREACH(entry, bucket, bucket)
		if (entry->hash == hash && entry_has(entry, &key)) {
			TAILQ_REMOVE(&cache->used, entry, used);
			TAILQ_INSERT_HEAD(&cache->used, entry, used);
			*ret = entry_used(cache, entry);
			return 0;
		}

	entry = entry_new(spec, facts, &key, err);
	if (!entry)
		return err->status;
	cache->misses++;
	entry->cache = cache;
	entry->hash = hash;
	entry_insert(cache, bucket, entry);
	*ret = entry;
	return 0;
}
