/* SPDX-License-Identifier: Apache-2.0 */
/* The search for the fastest plan of a cached layout: who tries what, what is kept, what is freed. */
#include <criterion/criterion.h>

#include "daemon/resource/plan_cache.h"
#include "kernels/plan/plan_tile.h"

#define MEASURED(n) (&(struct plan_run){ .ns = (n), .may_be_trial = true, .is_measured = true })
#define UNMEASURED  (&(struct plan_run){ .ns = 1, .may_be_trial = true })
#define BY_BUS      (&(struct plan_run){ .ns = 1 })

static struct plan_cache cache;

static void init(void)
{
	cr_assert_eq(plan_cache_init(&cache, 100, 1), 0);
	cache.tunes = true;
}

static void deinit(void)
{
	plan_cache_deinit(&cache);
}

TestSuite(plan_search, .init = init, .fini = deinit);

static struct plan_entry *get_spec(const struct transform_spec *spec)
{
	struct plan_facts facts;
	struct plan_entry *entry;
	struct error err;

	cr_assert(plan_facts_of("cuda", 4, &facts));
	cr_assert_eq(plan_cache_get(&cache, spec, &facts, &entry, &err), 0, "%s", err.message);
	return entry;
}

static void set_layout(struct tensor_layout *layout, int rank, const int64_t *shape)
{
	struct error err;

	cr_assert_eq(tensor_layout_init(layout, DTYPE_FLOAT16, rank, shape, NULL, "it", &err), 0);
}

/* A reversal of 4 axes of these extents, some by a scale: tiles of many kinds suit it. */
static struct plan_entry *get(int64_t outermost, int64_t scale)
{
	const int64_t x = 5 * scale, y = 6 * scale, z = 7 * scale;
	struct transform_spec spec = { .n_perm = 4, .n_before = -1, .n_after = -1, .perm = { 3, 2, 1, 0 } };

	set_layout(&spec.src, 4, (int64_t[]){ outermost, x, y, z });
	set_layout(&spec.dst, 4, (int64_t[]){ z, y, x, outermost });
	return get_spec(&spec);
}

/* Of which there is one plan, the driver's. */
static struct plan_entry *get_copy(void)
{
	struct transform_spec spec = { .n_perm = -1, .n_before = -1, .n_after = -1 };

	set_layout(&spec.src, 1, (int64_t[]){ 1 << 26 });
	set_layout(&spec.dst, 1, (int64_t[]){ 1 << 26 });
	return get_spec(&spec);
}

/* A job from start to end, which takes 1000 ns by the chosen plan and as long by the others unless one of
 * them is `fast`. */
static const struct plan *run(struct plan_entry *entry, const struct plan *fast)
{
	const struct plan *plan = plan_entry_use(entry, true);

	plan_entry_done(entry, plan, MEASURED(plan == fast ? 900 : 1000));
	return plan;
}

/* Runs until alternatives are tried; returns the first of them. */
static const struct plan *run_to_search(struct plan_entry *entry)
{
	for (int i = 0; i < TRIAL_RUNS; i++)
		cr_assert_eq(run(entry, NULL), &entry->plan);
	cr_assert_not_null(entry->search);
	cr_assert_gt(entry->search->trials.n, 2);
	return entry->search->of[1].plan;
}

static void run_to_end(struct plan_entry *entry, const struct plan *fast)
{
	for (int i = 0; i < TRIAL_RUNS * PLAN_ALTERNATIVES; i++)
		run(entry, fast);
	cr_assert(trials_are_settled(&entry->search->trials));
}

static int count_kept(const struct plan_search *search)
{
	int n = 0;

	for (int i = 1; i < PLAN_ALTERNATIVES; i++)
		n += search->of[i].plan != NULL;
	return n;
}

Test(plan_search, the_fastest_is_kept)
{
	struct plan_entry *entry = get(60, 10);
	const struct plan *fast;

	run_to_search(entry);
	fast = entry->search->of[2].plan;
	run_to_end(entry, fast);
	cr_expect_eq(run(entry, NULL), fast);
	cr_expect_eq(plan_entry_best(entry), fast);
	cr_expect_eq(count_kept(entry->search), 1, "those that lost are freed");
	cr_expect_eq(cache.searches, 1);
	cr_expect_eq(cache.improved, 1);
	cr_expect_eq(cache.n_searching, 0);
	plan_entry_unref(entry);
}

