/* SPDX-License-Identifier: Apache-2.0 */
/* The plan that is being tried comes after all those that have been, and the best so far is one of these, so
 * that a run of the former is the one trial under way; while plan 0 is measured, it is both.
 */
#include "trials.h"

#include <assert.h>
#include <string.h>

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

/* Whether the search goes on with the next plan. */
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
