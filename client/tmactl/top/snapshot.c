/* SPDX-License-Identifier: Apache-2.0 */
/* Computes rates from the counters of two snapshots. For a session that the previous snapshot does not have,
 * the counters and the time count from its beginning. */
#include "snapshot.h"

#include <stdlib.h>
#include <string.h>

#include "client/tmactl/field.h"
#include "proto/clock.h"

static const tma_document *find(const tma_document *map, const char *key)
{
	return tma_document_find(map, key);
}

/* Returns by how much a counter has grown. One that is smaller than before has been reset, and counts from
 * 0. */
static uint64_t grown(uint64_t now, uint64_t was)
{
	return now < was ? now : now - was;
}

static void usage_set(struct usage *u, double seconds, uint64_t requests, uint64_t bytes,
                      const uint64_t latency[LATENCY_BARS])
{
	u->requests_per_s = seconds > 0 ? (double)requests / seconds : 0;
	u->bytes_per_s = seconds > 0 ? (double)bytes / seconds : 0;
	u->p50_us = latency_percentile(latency, 50);
	u->p99_us = latency_percentile(latency, 99);
}

static void of_session(struct usage *u, const struct session_row *now, const struct session_row *was,
                       double seconds)
{
	static const struct session_row nothing;
	uint64_t latency[LATENCY_BARS];

	if (!was) {
		double age = (double)now->age_ms / 1e3;

		seconds = seconds > 0 && seconds < age ? seconds : age;
		was = &nothing;
	}
	for (int i = 0; i < LATENCY_BARS; i++)
		latency[i] = grown(now->latency[i], was->latency[i]);
	usage_set(u, seconds, grown(now->requests, was->requests), grown(now->bytes, was->bytes), latency);
	if (seconds > 0) {
		u->device = (double)grown(now->ns, was->ns) / 1e9 / seconds;
		u->multiprocessors =
		    (double)grown(now->multiprocessor_ns, was->multiprocessor_ns) / 1e9 / seconds;
	}
	u->session = now;
}

static void of_service(struct snapshot *snapshot, const struct snapshot *was, double seconds)
{
	const tma_document *old = was ? was->stats : NULL;
	uint64_t latency[LATENCY_BARS], before[LATENCY_BARS];

	latency_read(find(snapshot->stats, "latency"), latency);
	latency_read(find(old, "latency"), before);
	for (int i = 0; i < LATENCY_BARS; i++)
		latency[i] = grown(latency[i], before[i]);
	usage_set(&snapshot->all, was ? seconds : (double)field_uint(snapshot->stats, "uptime_ms") / 1e3,
	          grown(field_uint(snapshot->stats, "requests"), field_uint(old, "requests")),
	          grown(field_sum(find(snapshot->stats, "bytes")), field_sum(find(old, "bytes"))), latency);
}

/* Sets the rates of all devices. They keep their numbers until the service is restarted, so the index tells
 * which entry of the previous snapshot is the same device. */
static void of_devices(struct snapshot *snapshot, const struct snapshot *was, double seconds)
{
	const tma_document *old = was ? find(was->stats, "devices") : NULL;

	for (size_t i = 0; i < snapshot->n_devices; i++) {
		struct device_usage *u = &snapshot->devices[i];
		const tma_document *before = tma_document_at(old, i, NULL);

		u->now = tma_document_at(find(snapshot->stats, "devices"), i, NULL);
		if (seconds <= 0)
			continue;
		u->bytes_per_s =
		    (double)grown(field_uint(u->now, "bytes"), field_uint(before, "bytes")) / seconds;
		u->device = (double)grown(field_uint(u->now, "ns"), field_uint(before, "ns")) / 1e9 / seconds;
	}
}

/* Returns the index of the device at an end, "from" or "to", of a link, or n_devices if it is not in the
 * list. */
static size_t device_number(const struct snapshot *snapshot, const tma_document *link, const char *end)
{
	const char *uuid = tma_document_text(find(link, end));
	size_t i = 0;

	while (uuid && i < snapshot->n_devices &&
	       strcmp(field_text(snapshot->devices[i].now, "device"), uuid) != 0)
		i++;
	return uuid ? i : snapshot->n_devices;
}

/* Adds the bytes of each link, times factor, to its rate. Leaves out links of devices that the snapshot does
 * not have. */
