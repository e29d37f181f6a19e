/* SPDX-License-Identifier: Apache-2.0 */
/* The cache is a hash table of chains, with a list through all plans in the order of their last use. Plans
 * that fall out of it are freed without the lock, because an engine's part may take another lock. */
#include "plan_cache.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "proto/clock.h"

static uint64_t buckets_for(uint64_t capacity)
{
	uint64_t n = 16;

	while (n < capacity && n < (1u << 20))
		n *= 2;
	return n;
}

int plan_cache_init(struct plan_cache *cache, uint64_t capacity, const struct plan_cache_ops *ops, void *arg)
{
	uint64_t n = buckets_for(capacity);

	*cache = (struct plan_cache){ .ops = ops, .arg = arg, .n_buckets = n, .capacity = capacity };
	/* The seed keeps clients from choosing collisions. */
	if (getrandom(&cache->seed, sizeof cache->seed, 0) < 0)
		cache->seed = clock_ns();
	TAILQ_INIT(&cache->used);
	cache->buckets = calloc(n, sizeof *cache->buckets);
	if (!cache->buckets)
		return STATUS_NO_MEMORY;
	pthread_mutex_init(&cache->lock, NULL);
	return 0;
}

/* The lock must be held. */
static void leave(struct plan_cache *cache, struct engine_plan *plan, struct plan_list *left)
{
	TAILQ_REMOVE(&cache->used, plan, used);
	LIST_REMOVE(plan, bucket);
	cache->stats.entries--;
	TAILQ_INSERT_TAIL(left, plan, used);
}

static void unref_all(struct plan_list *left)
{
	struct engine_plan *plan;

	while ((plan = TAILQ_FIRST(left))) {
		TAILQ_REMOVE(left, plan, used);
		engine_plan_unref(plan);
	}
}

void plan_cache_resize(struct plan_cache *cache, uint64_t capacity)
{
	struct plan_list left = TAILQ_HEAD_INITIALIZER(left);
	uint64_t n = buckets_for(capacity);
	struct plan_bucket *buckets;
	struct engine_plan *plan;

	pthread_mutex_lock(&cache->lock);
	while (cache->stats.entries > capacity)
		leave(cache, TAILQ_LAST(&cache->used, plan_list), &left);
	cache->capacity = capacity;
	buckets = n == cache->n_buckets ? NULL : calloc(n, sizeof *buckets);
	if (buckets) {
		TAILQ_FOREACH(plan, &cache->used, used)
			LIST_INSERT_HEAD(&buckets[plan->hash & (n - 1)], plan, bucket);
		free(cache->buckets);
		cache->buckets = buckets;
		cache->n_buckets = n;
	}
	pthread_mutex_unlock(&cache->lock);
	unref_all(&left);
}

void plan_cache_deinit(struct plan_cache *cache)
{
	struct engine_plan *plan;

	if (!cache->buckets)
		return;
	TAILQ_FOREACH(plan, &cache->used, used)
		assert(atomic_load(&plan->refs) == 1); /* no job uses it */
	plan_cache_resize(cache, 0);
	pthread_mutex_destroy(&cache->lock);
	free(cache->buckets);
	cache->buckets = NULL;
}

void plan_cache_stats(struct plan_cache *cache, struct engine_cache_stats *ret)
{
	pthread_mutex_lock(&cache->lock);
	*ret = cache->stats;
	pthread_mutex_unlock(&cache->lock);
}

/* ---- Finding ------------------------------------------------------------------------------------------ */

