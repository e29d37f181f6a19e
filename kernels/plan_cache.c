/* SPDX-License-Identifier: Apache-2.0 */
/* The cache is a hash table with chains, plus a list of all plans in the order of their last use. Evicted
 * plans are freed after the lock has been released, because freeing an engine's part of a plan may take
 * another lock. Keys are packed here too: counts come before the items that they count, so that no two
 * layouts have the same key. */
#include "plan_cache.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "proto/clock.h"

/* ---- Keys ------------------------------------------------------------------------------------------- */

/* Inlined because the lists are short: a call would cost more than the loop. */
static inline void add_values(struct plan_key *key, const int64_t *values, int n)
{
	uint64_t *word = key->word + key->n;

	if (n <= 0)
		return;
	assert((uint32_t)n <= PLAN_KEY_WORDS - key->n);
	for (int i = 0; i < n; i++)
		word[i] = (uint64_t)values[i];
	key->n += (uint32_t)n;
}

void plan_key_add(struct plan_key *key, const int64_t *values, int n)
{
	add_values(key, values, n);
}

bool plan_key_is_same(const struct plan_key *a, const struct plan_key *b)
{
	return a->hash == b->hash && a->n == b->n && !memcmp(a->word, b->word, a->n * sizeof a->word[0]);
}

static uint64_t head_of(enum plan_kind kind, struct plan_places places)
{
	return (uint64_t)kind << 24 | (uint64_t)places.many << 16 | (uint64_t)places.dst << 8 | places.src;
}

/* layout is read only if the operand is a tensor. */
static void add_operand(struct plan_key *key, enum operand_kind kind, const struct tensor_layout *layout)
{
	key->word[key->n++] = (uint64_t)kind;
	if (kind != OPERAND_TENSOR)
		return;
	key->word[key->n++] = (uint64_t)layout->dtype << 32 | (uint32_t)layout->rank;
	add_values(key, layout->shape, layout->rank);
	add_values(key, layout->stride, layout->rank);
}

static void add_result(struct plan_key *key, const struct amax_result_spec *result)
{
	add_operand(key, result->is_given ? OPERAND_TENSOR : OPERAND_NONE, &result->layout);
}

static void add_amax(struct plan_key *key, const struct amax_spec *amax)
{
	key->word[key->n++] = amax->is_given ? 1 + (uint64_t)amax->power_of_two : 0;
	if (!amax->is_given)
		return;
	memcpy(&key->word[key->n++], &amax->least, sizeof(amax->least));
	key->word[key->n++] = (uint64_t)amax->n_block;
	add_values(key, amax->block, amax->n_block);
	add_result(key, &amax->scale);
	add_result(key, &amax->inverse);
}

void plan_key_init(struct plan_key *key, const struct transform_spec *spec, struct plan_places places)
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
		(int32_t)spec->value.kind,
		conversion->is_given ? 1 + (int32_t)conversion->cast : 0,
	};

	key->hash = 0;
	key->word[0] = head_of(PLAN_KIND_SPEC, places);
	memcpy(key->word + 1, head, sizeof head);
	key->n = 1 + sizeof head / (sizeof(uint64_t));
	key->word[key->n++] = spec->value.u;
	memcpy(&key->word[key->n++], &spec->value.im, sizeof spec->value.im);
	add_values(key, dst->shape, dst->rank);
	add_values(key, dst->stride, dst->rank);
	add_values(key, src->shape, src->rank);
	add_values(key, src->stride, src->rank);
	add_values(key, spec->perm, spec->n_perm);
	add_values(key, spec->before, spec->n_before);
	add_values(key, spec->after, spec->n_after);
	if (conversion->is_given || conversion->scale.kind || conversion->bias.kind ||
	    conversion->amax.is_given) {
		add_operand(key, conversion->scale.kind, &conversion->scale.layout);
		add_operand(key, conversion->bias.kind, &conversion->bias.layout);
		add_amax(key, &conversion->amax);
	}
}

void plan_key_init_round(struct plan_key *key, const struct transform *t, struct plan_places places)
{
	assert(!t->conversion.is);
	key->hash = 0;
	key->word[0] = head_of(PLAN_KIND_ROUND, places);
	key->word[1] = (uint64_t)t->rank << 32 | (uint64_t)t->element << 16 | (uint64_t)t->mode;
	key->word[2] = (uint64_t)t->src_shift;
	memcpy(&key->word[3], t->fill, sizeof t->fill);
	key->n = 3 + sizeof t->fill / (sizeof(uint64_t));
	for (int d = 0; d < t->rank; d++) {
		const struct transform_axis *axis = &t->axis[d];

		add_values(key,
		           (const int64_t[]){ axis->extent, axis->before, axis->source, axis->dst_stride,
		                              axis->src_stride },
		           5);
	}
}

void plan_key_init_of(struct plan_key *key, enum plan_kind kind, uint64_t serial, struct plan_places places)
{
	key->hash = 0;
	key->word[0] = head_of(kind, places);
	key->word[1] = serial;
	key->n = 2;
}

/* ---- The cache -------------------------------------------------------------------------------------- */

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
	/* The random seed keeps clients from choosing keys that collide. */
	if (getrandom(&cache->seed, sizeof cache->seed, 0) < 0)
		cache->seed = clock_ns();
	TAILQ_INIT(&cache->used);
	cache->buckets = calloc(n, sizeof *cache->buckets);
	if (!cache->buckets)
		return STATUS_NO_MEMORY;
	pthread_mutex_init(&cache->lock, NULL);
	return 0;
}

/* Moves a plan from the cache to the list `left`; the cache's references to the plans in that list are
 * dropped once the lock has been released. The caller must hold cache->lock. */
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
		assert(atomic_load(&plan->refs) == 1); /* only the cache's own reference is left */
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

/* ---- Finding ---------------------------------------------------------------------------------------- */

/* Combines both halves of the product, so that the result depends on all bits of both factors. */
static uint64_t mix(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Sets the key's hash if it is not set. The seed is part of each factor, so that no key can be chosen to make
 * a factor 0. The chains a and b are independent so that a CPU can run them in parallel. */
static void set_hash(const struct plan_cache *cache, struct plan_key *key)
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

/* Returns the plan with that key, or NULL. The caller must hold cache->lock, and must have set the key's
 * hash. */
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

/* Clients often ask for the same plan again, so the plan that was used last is compared before a hash is
 * computed. */
struct engine_plan *plan_cache_find(struct plan_cache *cache, struct plan_key *key)
{
	struct engine_plan *plan;

	pthread_mutex_lock(&cache->lock);
	plan = TAILQ_FIRST(&cache->used);
	if (!plan || !has_key(plan, key)) {
		set_hash(cache, key);
		plan = find(cache, key);
	}
	if (plan) {
		cache->stats.hits++;
		engine_plan_ref(plan);
	}
	pthread_mutex_unlock(&cache->lock);
	return plan;
}

/* ---- Making ----------------------------------------------------------------------------------------- */

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

/* ---- The door --------------------------------------------------------------------------------------- */

void engine_hash_key(const struct engine *engine, struct plan_key *key)
{
	set_hash(engine->plans, key);
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
	set_hash(engine->plans, key);
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

/* ---- Runs ------------------------------------------------------------------------------------------- */

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