static void add_links(struct snapshot *snapshot, const tma_document *links, double factor)
{
	for (size_t i = 0; i < tma_document_count(links); i++) {
		const tma_document *link = tma_document_at(links, i, NULL);
		const size_t from = device_number(snapshot, link, "from");
		const size_t to = device_number(snapshot, link, "to");

		if (from < snapshot->n_devices && to < snapshot->n_devices)
			snapshot->links[from * snapshot->n_devices + to] +=
			    factor * (double)field_uint(link, "bytes");
	}
}

/* Sets the rates of all links. Both snapshots are of the same service, whose counters only grow, so the
 * differences are not negative. */
static void of_links(struct snapshot *snapshot, const struct snapshot *was, double seconds)
{
	if (seconds <= 0)
		return;
	add_links(snapshot, find(snapshot->stats, "links"), 1 / seconds);
	add_links(snapshot, was ? find(was->stats, "links") : NULL, -1 / seconds);
}

int snapshot_init(struct snapshot *ret, tma_client *client, const struct snapshot *was, struct failure *f)
{
	struct snapshot snapshot = { .at = clock_s() };
	double seconds, uptime_s;

	if (tma_info(client, &snapshot.info) < 0 || tma_stats(client, &snapshot.stats) < 0 ||
	    session_list_get(&snapshot.sessions, client) < 0) {
		tmactl_refused(client, f);
		snapshot_deinit(&snapshot);
		return -1;
	}
	snapshot.usage = calloc(snapshot.sessions.n + 1, sizeof *snapshot.usage);
	snapshot.n_devices = tma_document_count(find(snapshot.stats, "devices"));
	snapshot.devices = calloc(snapshot.n_devices + 1, sizeof *snapshot.devices);
	snapshot.links = calloc(snapshot.n_devices * snapshot.n_devices + 1, sizeof *snapshot.links);
	if (!snapshot.usage || !snapshot.devices || !snapshot.links) {
		snapshot_deinit(&snapshot);
		return fail(f, EXIT_FAILED, "out of memory");
	}
	if (was && !snapshot_is_same_service(&snapshot, was))
		was = NULL;
	seconds = was ? snapshot.at - was->at : 0;
	uptime_s = (double)field_uint(snapshot.stats, "uptime_ms") / 1e3;
	of_service(&snapshot, was, seconds);
	of_devices(&snapshot, was, was ? seconds : uptime_s);
	of_links(&snapshot, was, was ? seconds : uptime_s);
	for (size_t i = 0; i < snapshot.sessions.n; i++) {
		const struct session_row *row = &snapshot.sessions.rows[i];

		of_session(&snapshot.usage[i], row,
		           was ? session_list_find(&was->sessions, row->session) : NULL, seconds);
	}
	*ret = snapshot;
	return 0;
}

void snapshot_deinit(struct snapshot *snapshot)
{
	tma_document_free(snapshot->info);
	tma_document_free(snapshot->stats);
	session_list_deinit(&snapshot->sessions);
	free(snapshot->usage);
	free(snapshot->devices);
	free(snapshot->links);
	*snapshot = (struct snapshot){ 0 };
}

int snapshot_is_same_service(const struct snapshot *a, const struct snapshot *b)
{
	const char *one = tma_document_text(find(a->info, "boot_id"));
	const char *other = tma_document_text(find(b->info, "boot_id"));

	return one && other && !strcmp(one, other);
}

static enum sort_key sorted_by; /* key for compare(), to which qsort() passes no argument */

static double value_of(const struct usage *u)
{
	switch (sorted_by) {
	case SORT_RATE:
		return u->requests_per_s;
	case SORT_BYTES:
		return u->bytes_per_s;
	case SORT_P50:
		return (double)u->p50_us;
	case SORT_P99:
		return (double)u->p99_us;
	case SORT_ERRORS:
		return (double)u->session->errors;
	case SORT_MAPPED:
		return (double)u->session->mapped_bytes;
	case SORT_UID:
		return -(double)u->session->uid;
	default:
		return -(double)u->session->pid;
	}
}

/* Orders by descending value, but by ascending uid or pid. Equal rows are ordered by session, so that they do
 * not change places between snapshots. */
static int compare(const void *a, const void *b)
{
	const struct usage *one = a, *other = b;
	double difference = value_of(other) - value_of(one);

	if (difference != 0)
		return difference < 0 ? -1 : 1;
	return one->session->session < other->session->session ? -1 : 1;
}

void snapshot_sort(struct snapshot *snapshot, enum sort_key key)
{
	sorted_by = key;
	qsort(snapshot->usage, snapshot->sessions.n, sizeof *snapshot->usage, compare);
}