/* Mixes both halves of a product, which depend on all bits of its factors. */
static uint64_t mix(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* The seed is part of each factor, so that no key can make one 0. The two chains run in parallel on a CPU. */
void plan_cache_hash(const struct plan_cache *cache, struct plan_key *key)
{
	const uint64_t seed = cache->seed;
	uint64_t secret = seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
	uint64_t a = seed ^ key->n, b = ~seed;
	const uint64_t *word = key->word;
	uint32_t n = key->n;

	if (key->hash)
		return;
	for (; n >= 4; n -= 4, word += 4) {
		a = mix(a ^ word[0], secret ^ word[1]);
		b = mix(b ^ word[2], secret ^ word[3]);
	}
	for (; n > 0; n--, word++)
		a = mix(a ^ *word, secret);
	key->hash = mix(a, b ^ secret) | 1;
}

static bool has_key(const struct engine_plan *plan, const struct plan_key *key)
{
	return plan->key_words == key->n && !memcmp(plan->key, key->word, key->n * sizeof key->word[0]);
}

/* The lock must be held, and the key have its hash. */
static struct engine_plan *find(struct plan_cache *cache, const struct plan_key *key)
{
	struct engine_plan *plan;

	LIST_FOREACH(plan, &cache->buckets[key->hash & (cache->n_buckets - 1)], bucket)
		if (plan->hash == key->hash && has_key(plan, key)) {
			TAILQ_REMOVE(&cache->used, plan, used);
			TAILQ_INSERT_HEAD(&cache->used, plan, used);
			return plan;
		}
	return NULL;
}

/* A client often asks for the same plan again: the plan used last is compared before a hash is computed. */
struct engine_plan *plan_cache_find(struct plan_cache *cache, struct plan_key *key)
{
	struct engine_plan *plan;

	pthread_mutex_lock(&cache->lock);
	plan = TAILQ_FIRST(&cache->used);
	if (!plan || !has_key(plan, key)) {
		plan_cache_hash(cache, key);
		plan = find(cache, key);
	}
	if (plan) {
		cache->stats.hits++;
		engine_plan_ref(plan);
	}
	pthread_mutex_unlock(&cache->lock);
	return plan;
}

/* ---- Making ------------------------------------------------------------------------------------------- */

static struct engine_plan *make(struct plan_cache *cache, const struct plan_key *key,
                                const struct transform *transform, struct plan_places places)
{
	const uint32_t words = key ? key->n : 0;
	const size_t own_at = (sizeof(struct engine_plan) + words * sizeof(uint64_t) + 15) / 16 * 16;
	struct engine_plan *plan = calloc(1, own_at + cache->ops->own_bytes);

	if (!plan)
		return NULL;
	plan->transform = *transform;
	plan->places = places;
	plan->own = (char *)plan + own_at;
	plan->cache = cache;
	atomic_init(&plan->refs, 1);
	plan->key_words = words;
	if (words) {
		plan->hash = key->hash;
		memcpy(plan->key, key->word, words * sizeof *plan->key);
	}
	pthread_mutex_lock(&cache->lock);
	plan->serial = ++cache->serial;
	pthread_mutex_unlock(&cache->lock);
	if (cache->ops->init)
		cache->ops->init(plan);
	return plan;
}

struct engine_plan *plan_cache_make(struct plan_cache *cache, const struct transform *transform,
                                    struct plan_places places)
{
	return make(cache, NULL, transform, places);
}

struct engine_plan *plan_cache_add(struct plan_cache *cache, const struct plan_key *key,
                                   const struct transform *transform, struct plan_places places)
{
	struct plan_list left = TAILQ_HEAD_INITIALIZER(left);
	struct engine_plan *plan = make(cache, key, transform, places), *other;

	if (!plan)
		return NULL;
	assert(key->hash);
	pthread_mutex_lock(&cache->lock);
	cache->stats.misses++;
	other = find(cache, key);
	if (other) {
		engine_plan_ref(other);
	} else if (cache->capacity > 0) {
		if (cache->stats.entries >= cache->capacity) {
			leave(cache, TAILQ_LAST(&cache->used, plan_list), &left);
			cache->stats.evictions++;
		}
		engine_plan_ref(plan);
		TAILQ_INSERT_HEAD(&cache->used, plan, used);
		LIST_INSERT_HEAD(&cache->buckets[plan->hash & (cache->n_buckets - 1)], plan, bucket);
		cache->stats.entries++;
	}
	pthread_mutex_unlock(&cache->lock);
	unref_all(&left);
	if (!other)
		return plan;
	engine_plan_unref(plan);
	return other;
}

void engine_plan_ref(struct engine_plan *plan)
{
	atomic_fetch_add_explicit(&plan->refs, 1, memory_order_relaxed);
}

void engine_plan_unref(struct engine_plan *plan)
{
	if (!plan || atomic_fetch_sub(&plan->refs, 1) > 1)
		return;
	if (plan->cache->ops->deinit)
		plan->cache->ops->deinit(plan);
	free(plan);
}

/* ---- The door ----------------------------------------------------------------------------------------- */

void engine_hash_key(const struct engine *engine, struct plan_key *key)
{
	plan_cache_hash(engine->plans, key);
}

struct engine_plan *engine_find_plan(struct engine *engine, struct plan_key *key)
{
	return plan_cache_find(engine->plans, key);
}

int engine_make_plan(struct engine *engine, struct plan_key *key, const struct transform_spec *spec,
                     struct plan_places places, struct engine_plan **ret, struct error *err)
{
	struct transform transform;

	if (transform_init(&transform, spec, err) < 0)
		return err->status;
	plan_cache_hash(engine->plans, key);
	*ret = plan_cache_add(engine->plans, key, &transform, places);
	return *ret ? 0 : error_set(err, STATUS_NO_MEMORY, "no memory for a plan");
}

int engine_prepare(struct engine *engine, const struct transform_spec *spec, struct plan_places places,
                   struct engine_plan **ret, struct error *err)
{
	struct plan_key key;

	places = engine_places(engine, places);
	plan_key_init(&key, spec, places);
	*ret = engine_find_plan(engine, &key);
	return *ret ? 0 : engine_make_plan(engine, &key, spec, places, ret, err);
}

const struct transform *engine_plan_transform(const struct engine_plan *plan)
{
	return &plan->transform;
}

bool engine_plan_suits(const struct engine_plan *plan, struct engine *engine, struct plan_places places)
{
	places = engine_places(engine, places);
	return plan->cache == engine->plans && plan->places.dst == places.dst &&
	       plan->places.src == places.src && plan->places.many == places.many;
}

uint64_t engine_plan_bytes(const struct engine_plan *plan)
{
	return sizeof *plan + plan->key_words * sizeof plan->key[0] + plan->cache->ops->own_bytes +
	       plan->cache->remote_bytes;
}

void engine_plan_stats(struct engine *engine, struct engine_cache_stats *ret)
{
	plan_cache_stats(engine->plans, ret);
	if (engine->ops->add_plan_stats)
		engine->ops->add_plan_stats(engine, ret);
}

void engine_keep_plans(struct engine *engine, uint64_t n)
{
	plan_cache_resize(engine->plans, n);
	if (engine->ops->keep_plans)
		engine->ops->keep_plans(engine, n);
}

/* ---- Runs --------------------------------------------------------------------------------------------- */

void engine_plan_count(struct engine_plan *plan, uint64_t ns, bool is_measured)
{
	struct plan_runs *runs = &plan->runs;

	runs->n++;
	if (is_measured)
		runs->ns[runs->n_measured++ % PLAN_KEPT_TIMES] = ns;
}

static int by_value(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

struct engine_plan_runs engine_plan_runs(const struct engine_plan *plan)
{
	const struct plan_runs *runs = &plan->runs;
	const size_t n = runs->n_measured < PLAN_KEPT_TIMES ? runs->n_measured : PLAN_KEPT_TIMES;
	struct engine_plan_runs ret = { .n = runs->n, .n_measured = runs->n_measured };
	uint64_t ns[PLAN_KEPT_TIMES];

	if (n == 0)
		return ret;
	memcpy(ns, runs->ns, n * sizeof *ns);
	qsort(ns, n, sizeof *ns, by_value);
	ret.median_ns = ns[(n - 1) / 2] + (ns[n / 2] - ns[(n - 1) / 2]) / 2;
	return ret;
}
