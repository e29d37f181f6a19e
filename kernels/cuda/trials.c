/* SPDX-License-Identifier: Apache-2.0 */
/* The plan that is being tried comes after all those that have been, and the best so far is one of these, so
 * that a run of the former is the one trial under way; while plan 0 is measured, it is both.
 */
#include "trials.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_plan.h"

#define MUCH_SLOWER 1.3

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

enum trial_state trials_state(const struct trials *trials, uint32_t plan)
{
	const struct trial *trial = &trials->of[plan];

	return trial->is_dropped ? TRIAL_DROPPED : trial->n < TRIAL_RUNS ? TRIAL_WAITS : TRIAL_ENDED;
}

/* Returns whether the search goes on with the next plan. */
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

void trials_settle(struct trials *trials)
{
	trials->at = trials->n;
}

/* ---- The trials of a layout --------------------------------------------------------------------------- */

struct plan_trials {
	struct trials trials;
	uint32_t jobs; /* that hold one of the plans */
	struct alternatives list;
};

static struct cuda_plans *plans_of(const struct engine_plan *plan)
{
	return plan->cache->arg;
}

const struct plan *trials_take(struct engine_plan *plan, bool may_be_trial)
{
	struct cuda_plan *own = plan->own;
	struct plan_trials *trials = own->trials;

	if (!plans_of(plan)->tunes)
		return &own->plan;
	if (!trials)
		return own->fastest ? own->fastest : &own->plan;
	trials->jobs++;
	return &trials->list.plan[may_be_trial ? trials_next(&trials->trials) : trials->trials.best];
}

/* The plans that lost go as soon as no job holds one. */
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

/* The first measured run of a plan that takes long enough is its first trial. */
static void consider(struct engine_plan *plan, uint64_t ns)
{
	struct cuda_plans *plans = plans_of(plan);
	struct cuda_plan *own = plan->own;

	if (ns == 0 || own->is_settled || !plans->tunes || plans->n_trials == TRIALS_MOST)
		return;
	own->first_ns = ns;
	if (!alternatives_are_worth_trying(&own->plan, plan->transform.bytes, &plans->facts.copy))
		own->is_settled = true;
}

void trials_ran(struct engine_plan *plan, const struct plan *taken, int status, uint64_t ns)
{
	struct cuda_plan *own = plan->own;
	struct plan_trials *trials = own->trials;
	const bool is_one =
	    trials && taken >= trials->list.plan && taken < trials->list.plan + trials->list.n;

	if (!trials) {
		consider(plan, ns);
		return;
	}
	if (!is_one) /* The run began before the trials. */
		return;
	trials->jobs--;
	if (status == STATUS_DEVICE)
		trials_fail(&trials->trials, (uint32_t)(taken - trials->list.plan));
	else
		trials_end(&trials->trials, (uint32_t)(taken - trials->list.plan), ns);
	finish(plan);
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

void trials_drop(struct engine_plan *plan)
{
	struct cuda_plan *own = plan->own;

	if (own->trials)
		plans_of(plan)->n_trials--;
	free(own->trials);
	free(own->fastest);
}
