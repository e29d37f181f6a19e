/* Plans by layout: what a request's tensors, permutation and pads come to, without their addresses.
 *
 * A hit allocates nothing and checks nothing again but what depends on regions. Entries are counted
 * references: the cache holds one, each job that runs the plan and each prepared plan another. Least recently
 * used goes first.
 */
#ifndef DAEMON_RESOURCE_PLAN_CACHE_H
#define DAEMON_RESOURCE_PLAN_CACHE_H

#include <stdint.h>
#include <sys/queue.h>

#include "kernels/plan/plan.h"
#include "kernels/plan/transform.h"

struct plan_entry {
	struct transform transform;
	struct plan plan;
	/* The cache's own. */
	uint32_t refs;
	uint64_t hash;
	TAILQ_ENTRY(plan_entry) used; /* most recent first */
	LIST_ENTRY(plan_entry) bucket;
	uint32_t key_words;
	uint64_t key[];
};

struct plan_cache {
	TAILQ_HEAD(plan_list, plan_entry) used;
	LIST_HEAD(plan_bucket, plan_entry) * buckets;
	uint64_t n_buckets; /* a power of two */
	uint64_t capacity;
	uint64_t entries;
	uint64_t seed;
	uint64_t hits;
	uint64_t misses;
	uint64_t evictions;
};

/* 0 or STATUS_NO_MEMORY. capacity 0: nothing is kept. seed: random, so that collisions cannot be chosen. */
int plan_cache_init(struct plan_cache *cache, uint64_t capacity, uint64_t seed);
void plan_cache_deinit(struct plan_cache *cache);

/* Those used least recently go, as far as they are too many. Without memory for more lists, they are longer.
 */
void plan_cache_resize(struct plan_cache *cache, uint64_t capacity);

/* *ret has a reference for the caller. Else the error of transform_init, or NO_MEMORY. */
int plan_cache_get(struct plan_cache *cache, const struct transform_spec *spec,
                   const struct plan_facts *facts, struct plan_entry **ret, struct error *err);

/* One that is in no cache, with a reference for the caller. Errors as above. */
int plan_entry_new(const struct transform_spec *spec, const struct plan_facts *facts, struct plan_entry **ret,
                   struct error *err);

/* One more reference. */
void plan_entry_ref(struct plan_entry *entry);
void plan_entry_unref(struct plan_entry *entry);

#endif
