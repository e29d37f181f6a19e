/* SPDX-License-Identifier: Apache-2.0 */
/* Reconnecting: the first request after a lost connection connects again, because the service restarts itself
 * at the same path, or is restarted by somebody. Regions, tables and plans keep their handles and get new
 * ids.
 *
 * A new connection is incomplete until all of them are registered on it. The service may refuse some for now
 * (QUOTA, BUSY, NO_MEMORY), because it still holds what an earlier connection had; the client asks for these
 * again. Whatever is refused for good, or for too long, becomes GONE, and the call that noticed reports it.
 * The next connection and tma_restore ask for it once more.
 */
#include "client.h"

#include "proto/clock.h"

#define PAUSE_MS       20 /* milliseconds between two attempts to connect */
#define PAUSE_LEAST_MS 1  /* milliseconds before the first repetition of a registration; doubles each time */
#define PAUSE_MOST_MS  50

static int join(tma_client *client, int64_t deadline, enum patience patience);
static int connect_again(tma_client *client, int64_t deadline, enum patience patience);
static int rejoin_regions(tma_client *client, int64_t deadline, int64_t until, struct error *first);
static int rejoin_tables(tma_client *client, int64_t deadline, int64_t until, struct error *first);
static int rejoin_plans(tma_client *client, int64_t deadline, int64_t until, struct error *first);
static int report_region(const tma_region *region, struct error why);
static bool went_with_service(const tma_region *region);
static bool is_permanent(const tma_region *region);
static bool is_refused(const tma_client *client, int rc);
static bool is_for_now(int status);

/* ---- Connecting --------------------------------------------------------------------------------------- */

int client_ready(tma_client *client, int64_t deadline, enum patience patience)
{
	int rc;

	if (client->is_bound)
		return client_check(client);
	if (client->is_device_lost) {
		client_pump(client); /* Replies that have arrived count as answers. */
		client_break(client, STATUS_DEVICE_LOST, "the device of tmad at %s was lost", client->path);
	}
	if (client->sock >= 0) {
		rc = client->is_incomplete ? client_rejoin(client, deadline, patience) : 0;
		if (client->sock >= 0 || rc != STATUS_DISCONNECTED)
			return rc;
	}
	rc = client_check_usable(client);
	if (rc < 0)
		return rc;
	rc = join(client, deadline, patience);
	/* The connection was lost again while regions were registered. */
	if (rc == STATUS_DISCONNECTED && patience == PATIENCE_FULL && !client->is_given_up &&
	    !client->is_interrupted)
		rc = join(client, deadline, patience);
	if (client->sock >= 0)
		client->reconnects++;
	return rc;
}

static int join(tma_client *client, int64_t deadline, enum patience patience)
{
	int rc = connect_again(client, deadline, patience);

	return rc < 0 ? rc : client_rejoin(client, deadline, patience);
}

/* Tries to connect until the time of tma_set_reconnect, or the deadline, has passed. A deadline of 0 has
 * passed already, so client_open then does not wait. */
static int connect_again(tma_client *client, int64_t deadline, enum patience patience)
{
	struct error lost = client->ended;
	struct error why;
	int64_t until = clock_ms() + (client->is_given_up ? 0 : client->retry_ms);
	int rc;

	if (deadline >= 0 && deadline < until)
		until = deadline;
	if (patience == PATIENCE_NONE)
		until = 0;
	client->is_interrupted = false;
	while ((rc = client_open(client, until)) == STATUS_DISCONNECTED && clock_ms() < until &&
	       client_pause(client, PAUSE_MS))
		;
	if (!rc)
		return 0;
	if (patience == PATIENCE_FULL && !client->is_interrupted)
		client->is_given_up = true;
	else if (rc == STATUS_NO_REPLY)
		rc = STATUS_DISCONNECTED;
	why = client->error;
	return client_fail(client, rc, "the connection is closed: %s; %s", lost.message, why.message);
}

/* ---- Regions, tables and plans ------------------------------------------------------------------------ */

/* Returns the time until which a call with this deadline repeats refused registrations. If the deadline comes
 * first, a quarter of the time is left for the reply to the last repetition. */
static int64_t patience_end(const tma_client *client, int64_t deadline)
{
	int64_t now = clock_ms(), until = now + (client->retry_ms < 0 ? CLIENT_RETRY_MS : client->retry_ms);

	return deadline >= 0 && deadline < until ? now + (deadline - now) / 4 * 3 : until;
}

/* Without patience, whatever is refused for now is left to the next call, and replies are due earlier. If the
 * connection is lost meanwhile, for whatever reason, the next request may reconnect. */
int client_rejoin(tma_client *client, int64_t deadline, enum patience patience)
{
	int64_t until = patience_end(client, deadline);
	int timeout_ms = client->timeout_ms;
	struct error first = { 0 };
	int rc;

	if (patience == PATIENCE_NONE) {
		client->timeout_ms = client_left_ms(until); /* An error message names this timeout. */
		deadline = until;
		until = 0;
	}
	client->is_bound = true;
	rc = rejoin_regions(client, deadline, until, &first);
	if (rc == 0)
		rc = rejoin_tables(client, deadline, until, &first);
	if (rc == 0)
		rc = rejoin_plans(client, deadline, until, &first);
	client->is_bound = false;
	client->timeout_ms = timeout_ms;
	if (client->sock < 0)
		client->ended.status = STATUS_DISCONNECTED;
	if (rc < 0)
		return rc;
	client->is_incomplete = false;
	if (first.status)
		client->error = first;
	return first.status;
}

