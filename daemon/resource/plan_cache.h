/* SPDX-License-Identifier: Apache-2.0 */
/* A cache of plans by layout: the outcome of a request's tensors, permutation and pads, without addresses.
 *
 * A hit allocates nothing and repeats only the checks that depend on regions. Entries are reference-counted:
 * the cache holds one reference, each job that uses the plan and each prepared plan another. The least
 * recently used entry is evicted first.
 */
#ifndef DAEMON_RESOURCE_PLAN_CACHE_H
#define DAEMON_RESOURCE_PLAN_CACHE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "kernels/plan/plan.h"
#include "kernels/plan/transform.h"

#define PLAN_KEPT_TIMES 7

/* How often a plan has run, alone in its request, and how long the last runs took of those that the engine
 * measured. */
struct plan_runs {
	uint64_t n;
	uint64_t n_measured;
	uint64_t ns[PLAN_KEPT_TIMES]; /* of measured run i at i % PLAN_KEPT_TIMES */
};

struct plan_entry {
	struct transform transform;
	struct plan plan;
	struct plan_runs runs;
	/* Private to the cache. */
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

/* Returns 0 or STATUS_NO_MEMORY. capacity 0: nothing is kept. seed: random, so that clients cannot choose
 * collisions. */
int plan_cache_init(struct plan_cache *cache, uint64_t capacity, uint64_t seed);
void plan_cache_deinit(struct plan_cache *cache);

/* Evicts the least recently used entries as far as there are too many. Without memory for more chains, chains
 * get longer. */
void plan_cache_resize(struct plan_cache *cache, uint64_t capacity);

/* *ret has a reference for the caller. Errors are those of transform_init, and NO_MEMORY. */
int plan_cache_get(struct plan_cache *cache, const struct transform_spec *spec,
                   const struct plan_facts *facts, struct plan_entry **ret, struct error *err);

/* As plan_cache_get, for an entry outside the cache. */
int plan_entry_new(const struct transform_spec *spec, const struct plan_facts *facts, struct plan_entry **ret,
                   struct error *err);

void plan_runs_add(struct plan_runs *runs, uint64_t ns, bool is_measured);

/* The median of the times that are kept; 0: there are none. */
uint64_t plan_runs_median_ns(const struct plan_runs *runs);

/* Adds a reference. */
void plan_entry_ref(struct plan_entry *entry);
void plan_entry_unref(struct plan_entry *entry);

#endif
