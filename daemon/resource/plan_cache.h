/* SPDX-License-Identifier: Apache-2.0 */
/* A cache of plans by layout: the outcome of a request's tensors, permutation and pads, without addresses.
 *
 * A hit allocates nothing and repeats only the checks that depend on regions. Entries are reference-counted:
 * the cache holds one reference, each job that uses the plan and each prepared plan another. The least
 * recently used entry is evicted first.
 *
 * Of all entries (plan_entry.h) only PLAN_SEARCHES are searched for at a time: one more ends the oldest
 * search, so that alternatives take a few megabytes at most.
 */
#ifndef DAEMON_RESOURCE_PLAN_CACHE_H
#define DAEMON_RESOURCE_PLAN_CACHE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "plan_entry.h"

#define PLAN_SEARCHES 64

struct plan_cache {
	TAILQ_HEAD(plan_list, plan_entry) used;
	TAILQ_HEAD(plan_searches, plan_entry) searching; /* oldest first */
	uint32_t n_searching;
	bool tunes; /* jobs may try alternatives; by the owner */
	LIST_HEAD(plan_bucket, plan_entry) * buckets;
	uint64_t n_buckets; /* a power of two */
	uint64_t capacity;
	uint64_t entries;
	uint64_t seed;
	uint64_t hits;
	uint64_t misses;
	uint64_t evictions;
	uint64_t searches; /* that have been settled, */
	uint64_t improved; /* and of these, for another plan than the one predicted to be the fastest */
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

#endif
