/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of places. A handle lives until the table is released or its client is freed; it holds the places,
 * by which a later connection prepares the table again. If a region is released first, its place is empty
 * from then on, and the table cannot be prepared again. */
#include "client.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>

static void table_free(tma_table *table);

/* ---- Preparing ---------------------------------------------------------------------------------------- */

static int on_prepared(tma_client *client, const struct rpc_reply *reply, const struct method *method,
                       void *arg, struct error *err)
{
	tma_table *table = arg;
	struct msg_table_prepared done;
	int rc = rpc_decode_result(reply, method, &done, err);

	if (rc < 0)
		return rc;
	table->id = done.table;
	table->connection = client->connection;
	table->life = REGION_KNOWN;
	return 0;
}

/* Encodes the places with the current ids of their regions. */
static int table_fill(tma_client *client, const struct call *call, struct request *request, union params *ret)
{
	const tma_table *table = call->from;

	(void)request;
	for (size_t i = 0; i < table->n; i++) {
		const struct table_place *place = &table->places[i];
		char name[32];
		uint64_t id = 0; /* 0 if the place has no region; its offset is then an address. */
		int rc = 0;

		if (!place->region && !client->local)
			return client_fail(client, STATUS_NOT_FOUND, "places[%zu]: its region was released",
			                   i);
		snprintf(name, sizeof name, "places[%zu]", i);
		if (place->region)
			rc = region_param(client, place->region, name, &id);
		if (rc < 0)
			return rc;
		table->words[2 * i] = htole64(id);
		table->words[2 * i + 1] = htole64(place->offset);
	}
	ret->table_prepare.has = F(table_prepare, places);
	ret->table_prepare.places =
	    (struct bytes){ (const char *)table->words, 2 * table->n * sizeof *table->words };
	return 0;
}

int table_prepare(tma_table *table, int64_t deadline)
{
	return client_call_until(table->client,
	                         &(struct call){ .method = METHOD_table_prepare,
	                                         .fill = table_fill,
	                                         .from = table,
	                                         .fd = -1,
	                                         .on_reply = on_prepared,
	                                         .arg = table },
	                         deadline);
}

static int check_places(tma_client *client, const struct tma_place *places, size_t n)
{
	const size_t most = frame_request_limits.bytes / (2 * sizeof(uint64_t));
	int rc = 0;

	if (!places || n == 0)
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "places is %s; a table has at least one place", places ? "empty" : "NULL");
	if (n > most)
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "n: %zu places do not fit into a message of %zu bytes", n,
		                   frame_request_limits.bytes);
	for (size_t i = 0; i < n && rc == 0; i++) {
		char name[32];

		snprintf(name, sizeof name, "places[%zu]", i);
		rc = place_check(client, &places[i], name);
		if (rc == 0 && !places[i].region && !client->local)
			rc = client_fail(client, STATUS_INVALID_ARGUMENT,
			                 "places[%zu].region is NULL; a place is a byte of a region", i);
	}
	return rc;
}

static tma_table *table_new(tma_client *client, const struct tma_place *places, size_t n)
{
	tma_table *table = calloc(1, sizeof *table);

	if (!table)
		return NULL;
	table->places = malloc(n * (sizeof *table->places + 2 * sizeof *table->words));
	if (!table->places) {
		free(table);
		return NULL;
	}
	table->words = (uint64_t *)(table->places + n);
	table->n = n;
	for (size_t i = 0; i < n; i++)
		table->places[i] = (struct table_place){ places[i].region, places[i].offset };
	table->client = client;
	table->next = client->tables;
	client->tables = table;
	return table;
}

int tma_table_prepare(tma_client *client, const struct tma_place *places, size_t n, tma_table **ret)
{
	int rc = client_check_ret(client, ret, "the table goes");
	tma_table *table;

	if (rc == 0)
		rc = client_check_usable(client);
	if (rc == 0)
		rc = check_places(client, places, n);
	if (rc < 0)
		return rc;
	table = table_new(client, places, n);
	if (!table)
		return client_fail(client, STATUS_NO_MEMORY, "out of memory for a table");
	rc = table_prepare(table, client_deadline(client));
	if (rc < 0)
		table_free(table);
	else
		*ret = table;
	return rc;
}

/* ---- Using -------------------------------------------------------------------------------------------- */

int table_param(tma_client *client, const tma_table *table, const char *name, uint64_t *ret)
{
	if (!table)
		return client_fail(client, STATUS_INVALID_ARGUMENT, "%s is NULL; tma_table_prepare makes one",
		                   name);
	if (table->client != client)
		return client_fail(client, STATUS_INVALID_ARGUMENT, "%s: it belongs to another client", name);
	if (client->launching)
		return launch_elsewhere(client);
	if (table->life == REGION_GONE)
		return client_fail(client, table->error.status, "%s: it could not be prepared again: %s",
		                   name, table->error.message);
	*ret = table->id;
	return 0;
}

void client_forget_region(tma_client *client, const tma_region *region)
{
	for (tma_table *table = client->tables; table; table = table->next)
		for (size_t i = 0; i < table->n; i++)
			if (table->places[i].region == region)
				table->places[i].region = NULL;
}

/* ---- The end ------------------------------------------------------------------------------------------ */

/* The service has released the table already if its connection has ended. */
int tma_table_release(tma_table *table)
{
	tma_client *client = table ? table->client : NULL;
	struct msg_table_release params = { .has = F(table_release, table) };
	bool is_stale;
	int rc;

	if (!table)
		return 0;
	params.table = table->id;
	is_stale = table->life != REGION_KNOWN || table->connection != client->connection ||
	           client->sock < 0 || client->is_device_lost;
	table_free(table);
	if (is_stale)
		return 0;
	client->is_bound = true;
	rc = client_call(
	    client, &(struct call){
			.method = METHOD_table_release, .params = &params, .fd = -1, .on_reply = on_true });
	client->is_bound = false;
	return rc == STATUS_DISCONNECTED ? 0 : rc;
}

static void table_free(tma_table *table)
{
	tma_table **link = &table->client->tables;

	while (*link != table)
		link = &(*link)->next;
	*link = table->next;
	free(table->places);
	free(table);
}

void client_free_tables(tma_client *client)
{
	while (client->tables)
		table_free(client->tables);
}
