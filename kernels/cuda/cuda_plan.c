/* SPDX-License-Identifier: Apache-2.0 */
/* This file has the keys and facts of the engine's own plans, and the lock under which a made plan is put in
 * place. */
#include "cuda_plan.h"

#include "kernels/cuda/strategy/block_plan.h"
#include "trials.h"

static const struct plan_cache_ops ops = { .own_bytes = sizeof(struct cuda_plan), .deinit = trials_drop };

int cuda_plans_init(struct cuda_plans *plans, const struct plan_facts *facts, uint64_t capacity,
                    struct error *err)
{
	plans->facts = *facts;
	if (plan_cache_init(&plans->cache, capacity, &ops, plans) < 0)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	pthread_mutex_init(&plans->making, NULL);
	return 0;
}

void cuda_plans_deinit(struct cuda_plans *plans)
{
	if (plans->cache.buckets)
		pthread_mutex_destroy(&plans->making);
	plan_cache_deinit(&plans->cache);
}

static struct cuda_plans *plans_of(const struct engine_plan *plan)
{
	return plan->cache->arg;
}

bool cuda_plan_is_made(const struct engine_plan *plan)
{
	const struct cuda_plan *own = plan->own;

	return atomic_load_explicit(&own->is_made, memory_order_acquire);
}

static struct plan_facts facts_of(const struct engine_plan *plan)
{
	return plan_facts_at(&plans_of(plan)->facts, plan->places);
}

/* Two threads may make the same plan with the same outcome; neither waits for the other. */
static void make(struct engine_plan *plan, const struct plan_facts *facts)
{
	struct cuda_plans *plans = plans_of(plan);
	struct cuda_plan *own = plan->own;
	struct plan made;

	plan_init(&made, &plan->transform, facts);
	pthread_mutex_lock(&plans->making);
	if (!cuda_plan_is_made(plan))
		own->plan = made;
	atomic_store_explicit(&own->is_made, true, memory_order_release);
	pthread_mutex_unlock(&plans->making);
}

const struct plan *cuda_plan(struct engine_plan *plan)
{
	const struct cuda_plan *own = plan->own;
	struct plan_facts facts;

	if (!cuda_plan_is_made(plan)) {
		facts = facts_of(plan);
		make(plan, &facts);
	}
	return &own->plan;
}

/* ---- Further plans ------------------------------------------------------------------------------------ */

static struct engine_plan *made(struct engine_plan *plan)
{
	if (plan)
		cuda_plan(plan);
	return plan;
}

static struct engine_plan *get(struct plan_cache *cache, struct plan_key *key,
                               const struct transform *transform, struct plan_places places)
{
	struct engine_plan *plan = plan_cache_find(cache, key);

	return plan ? plan : plan_cache_add(cache, key, transform, places);
}

struct engine_plan *cuda_plan_of_round(struct cuda_plans *plans, const struct transform *part, uint64_t dst,
                                       uint64_t src)
{
	const struct plan_places places = plan_places(dst, src);
	struct plan_key key;

	plan_key_init_round(&key, part, places);
	return made(get(&plans->cache, &key, part, places));
}

struct engine_plan *cuda_plan_of_member(struct engine_plan *plan, uint64_t bits)
{
	const struct plan_places places = plan_places_of_many(bits);
	struct plan_key key;

	if (plan->places.many && plan_places_align(plan->places) == plan_places_align(places)) {
		engine_plan_ref(plan);
		return made(plan);
	}
	plan_key_init_of(&key, PLAN_KIND_MEMBER, plan->serial, places);
	return made(get(plan->cache, &key, &plan->transform, places));
}

/* Makes the plan for the blocks of a list, each of which may occupy `share` multiprocessors. */
static struct engine_plan *made_for_list(struct engine_plan *plan, uint64_t share)
{
	struct plan_facts facts;

	if (plan && !cuda_plan_is_made(plan)) {
		facts = facts_of(plan);
		facts.listed = true;
		facts.threads = (uint32_t)share;
		make(plan, &facts);
	}
	return plan;
}

/* Tiles are as large as can be where there are many blocks. */
static struct engine_plan *plan_of_block(struct engine_plan *plan, const struct engine_blocks *blocks)
{
	const struct plan_places places = plan_places(0, 0);
	const uint32_t threads = plans_of(plan)->facts.threads;
	const uint64_t share = blocks->n > threads ? 0 : threads / (blocks->n * blocks->layers);
	struct plan_key key;

	plan_key_init_of(&key, PLAN_KIND_LIST, plan->serial, places);
	plan_key_add(&key, &(const int64_t){ (int64_t)share }, 1);
	return made_for_list(get(plan->cache, &key, &plan->transform, places), share);
}

struct engine_plan *cuda_plan_of_list(struct engine_plan *plan, const struct engine_blocks *blocks,
                                      uint64_t dst, uint64_t src)
{
	const uint64_t bits = dst | src | block_align(blocks);

	if (bits % PLAN_ALIGN == 0) {
		struct engine_plan *own = plan_of_block(plan, blocks);

		if (!own || block_plan_has_kernel(cuda_plan(own), blocks))
			return own;
		engine_plan_unref(own);
	}
	return cuda_plan_of_member(plan, bits);
}
