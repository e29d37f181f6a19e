/* SPDX-License-Identifier: Apache-2.0 */
/* Each engine caches its plans here, by keys of what they depend on (plan_key.h).
 *
 * A plan has a part that all engines have in common, which is here, and a part of the engine's own. The
 * engine's owner gets a plan from engine_prepare and hands it back with each move; to the owner it is opaque.
 * An engine keeps further plans in the same cache, which the owner never sees: for rounds of staged jobs, for
 * lists of blocks, and for moves that share a launch.
 *
 * A hit allocates nothing. Plans are reference-counted: the cache holds one reference, and each user of a
 * plan another one. The least recently used plan is evicted first.
 */
#ifndef KERNELS_PLAN_CACHE_H
#define KERNELS_PLAN_CACHE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "kernels/engine.h"
#include "plan_key.h"

/* The number of runs of a plan by jobs that consisted of it alone, and the times of the last PLAN_KEPT_TIMES
 * measured runs. */
#define PLAN_KEPT_TIMES 7

struct plan_runs {
	uint64_t n;
	uint64_t n_measured;
	uint64_t ns[PLAN_KEPT_TIMES]; /* time in ns of measured run i, at i % PLAN_KEPT_TIMES */
};

struct engine_plan {
	struct transform transform;
	struct plan_places places;
	uint64_t serial; /* unique among all plans that the cache has ever made */
	void *own;       /* the engine's part: own_bytes bytes, zeroed when the plan is made */
	struct plan_cache *cache;

	struct plan_runs runs; /* accessed only on the owner's thread */

	/* The rest is private to the cache. */
	atomic_uint refs;
	uint64_t hash;
	TAILQ_ENTRY(engine_plan) used;
	LIST_ENTRY(engine_plan) bucket;
	uint32_t key_words;
	uint64_t key[];
};

struct plan_cache_ops {
	size_t own_bytes; /* bytes of the engine's part */
	/* Completes a new plan, on the thread that makes it. NULL if there is nothing to do. */
	void (*init)(struct engine_plan *plan);
	/* Releases what the engine's part holds, on the thread that drops the last reference. NULL if it
	 * holds nothing. */
	void (*deinit)(struct engine_plan *plan);
};

struct plan_cache {
	const struct plan_cache_ops *ops;
	void *arg;             /* for the engine's use */
	uint64_t remote_bytes; /* bytes that another process may keep for each plan */
	uint64_t seed;
	pthread_mutex_t lock;                    /* protects the fields below */
	TAILQ_HEAD(plan_list, engine_plan) used; /* all cached plans, most recently used first */
	LIST_HEAD(plan_bucket, engine_plan) * buckets;
	uint64_t n_buckets; /* a power of two */
	uint64_t capacity;
	uint64_t serial;
	struct engine_cache_stats stats;
};

/* Sets up the cache for `capacity` plans; with 0 it keeps none. arg is for the engine's use. Returns 0 or
 * NO_MEMORY. */
int plan_cache_init(struct plan_cache *cache, uint64_t capacity, const struct plan_cache_ops *ops, void *arg);

/* Frees the cache. Only the cache itself may still hold references to plans. The cache may be zeroed instead
 * of initialized. */
void plan_cache_deinit(struct plan_cache *cache);

/* Sets the capacity and evicts the plans beyond it. If there is no memory for a larger table, the chains get
 * longer. May be called from any thread. */
void plan_cache_resize(struct plan_cache *cache, uint64_t capacity);

void plan_cache_stats(struct plan_cache *cache, struct engine_cache_stats *ret);

/* Returns the plan with that key, with a reference for the caller, or NULL if there is none; the key then has
 * its hash. May be called from any thread. */
struct engine_plan *plan_cache_find(struct plan_cache *cache, struct plan_key *key);

/* Makes a plan of the transform and adds it under the key, whose hash must be set. If another thread has
 * added one with the same key meanwhile, returns that one. Returns a reference for the caller, or NULL if out
 * of memory. May be called from any thread. */
struct engine_plan *plan_cache_add(struct plan_cache *cache, const struct plan_key *key,
                                   const struct transform *transform, struct plan_places places);

/* Makes a plan without a key, which nobody can find. Returns a reference for the caller, or NULL if out of
 * memory. */
struct engine_plan *plan_cache_make(struct plan_cache *cache, const struct transform *transform,
                                    struct plan_places places);

#endif
