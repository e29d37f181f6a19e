/* SPDX-License-Identifier: Apache-2.0 */
/* Which plan of an entry a job uses, and what its time says. */
#include "plan_entry.h"

#include <stdlib.h>
#include <string.h>

#include "plan_cache.h"

void plan_entry_ref(struct plan_entry *entry)
{
	entry->refs++;
}

/* Is it among those that are being searched for? */
static bool is_searching(const struct plan_entry *entry)
{
	return entry->search && !entry->settled;
}

static void end_search(struct plan_entry *entry)
{
	TAILQ_REMOVE(&entry->cache->searching, entry, searching);
	entry->cache->n_searching--;
}

void plan_entry_unref(struct plan_entry *entry)
{
	if (!entry || --entry->refs > 0)
		return;
	if (is_searching(entry))
		end_search(entry);
	plan_search_free(entry->search);
	free(entry);
}

/* ---- Runs --------------------------------------------------------------------------------------------- */

void plan_runs_add(struct plan_runs *runs, uint64_t ns, bool is_measured)
{
	runs->n++;
	if (is_measured)
		runs->ns[runs->n_measured++ % PLAN_KEPT_TIMES] = ns;
}

static int by_value(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

uint64_t plan_runs_median_ns(const struct plan_runs *runs)
{
	const size_t n = runs->n_measured < PLAN_KEPT_TIMES ? runs->n_measured : PLAN_KEPT_TIMES;
	uint64_t ns[PLAN_KEPT_TIMES];

	if (n == 0)
		return 0;
	memcpy(ns, runs->ns, n * sizeof *ns);
	qsort(ns, n, sizeof *ns, by_value);
	return ns[(n - 1) / 2] + (ns[n / 2] - ns[(n - 1) / 2]) / 2;
}

/* ---- Searches ----------------------------------------------------------------------------------------- */

bool plan_entry_is_tuned(const struct plan_entry *entry)
{
	return entry->cache && entry->cache->tunes && (entry->search || !entry->settled);
}

const struct plan *plan_entry_best(struct plan_entry *entry)
{
	const struct plan *best = entry->settled ? entry->settled : &entry->plan;
	const struct plan_search *search = entry->search;
	struct plan_runs *runs = &entry->runs;
	const struct trial *trial;

	if (!entry->cache || !entry->cache->tunes)
		best = &entry->plan;
	else if (is_searching(entry))
		best = plan_search_best(search);
	if (best == entry->measured)
		return best;
	entry->measured = best;
	runs->n_measured = 0;
	trial = &search->trials.of[best == &entry->plan ? 0 : search->trials.best];
	while (runs->n_measured < trial->n && runs->n_measured < TRIAL_RUNS) {
		runs->ns[runs->n_measured] = trial->ns[runs->n_measured];
		runs->n_measured++;
	}
	return best;
}

/* The search is over. */
static void settle(struct plan_entry *entry)
{
	end_search(entry);
	entry->settled = plan_search_best(entry->search);
	entry->cache->searches++;
	entry->cache->improved += entry->settled != &entry->plan;
}

/* What has been measured of the plan is its first trials. */
static void begin_search(struct plan_entry *entry)
{
	struct plan_cache *cache = entry->cache;
	const struct plan_runs *runs = &entry->runs;
	struct plan_entry *oldest;

	entry->search = plan_search_new(&entry->plan, &entry->transform, &entry->facts);
	if (!entry->search)
		return;
	if (entry->search->trials.n == 1) { /* there is nothing to try */
		plan_search_free(entry->search);
		entry->search = NULL;
		entry->settled = &entry->plan;
		return;
	}
	TAILQ_INSERT_TAIL(&cache->searching, entry, searching);
	cache->n_searching++;
	for (uint64_t i = 0; i < runs->n_measured && i < PLAN_KEPT_TIMES; i++)
		trials_end(&entry->search->trials, 0, runs->ns[i]);
	if (cache->n_searching <= PLAN_SEARCHES)
		return;
	oldest = TAILQ_FIRST(&cache->searching);
	plan_search_settle(oldest->search);
	settle(oldest);
}

const struct plan *plan_entry_use(struct plan_entry *entry, bool may_be_trial)
{
	if (!entry->cache->tunes)
		return &entry->plan;
	if (entry->settled)
		return entry->settled;
	if (!entry->search && may_be_trial && entry->runs.n_measured > 0)
		begin_search(entry);
	return is_searching(entry) ? plan_search_take(entry->search, may_be_trial) : plan_entry_best(entry);
}

void plan_entry_done(struct plan_entry *entry, const struct plan *plan, const struct plan_run *run)
{
	const struct plan *measured = entry->measured;

	if (entry->search && plan != entry->settled) {
		plan_search_give_back(entry->search, plan, run);
		if (!entry->settled && trials_are_settled(&entry->search->trials))
			settle(entry);
	}
	if (!run || run->status < 0)
		return;
	/* A plan that has become the best brings its times. */
	plan_runs_add(&entry->runs, run->ns,
	              run->is_measured && plan_entry_best(entry) == plan && measured == plan);
}
