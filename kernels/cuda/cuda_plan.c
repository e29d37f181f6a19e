/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and stores plans, finds the further plans that the engine itself needs, and implements trials of
 * plans. */
#include "cuda_plan.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/driver/driver.h"
#include "kernels/cuda/strategy/plan.h"

static void trials_drop(struct engine_plan *plan);

static const struct plan_cache_ops ops = { .own_bytes = sizeof(struct cuda_plan), .deinit = trials_drop };

#define MAP_ALIGN 16 /* Tensor maps need addresses that are multiples of this many bytes. */

int cuda_plans_init(struct cuda_plans *plans, const struct device *device, uint64_t capacity,
                    struct error *err)
{
	plans->facts =
	    (struct plan_facts){ .threads = device->processors, .align = MAP_ALIGN, .copy = device->copy };
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

/* Makes the plan and stores it. Two threads may make the same plan, with the same outcome; neither waits for
 * the other. */
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

/* Makes the plan for one block of a list; `share` is the number of multiprocessors that a block may
 * occupy. */
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

/* Returns the plan for one block of a list. The more blocks there are, the fewer multiprocessors each may
 * occupy. If that comes to 0, tiles are as large as possible. */
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

/* ---- Trials -------------------------------------------------------------------------------------------- */

/* Plans before number `at` have been tried, and `best` is one of them, so a run of plan `at` can only be the
 * one trial under way. The exception is plan 0 while it is being measured: it is both `at` and `best`. */

#define MUCH_SLOWER 1.3
#define TRIALS_MOST 64 /* plans that may have trials at a time */

void trials_init(struct trials *trials, uint32_t n)
{
	assert(n >= 1 && n <= PLAN_ALTERNATIVES);
	*trials = (struct trials){ .n = n, .at = n == 1 ? n : 0 };
}

uint32_t trials_next(struct trials *trials)
{
	if (trials->is_under_way || !trials->is_quiet || trials_are_settled(trials))
		return trials->best;
	trials->is_under_way = true;
	return trials->at;
}

uint64_t trials_median_ns(const struct trials *trials, uint32_t plan)
{
	const struct trial *trial = &trials->of[plan];
	const uint32_t n = trial->n < TRIAL_RUNS ? trial->n : TRIAL_RUNS;
	uint64_t ns[TRIAL_RUNS];

	if (n == 0)
		return 0;
	memcpy(ns, trial->ns, sizeof ns);
	for (uint32_t i = 1; i < n; i++)
		for (uint32_t k = i; k > 0 && ns[k] < ns[k - 1]; k--) {
			const uint64_t kept = ns[k];

			ns[k] = ns[k - 1];
			ns[k - 1] = kept;
		}
	return ns[(n - 1) / 2] + (ns[n / 2] - ns[(n - 1) / 2]) / 2;
}

/* Judges the plan being tried, after one of its runs was measured. Returns whether the next plan is to be
 * tried. */
static bool judge(struct trials *trials)
{
	struct trial *trial = &trials->of[trials->at];
	const uint64_t ns = trials_median_ns(trials, trials->at),
		       best = trials_median_ns(trials, trials->best);

	if (trial->n == 1 && (double)ns > MUCH_SLOWER * (double)best)
		return trial->is_dropped = true;
	if (trial->n < TRIAL_RUNS)
		return false;
	if (ns < best)
		trials->best = trials->at;
	return true;
}

void trials_end(struct trials *trials, uint32_t plan, uint64_t ns)
{
	struct trial *trial = &trials->of[plan];

	trials->is_quiet = ns > 0;
	if (plan == trials->at)
		trials->is_under_way = false;
	if (ns == 0)
		return;
	trial->ns[trial->n++ % TRIAL_RUNS] = ns;
	if (plan == trials->at && judge(trials))
		trials->at++;
}

void trials_fail(struct trials *trials, uint32_t plan)
{
	trials->is_quiet = false;
	if (plan == 0 || plan != trials->at)
		return;
	trials->is_under_way = false;
	trials->of[plan].is_dropped = true;
	trials->at++;
}

/* ---- The trials of a layout --------------------------------------------------------------------------- */

struct plan_trials {
	struct trials trials;
	uint32_t jobs; /* jobs that use one of the plans in `list` */
	struct alternatives list;
};

bool trials_are_over(struct engine_plan *plan)
{
	struct cuda_plan *own = plan->own;

	if (!own->is_settled && !alternatives_are_worth_trying(cuda_plan(plan), plan->transform.bytes,
	                                                       &plans_of(plan)->facts.copy))
		own->is_settled = true;
	return own->is_settled;
}

const struct plan *trials_winner(struct engine_plan *plan)
{
	const struct cuda_plan *own = plan->own;

	return own->fastest ? own->fastest : &own->plan;
}

const struct plan *trials_take(struct engine_plan *plan, bool may_be_trial)
{
	struct cuda_plan *own = plan->own;
	struct plan_trials *trials = own->trials;

	if (!plans_of(plan)->tunes)
		return &own->plan;
	if (!trials)
		return trials_winner(plan);
	trials->jobs++;
	return &trials->list.plan[may_be_trial ? trials_next(&trials->trials) : trials->trials.best];
}

/* Ends trials that are settled once no job uses one of their plans any more, and keeps only the winner. */
static void finish(struct engine_plan *plan)
{
	struct cuda_plan *own = plan->own;
	struct plan_trials *trials = own->trials;

	if (!trials_are_settled(&trials->trials) || trials->jobs > 0)
		return;
	if (trials->trials.best != 0)
		own->fastest = malloc(sizeof *own->fastest);
	if (own->fastest)
		*own->fastest = trials->list.plan[trials->trials.best];
	free(trials);
	own->trials = NULL;
	own->is_settled = true;
	plans_of(plan)->n_trials--;
}

/* Notes the time of a run that was measured before there are trials, if the plan's runs take long enough to
 * be compared. That time counts as the first measurement of plan 0. */
static void consider(struct engine_plan *plan, uint64_t ns)
{
	struct cuda_plans *plans = plans_of(plan);
	struct cuda_plan *own = plan->own;

	if (ns > 0 && plans->tunes && plans->n_trials < TRIALS_MOST && !trials_are_over(plan))
		own->first_ns = ns;
}

/* Returns whether the plan `taken` is one of the trials'. That of a run that began before the trials is not,
 * because the trials have copies of plans. */
static bool is_tried(const struct plan_trials *trials, const struct plan *taken)
{
	return trials && taken >= trials->list.plan && taken < trials->list.plan + trials->list.n;
}

void trials_ran(struct engine_plan *plan, const struct plan *taken, int status, uint64_t ns)
{
	struct cuda_plan *own = plan->own;
	struct plan_trials *trials = own->trials;

	if (!trials) {
		consider(plan, ns);
		return;
	}
	if (!is_tried(trials, taken))
		return;
	trials->jobs--;
	if (status == STATUS_DEVICE)
		trials_fail(&trials->trials, (uint32_t)(taken - trials->list.plan));
	else
		trials_end(&trials->trials, (uint32_t)(taken - trials->list.plan), ns);
	finish(plan);
}

void trials_return(struct engine_plan *plan, const struct plan *taken)
{
	struct cuda_plan *own = plan->own;

	if (!is_tried(own->trials, taken))
		return;
	own->trials->jobs--;
	finish(plan);
}

bool trials_may_go_on(const struct engine_plan *plan)
{
	const struct cuda_plan *own = plan->own;

	return own->trials || plans_of(plan)->n_trials < TRIALS_MOST;
}

bool trials_are_wanted(const struct engine_plan *plan)
{
	const struct cuda_plan *own = plan->own;

	return own->first_ns > 0 && !own->is_settled && !own->trials && plans_of(plan)->tunes &&
	       plans_of(plan)->n_trials < TRIALS_MOST;
}

struct plan_trials *trials_make(struct engine_plan *plan)
{
	const struct plan_facts facts = plan_facts_at(&plans_of(plan)->facts, plan->places);
	struct plan_trials *made = malloc(sizeof *made);

	if (!made)
		return NULL;
	made->jobs = 0;
	alternatives_init(&made->list, cuda_plan(plan), &plan->transform, &facts);
	trials_init(&made->trials, (uint32_t)made->list.n);
	return made;
}

void trials_start(struct engine_plan *plan, struct plan_trials *made)
{
	struct cuda_plan *own = plan->own;

	if (!made || own->trials || own->is_settled) {
		free(made);
		return;
	}
	own->trials = made;
	plans_of(plan)->n_trials++;
	if (!trials_are_settled(&made->trials))
		trials_end(&made->trials, 0, own->first_ns);
	finish(plan);
}

/* Frees what is left of a plan's trials when the cache drops the plan. */
static void trials_drop(struct engine_plan *plan)
{
	struct cuda_plan *own = plan->own;

	if (own->trials)
		plans_of(plan)->n_trials--;
	free(own->trials);
	free(own->fastest);
}