Test(plan_search, the_chosen_one_is_kept_if_none_is_faster)
{
	struct plan_entry *entry = get(60, 10);

	run_to_search(entry);
	run_to_end(entry, NULL);
	cr_expect_eq(run(entry, NULL), &entry->plan);
	cr_expect_eq(count_kept(entry->search), 0);
	cr_expect_eq(cache.searches, 1);
	cr_expect_eq(cache.improved, 0);
	plan_entry_unref(entry);
}

/* The times that explain shows are those of the plan in use. */
Test(plan_search, measured_times_are_the_best_plans)
{
	struct plan_entry *entry = get(60, 10);
	const struct plan *fast, *other = run_to_search(entry);

	for (int i = 0; i < TRIAL_RUNS; i++)
		cr_assert_eq(run(entry, NULL), other);
	cr_expect_eq(entry->runs.n_measured, TRIAL_RUNS);
	cr_expect_eq(entry->runs.n, 2 * TRIAL_RUNS);
	fast = entry->search->of[2].plan;
	for (int i = 0; i < TRIAL_RUNS; i++)
		cr_assert_eq(run(entry, fast), fast);
	cr_expect_eq(plan_entry_best(entry), fast);
	cr_expect_eq(entry->runs.n_measured, TRIAL_RUNS);
	cr_expect_eq(plan_runs_median_ns(&entry->runs), 900);
	run_to_end(entry, fast);
	cr_expect_eq(plan_runs_median_ns(&entry->runs), 900);
	cr_expect_eq(entry->runs.n, 3 * TRIAL_RUNS + TRIAL_RUNS * PLAN_ALTERNATIVES);
	cache.tunes = false;
	cr_expect_eq(plan_entry_best(entry), &entry->plan);
	cr_expect_eq(plan_runs_median_ns(&entry->runs), 1000);
	plan_entry_unref(entry);
}

/* A client queues many runs, of which one is a trial; the search ends before that does. */
Test(plan_search, what_a_job_holds_is_not_freed)
{
	struct plan_entry *entry = get(60, 10);
	const struct plan *trial, *other = run_to_search(entry);

	trial = plan_entry_use(entry, true);
	cr_assert_eq(trial, other);
	for (int i = 0; i < 10; i++)
		cr_assert_eq(run(entry, NULL), &entry->plan);
	plan_search_settle(entry->search);
	run(entry, NULL);
	cr_expect_eq(entry->search->of[1].plan, trial);
	cr_expect_eq(count_kept(entry->search), 1);
	cr_expect_eq(plan_entry_use(entry, true), &entry->plan);
	plan_entry_done(entry, trial, MEASURED(1));
	cr_expect_eq(count_kept(entry->search), 0);
	cr_expect_eq(plan_entry_best(entry), &entry->plan);
	plan_entry_unref(entry);
}

/* Also where the entry has left the cache meanwhile. */
Test(plan_search, jobs_outlive_the_entrys_place_in_the_cache)
{
	struct plan_entry *entry = get(60, 10);
	const struct plan *trial;

	run_to_search(entry);
	trial = plan_entry_use(entry, true);
	plan_cache_resize(&cache, 0);
	cr_assert_eq(trial->family, FAMILY_TILE_TRANSPOSE);
	plan_entry_done(entry, trial, MEASURED(900));
	cr_expect_eq(cache.n_searching, 1);
	plan_entry_unref(entry);
	cr_expect_eq(cache.n_searching, 0);
}

Test(plan_search, is_not_begun_without_need)
{
	struct plan_entry *entry = get(60, 10), *brief = get(60, 1), *copy = get_copy();
	const struct plan *plan = plan_entry_use(entry, true);

	plan_entry_done(entry, plan, UNMEASURED);
	cr_expect_eq(run(entry, NULL), &entry->plan);
	cr_expect_null(entry->search, "nothing had been measured");
	plan_entry_done(entry, plan_entry_use(entry, false), NULL);
	cr_expect_null(entry->search, "a batch has many plans");
	cache.tunes = false;
	run(entry, NULL);
	cr_expect_null(entry->search, "it is switched off");
	cache.tunes = true;
	run(entry, NULL);
	cr_expect_not_null(entry->search);
	for (int i = 0; i < 10; i++)
		cr_expect_eq(run(brief, NULL), &brief->plan);
	cr_expect_null(brief->search, "its runs are brief");
	cr_expect(!plan_entry_is_tuned(brief));
	for (int i = 0; i < 4; i++)
		cr_expect_eq(run(copy, NULL), &copy->plan);
	cr_expect_null(copy->search, "there is one plan");
	cr_expect(!plan_entry_is_tuned(copy));
	cr_expect_eq(cache.n_searching, 1);
	cr_expect_eq(cache.searches, 0);
	plan_entry_unref(copy);
	plan_entry_unref(entry);
	plan_entry_unref(brief);
}

