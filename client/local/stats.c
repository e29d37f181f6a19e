/* SPDX-License-Identifier: Apache-2.0 */
/* Sums up what the sessions of this process have counted. A child of fork continues from its parent's
 * counts. */
#include "session.h"

#include <pthread.h>
#include <stdlib.h>

#include "proto/clock.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the variables below */
static struct local_usage *open_ones;
static uint64_t ended[USAGE_REGIONS]; /* counts of sessions that were closed */
static uint64_t n_opened, n_open;
static uint64_t opened_ns; /* time at which the first session was opened (clock_ns) */

/* lists of a reply */
struct local_stats {
	struct counter requests[METHOD_COUNT], errors[STATUS_COUNT], bytes[FAMILY_COUNT], ns[FAMILY_COUNT];
	struct msg_latency_bucket latency[LATENCY_BARS];
};

/* ---- Sessions ----------------------------------------------------------------------------------------- */

static void keep_still(void)
{
	pthread_mutex_lock(&lock);
}

static void go_on(void)
{
	pthread_mutex_unlock(&lock);
}

static void start_over(void)
{
	pthread_mutex_init(&lock, NULL);
}

/* The lock is held during a fork, so that the child finds the list in a consistent state. */
__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(keep_still, go_on, start_over);
}

void local_usage_begin(struct local_session *session, bool is_connection)
{
	pthread_mutex_lock(&lock);
	if (opened_ns == 0)
		opened_ns = clock_ns();
	session->usage.next = open_ones;
	open_ones = &session->usage;
	n_opened += is_connection;
	n_open += is_connection;
	pthread_mutex_unlock(&lock);
}

void local_usage_end(struct local_session *session, bool is_connection)
{
	struct local_usage **link = &open_ones;

	pthread_mutex_lock(&lock);
	while (*link != &session->usage)
		link = &(*link)->next;
	*link = session->usage.next;
	for (int i = 0; i < USAGE_REGIONS; i++)
		ended[i] += session->usage.of[i];
	n_open -= is_connection;
	pthread_mutex_unlock(&lock);
}

/* ---- stats -------------------------------------------------------------------------------------------- */

/* Sums up the counts of all sessions. The caller must hold lock. */
static void sum_up(uint64_t ret[USAGE_COUNT])
{
	for (int i = 0; i < USAGE_COUNT; i++)
		ret[i] = i < USAGE_REGIONS ? ended[i] : 0;
	for (struct local_usage *usage = open_ones; usage; usage = usage->next)
		for (int i = 0; i < USAGE_COUNT; i++)
			ret[i] += atomic_load_explicit(&usage->of[i], memory_order_relaxed);
}

static struct message_list list_latency(const uint64_t *counts, struct msg_latency_bucket *ret)
{
	struct message_list list = { .items = ret };

	for (int i = 0; i < LATENCY_BARS; i++)
		if (counts[i])
			ret[list.n++] =
			    (struct msg_latency_bucket){ .below_ns = latency_bound(i), .count = counts[i] };
	return list;
}

static struct msg_cache_stats cache_stats_of(const struct engine_cache_stats *stats)
{
	return (struct msg_cache_stats){ .hits = stats->hits,
		                         .misses = stats->misses,
		                         .evictions = stats->evictions,
		                         .entries = stats->entries };
}

static struct msg_stats stats_of(const uint64_t usage[USAGE_COUNT], struct local_stats *lists)
{
	const char *status_names[STATUS_COUNT];
	struct msg_stats ret = { .has = F(stats, tensor_maps) | F(stats, plans) | F(stats, ns) |
		                        F(stats, tables),
		                 .regions = usage[USAGE_REGIONS],
		                 .mapped_bytes = usage[USAGE_MAPPED_BYTES],
		                 .plans = usage[USAGE_PLANS],
		                 .tables = usage[USAGE_TABLES],
		                 .latency = list_latency(usage + USAGE_LATENCY, lists->latency) };

	for (int i = 0; i < STATUS_COUNT; i++)
		status_names[i] = status_name(-i - 1);
	for (int i = 0; i < METHOD_COUNT; i++)
		ret.requests += usage[USAGE_REQUESTS + i];
	ret.requests_by_method =
	    counters_named(lists->requests, usage + USAGE_REQUESTS, method_names, METHOD_COUNT);
	ret.errors = counters_named(lists->errors, usage + USAGE_ERRORS, status_names, STATUS_COUNT);
	ret.bytes = counters_named(lists->bytes, usage + USAGE_BYTES, family_names, FAMILY_COUNT);
	ret.ns = counters_named(lists->ns, usage + USAGE_NS, family_names, FAMILY_COUNT);
	return ret;
}

int local_method_stats(struct local_session *session, const union params *params, union local_result *ret,
                       struct error *err)
{
	struct engine_cache_stats plans, maps;
	uint64_t usage[USAGE_COUNT];

	(void)params;
	if (!session->stats)
		session->stats = malloc(sizeof *session->stats);
	if (!session->stats)
		return error_set(err, STATUS_NO_MEMORY, "no memory for statistics");
	local_engine_stats(&plans, &maps);
	local_device_stats(&plans, &maps);
	pthread_mutex_lock(&lock);
	sum_up(usage);
	ret->stats = stats_of(usage, session->stats);
	ret->stats.connections_accepted = n_opened;
	ret->stats.connections = n_open;
	ret->stats.uptime_ms = (clock_ns() - opened_ns) / 1000000;
	pthread_mutex_unlock(&lock);
	ret->stats.plan_cache = cache_stats_of(&plans);
	ret->stats.tensor_maps = cache_stats_of(&maps);
	return 0;
}