/* Returns whether to repeat a registration that ended with rc. If so, it has slept for *pause_ms, which it
 * doubles. */
static bool is_worth_asking(tma_client *client, int rc, int64_t until, int *pause_ms)
{
	int64_t left = until - clock_ms();

	client->is_interrupted = false;
	if (!is_refused(client, rc) || !is_for_now(rc) || left <= 0)
		return false;
	if (!client_pause(client, *pause_ms < left ? *pause_ms : (int)left))
		return false;
	*pause_ms = *pause_ms < PAUSE_MOST_MS / 2 ? 2 * *pause_ms : PAUSE_MOST_MS;
	return true;
}

/* Returns whether a registration that was refused for now is left to the next call. */
static bool is_left_to_next(const tma_client *client, int rc, int64_t until)
{
	return (until == 0 || client->is_interrupted) && is_for_now(rc);
}

/* Registers the regions of earlier connections. Returns 0 once each one is registered or GONE; the error of
 * the first one that became GONE goes to *first. Returns the last error if the connection was lost, or if the
 * rest is left to the next call. rejoin_tables and rejoin_plans do the same. */
static int rejoin_regions(tma_client *client, int64_t deadline, int64_t until, struct error *first)
{
	for (tma_region *region = client->regions; region; region = region->next) {
		int pause_ms = PAUSE_LEAST_MS, rc;

		if (region->life != REGION_KNOWN || region->connection == client->connection)
			continue;
		if (went_with_service(region))
			rc = client_fail(
			    client, STATUS_NOT_FOUND,
			    "the service had created its memory, which was lost with the service");
		else
			do
				rc = region_register(region, deadline);
			while (is_worth_asking(client, rc, until, &pause_ms));
		if (rc == 0)
			continue;
		if (!is_refused(client, rc))
			return rc;
		if (is_left_to_next(client, rc, until))
			return report_region(region, client->error);
		region->life = REGION_GONE;
		region->error = client->error;
		report_region(region, region->error);
		if (!first->status && !region->is_replaceable)
			*first = client->error;
	}
	return 0;
}

static int rejoin_tables(tma_client *client, int64_t deadline, int64_t until, struct error *first)
{
	for (tma_table *table = client->tables; table; table = table->next) {
		int pause_ms = PAUSE_LEAST_MS, rc;

		if (table->life != REGION_KNOWN || table->connection == client->connection)
			continue;
		do
			rc = table_prepare(table, deadline);
		while (is_worth_asking(client, rc, until, &pause_ms));
		if (rc == 0)
			continue;
		if (!is_refused(client, rc))
			return rc;
		table->error = client->error;
		client_fail(client, rc,
		            "connected, but a table of %zu places could not be prepared again: %s", table->n,
		            table->error.message);
		if (is_left_to_next(client, rc, until))
			return rc;
		table->life = REGION_GONE;
		if (!first->status)
			*first = client->error;
	}
	return 0;
}

static int rejoin_plans(tma_client *client, int64_t deadline, int64_t until, struct error *first)
{
	for (tma_plan *plan = client->plans; plan; plan = plan->next) {
		int pause_ms = PAUSE_LEAST_MS, rc;

		if (plan->life != REGION_KNOWN || plan->connection == client->connection)
			continue;
		do
			rc = plan_prepare(plan, deadline);
		while (is_worth_asking(client, rc, until, &pause_ms));
		if (rc == 0)
			continue;
		if (!is_refused(client, rc))
			return rc;
		plan->error = client->error;
		client_fail(client, rc, "connected, but a plan could not be prepared again: %s",
		            plan->error.message);
		if (is_left_to_next(client, rc, until))
			return rc;
		plan->life = REGION_GONE;
		if (!first->status)
			*first = client->error;
	}
	return 0;
}

static int report_region(const tma_region *region, struct error why)
{
	return client_fail(region->client, why.status,
	                   "connected, but a region of %zu bytes could not be registered again: %s",
	                   region->size, why.message);
}

/* Returns whether the region's memory was lost with the service that had made it. */
static bool went_with_service(const tma_region *region)
{
	return region->is_service_made && region->kind == REGION_KIND_CUDA_IPC;
}

static bool is_permanent(const tma_region *region)
{
	return region->is_lost || went_with_service(region);
}

/* Returns whether the service itself refused with rc: the connection still exists. */
static bool is_refused(const tma_client *client, int rc)
{
	return rc < 0 && client->sock >= 0 && !client->is_device_lost;
}

static bool is_for_now(int status)
{
	return status == STATUS_QUOTA || status == STATUS_BUSY || status == STATUS_NO_MEMORY;
}

/* ---- What was lost ------------------------------------------------------------------------------------ */

void client_seek_lost(tma_client *client)
{
	for (tma_region *region = client->regions; region; region = region->next)
		if (region->life == REGION_GONE && !is_permanent(region))
			region->life = REGION_KNOWN;
	for (tma_table *table = client->tables; table; table = table->next)
		if (table->life == REGION_GONE)
			table->life = REGION_KNOWN;
	for (tma_plan *plan = client->plans; plan; plan = plan->next)
		if (plan->life == REGION_GONE)
			plan->life = REGION_KNOWN;
}

int tma_restore(tma_client *client)
{
	int rc = client_check_usable(client);

	if (rc < 0)
		return rc;
	client_seek_lost(client);
	client->is_incomplete = true;
	rc = client_ready(client, client_deadline(client), PATIENCE_FULL);
	for (const tma_region *region = client->regions; region && rc == 0; region = region->next)
		if (region->life == REGION_GONE && !region->is_replaceable)
			rc = report_region(region, region->error);
	return rc;
}