Test(plan_search, batches_use_the_best_and_try_nothing)
{
	struct plan_entry *entry = get(60, 10);
	const struct plan *fast;
	uint64_t n;

	run_to_search(entry);
	for (int i = 0; i < 10; i++) {
		const struct plan *plan = plan_entry_use(entry, false);

		cr_assert_eq(plan, &entry->plan);
		plan_entry_done(entry, plan, NULL);
	}
	cr_assert_eq(entry->search->trials.at, 1);
	run(entry, NULL); /* it is measured, so that there is quiet */
	fast = entry->search->of[2].plan;
	run_to_end(entry, fast);
	cr_expect_eq(plan_entry_use(entry, false), fast);
	n = entry->runs.n;
	plan_entry_done(entry, fast, NULL);
	cr_expect_eq(entry->runs.n, n);
	plan_entry_unref(entry);
}

/* Jobs of host memory and others take turns: only the others try anything, and these do not wait for a quiet
 * moment after each. */
Test(plan_search, what_cannot_be_measured_is_no_noise)
{
	struct plan_entry *entry = get(60, 10);
	const struct plan *trial, *other = run_to_search(entry);

	for (int i = 0; i < TRIAL_RUNS; i++) {
		const struct plan *plan = plan_entry_use(entry, false);

		cr_assert_eq(plan, &entry->plan);
		plan_entry_done(entry, plan, BY_BUS);
		cr_assert_eq(run(entry, NULL), other);
	}
	cr_expect_eq(entry->runs.n, 3 * TRIAL_RUNS);
	trial = plan_entry_use(entry, true);
	cr_assert_neq(trial, other);
	plan_entry_done(entry, trial, NULL); /* the job was refused after all */
	run(entry, NULL);
	cr_expect_eq(run(entry, NULL), trial);
	plan_entry_unref(entry);
}

Test(plan_search, only_a_trial_that_failed_is_not_repeated)
{
	struct plan_entry *entry = get(60, 10);
	const struct plan *other = run_to_search(entry);

	cr_assert_eq(plan_entry_use(entry, true), other);
	plan_entry_done(entry, other, &(struct plan_run){ .status = STATUS_CANCELED, .may_be_trial = true });
	cr_expect_eq(run(entry, NULL), &entry->plan);
	cr_assert_eq(plan_entry_use(entry, true), other);
	plan_entry_done(entry, other, UNMEASURED);
	cr_expect_eq(entry->search->trials.of[1].n, 0);
	cr_expect_eq(run(entry, NULL), &entry->plan);
	cr_assert_eq(plan_entry_use(entry, true), other);
	plan_entry_done(entry, other, &(struct plan_run){ .status = STATUS_DEVICE, .may_be_trial = true });
	cr_expect_eq(run(entry, NULL), &entry->plan);
	cr_expect_eq(run(entry, NULL), entry->search->of[2].plan);
	cr_expect_eq(entry->runs.n, TRIAL_RUNS + 5, "of those that succeeded");
	plan_entry_unref(entry);
}

/* One more than there may be ends the oldest one, with the best so far. */
Test(plan_search, there_are_few_at_a_time)
{
	struct plan_entry *entries[PLAN_SEARCHES + 1];

	for (int i = 0; i <= PLAN_SEARCHES; i++) {
		entries[i] = get(60 + i, 10);
		if (i == PLAN_SEARCHES)
			cr_assert_eq(cache.searches, 0);
		run_to_search(entries[i]);
	}
	cr_expect_eq(cache.n_searching, PLAN_SEARCHES);
	cr_expect_eq(cache.searches, 1);
	cr_expect_eq(count_kept(entries[0]->search), 0);
	cr_expect_eq(run(entries[0], NULL), &entries[0]->plan);
	cr_expect_eq(run(entries[1], NULL), entries[1]->search->of[1].plan);
	for (int i = 0; i <= PLAN_SEARCHES; i++)
		plan_entry_unref(entries[i]);
}
