/* SPDX-License-Identifier: Apache-2.0 */
/* A layout in the cache of plans: its transform, its plans, and how long they took.
 *
 * It has the plan that is predicted to be the fastest. From the second run of a layout on, if it takes long
 * enough to measure, jobs try alternatives (plan_search.h) until the fastest is known. The search and its
 * plans belong to the entry, which is reference-counted (plan_cache.h).
 */
#ifndef DAEMON_RESOURCE_PLAN_ENTRY_H
#define DAEMON_RESOURCE_PLAN_ENTRY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "kernels/plan/plan.h"
#include "kernels/plan/transform.h"
#include "plan_search.h"

struct plan_cache;

#define PLAN_KEPT_TIMES 7

/* How often a layout has run, alone in its request; of the plan in use, how long the last runs took of those
 * that the engine measured. */
struct plan_runs {
	uint64_t n;
	uint64_t n_measured;
	uint64_t ns[PLAN_KEPT_TIMES]; /* of measured run i at i % PLAN_KEPT_TIMES */
};

struct plan_entry {
	struct transform transform;
	struct plan plan; /* predicted to be the fastest */
	struct plan_runs runs;
	struct plan_search *search; /* NULL: there has been none */
	/* Private to the entry and the cache. */
	struct plan_cache *cache;    /* NULL: the entry never was in one */
	struct plan_facts facts;     /* of plan */
	const struct plan *settled;  /* to be used from now on; NULL: it is not known yet */
	const struct plan *measured; /* whose times are in runs */
	TAILQ_ENTRY(plan_entry) searching;
	uint32_t refs;
	uint64_t hash;
	TAILQ_ENTRY(plan_entry) used; /* most recent first */
	LIST_ENTRY(plan_entry) bucket;
	uint32_t key_words;
	uint64_t key[];
};

/* The plan for a job, which holds it, and the entry, until plan_entry_done. may_be_trial: the plan is
 * all that the job runs, between tensors in the engine's memory, so that the job's time can be the plan's. */
const struct plan *plan_entry_use(struct plan_entry *entry, bool may_be_trial);

/* The job has ended; run: NULL if it ran other plans too, or none. */
void plan_entry_done(struct plan_entry *entry, const struct plan *plan, const struct plan_run *run);

/* Whether there are runs that try alternatives, or were. */
bool plan_entry_is_tuned(const struct plan_entry *entry);

/* The plan in use, the best so far; its times are in entry->runs. */
const struct plan *plan_entry_best(struct plan_entry *entry);

void plan_runs_add(struct plan_runs *runs, uint64_t ns, bool is_measured);

/* The median of the times that are kept; 0: there are none. */
uint64_t plan_runs_median_ns(const struct plan_runs *runs);

/* Adds a reference. */
void plan_entry_ref(struct plan_entry *entry);
void plan_entry_unref(struct plan_entry *entry);

#endif
