/* SPDX-License-Identifier: Apache-2.0 */
/* Copies counters, because a scrape is sent piece by piece while they change. */
#include "snapshot.h"

#include <stdio.h>
#include <stdlib.h>

#include "log.h"
#include "daemon/server.h"
#include "daemon/net/session.h"

#define OTHERS "other"

static struct snapshot_uid *row_of(struct snapshot *snapshot, const struct usages *usages,
                                   const struct account *account)
{
	for (uint32_t i = 0; i < usages->n; i++)
		if (usages->of[i] == account->usage)
			return &snapshot->uid[i];
	return &snapshot->uid[usages->n];
}

static void copy_limits(struct snapshot_uid *row, const struct accounts *accounts,
                        const struct account *account)
{
	struct limits *own = (struct limits *)account_limits(accounts, account);

	for (int i = 0; i < LIMIT_COUNT; i++)
		if (override_is_allowed(i) &&
		    *limits_at(own, i) != *limits_at((struct limits *)accounts->limits, i))
			row->limits[i] = *limits_at(own, i);
}

static void copy_uids(struct snapshot *snapshot, const struct accounts *accounts)
{
	const struct usages *usages = &accounts->usages;
	const struct account *account;

	for (uint32_t i = 0; i < usages->n; i++) {
		struct snapshot_uid *row = &snapshot->uid[i];

		row->usage = *usages->of[i];
		if (*usages->cgroup[i])
			snprintf(row->name, sizeof row->name, "cgroup:%s", usages->cgroup[i]);
		else
			snprintf(row->name, sizeof row->name, "%u", (unsigned)usages->uid[i]);
	}
	snapshot->n_uids = usages->n;
	if (usages->n == USAGE_UIDS) {
		snapshot->uid[usages->n].usage = usages->others;
		snprintf(snapshot->uid[usages->n].name, sizeof snapshot->uid[0].name, OTHERS);
		snapshot->n_uids++;
	}
	LIST_FOREACH(account, &accounts->list, entry) {
		struct snapshot_uid *row = row_of(snapshot, usages, account);

		for (int i = 0; i < CHARGE_KIND_COUNT; i++)
			if (row->levels[i] < account->used[i])
				row->levels[i] = account->used[i];
		if (row < &snapshot->uid[usages->n])
			copy_limits(row, accounts, account);
	}
}

static void copy_devices(struct snapshot *snapshot, const struct devices *devices)
{
	for (uint32_t i = 0; i < devices->n; i++) {
		const struct served_device *device = &devices->of[i];
		struct snapshot_device *copy = &snapshot->devices[snapshot->n_devices];

		if (!*device->engine->uuid)
			continue;
		*copy = (struct snapshot_device){ .up = device_is_up(device),
			                          .transforms = device->transforms,
			                          .bytes = device->bytes,
			                          .ns = device->ns,
			                          .jobs = device->jobs,
			                          .regions = device->regions,
			                          .mapped_bytes = device->mapped_bytes };
		snprintf(copy->uuid, sizeof copy->uuid, "%s", device->engine->uuid);
		snapshot->n_devices++;
	}
}

/* All have a UUID where there are several. */
static void copy_links(struct snapshot *snapshot, const struct devices *devices)
{
	const uint32_t n = snapshot->n_devices;

	if (n < 2)
		return;
	snapshot->links = (uint64_t *)(snapshot->devices + n);
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t j = 0; j < n; j++)
			snapshot->links[i * n + j] = devices->of[i].sent_bytes[j];
}

static uint64_t count_rings(const struct server *server)
{
	const struct session *session;
	uint64_t n = 0;

	TAILQ_FOREACH(session, &server->sessions, entry)
		n += session->submission != NULL;
	return n;
}

struct snapshot *snapshot_new(struct server *server)
{
	const uint32_t n = server->accounts.usages.n, n_devices = server->devices.n;
	struct snapshot *snapshot =
	    calloc(1, sizeof *snapshot + (n + 1) * sizeof snapshot->uid[0] +
	                  n_devices * (sizeof snapshot->devices[0] + n_devices * sizeof *snapshot->links));

	if (!snapshot)
		return NULL;
	snapshot->devices = (struct snapshot_device *)&snapshot->uid[n + 1];
	copy_devices(snapshot, &server->devices);
	copy_links(snapshot, &server->devices);
	snapshot->version = PACKAGE_VERSION;
	snapshot->engine = server_engine_name(server);
	server_describe(server, snapshot->device, sizeof snapshot->device);
	snapshot->start_ns = server->start_ns;
	snapshot->engine_up = watchdog_engine_up(&server->watchdog);
	snapshot->recoveries = server->recovery.count;
	snapshot->waiting = server_count_waiting(server);
	snapshot->stalled_users = server->stalls.users;
	snapshot->tables = server->n_tables;
	snapshot->rings = count_rings(server);
	snapshot->log_lost = log_lost();
	snapshot->regions = server->n_regions;
	snapshot->mapped_bytes = server->mapped_bytes;
	for (int i = 0; i < CHARGE_KIND_COUNT; i++)
		snapshot->levels[i] = server->accounts.total[i];
	snapshot->metrics = server->metrics;
	devices_plan_stats(&server->devices, &snapshot->plans);
	devices_cache_stats(&server->devices, &snapshot->maps);
	snapshot->limits = server->limits;
	copy_uids(snapshot, &server->accounts);
	return snapshot;
}
