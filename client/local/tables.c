/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of layers. An entry is a place in a region, or an address. The checks treat all memory of the
 * process as one memory, in which each entry lies at its address. */
#include "session.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- Making ------------------------------------------------------------------------------------------- */

static int set_entry(const struct local_session *session, struct local_table *table, struct layer_place *ret,
                     const struct bytes *entries, uint32_t i, const char *name, struct error *err)
{
	struct layer_table *layers = &table->layers;
	struct local_region region;
	char entry[48];
	uint64_t offset;
	int r;

	layer_entry_get(entries, i, &ret->region, &offset);
	snprintf(entry, sizeof entry, "%s: entry %" PRIu32, name, i);
	r = local_place(session, true, ret->region, offset, false, entry, &ret->at, err);
	if (r < 0)
		return r;
	ret->address = local_address(&ret->at);
	table->has_addresses |= ret->region == 0;
	if (layers->read_only == layers->n && local_region_find(session, ret->region, &region) &&
	    !region.writable)
		layers->read_only = i;
	return 0;
}

/* Makes a table. Its places and its other arrays are in the same allocation. */
static int table_new(const struct local_session *session, const struct bytes *entries, const char *name,
                     struct local_table **ret, struct error *err)
{
	const uint32_t n = (uint32_t)(entries->len / LAYER_ENTRY_BYTES);
	struct local_table *table;
	struct layer_place *places;
	int r = layer_entries_check(entries, name, err);

	if (r < 0)
		return r;
	table = calloc(1, sizeof *table + n * (sizeof *places + sizeof(int64_t) + sizeof(uint32_t)));
	if (!table)
		return error_set(err, STATUS_NO_MEMORY, "no memory for a table of %" PRIu32 " entries", n);
	places = (struct layer_place *)(table + 1);
	table->layers.n = table->layers.read_only = n;
	table->layers.places = places;
	table->layers.layers = (int64_t *)(places + n);
	table->layers.order = (uint32_t *)(table->layers.layers + n);
	table->layers.noun = "places";
	for (uint32_t i = 0; r == 0 && i < n; i++)
		r = set_entry(session, table, &places[i], entries, i, name, err);
	if (r == 0)
		r = layer_table_init(&table->layers, name, err);
	if (r < 0)
		free(table);
	else
		*ret = table;
	return r;
}

/* ---- Using -------------------------------------------------------------------------------------------- */

static int find(struct local_session *session, uint64_t id, const char *name, struct local_table **ret,
                struct error *err)
{
	*ret = local_ids_find(session, &session->objects->tables, id);
	if (!*ret)
		return error_set(err, STATUS_NOT_FOUND, "%s: this connection has no table %" PRIu64, name,
		                 id);
	if ((*ret)->released)
		return error_set(err, STATUS_NOT_FOUND,
		                 "%s: region %" PRIu64 ", which it names, was released; without a service, "
		                 "that ends a table",
		                 name, (*ret)->released);
	return 0;
}

int local_table_get(struct local_session *session, const struct request_layers *fields,
                    struct local_table **ret, struct error *err)
{
	const char *name = request_table_name(fields);
	int r = request_check_table(fields, err);

	*ret = NULL;
	if (r < 0 || !request_has_table(fields))
		return r;
	return fields->has_table ? find(session, fields->table, name, ret, err)
	                         : table_new(session, fields->places, name, ret, err);
}

void local_table_put(struct local_table *table)
{
	if (table && !table->layers.serial)
		free(table);
}

void local_table_place(const struct local_table *table, struct msg_tensor *tensor)
{
	const struct layer_place *first = &table->layers.places[0];

	tensor->has |= (first->region ? F(tensor, region) : 0) | F(tensor, offset);
	tensor->region = first->region;
	tensor->offset += first->at.offset;
}

int local_table_is_on_host(const struct local_session *session, const struct local_table *table,
                           struct error *err)
{
	enum engine_home home = ENGINE_HOME_HOST;
	int r = 0;

	for (uint32_t i = 0; r == 0 && home == ENGINE_HOME_HOST && i < table->layers.n; i++)
		r = engine_find_home(session->stream.device, local_address(&table->layers.places[i].at),
		                     &home, err);
	return r < 0 ? r : home == ENGINE_HOME_HOST;
}

int local_table_check_reach(const struct local_session *session, struct local_table *table, const char *name,
                            struct error *err)
{
	const struct engine *device = session->stream.device;
	int r = 0;

	if (!device || table->reached == device)
		return 0;
	for (uint32_t i = 0; r == 0 && i < table->layers.n; i++) {
		char entry[32];

		snprintf(entry, sizeof entry, "%s: entry %" PRIu32, name, i);
		r = local_check_reach(session, &table->layers.places[i].at, entry, err);
	}
	table->reached = r == 0 ? device : NULL;
	return r;
}

/* ---- Of a session ------------------------------------------------------------------------------------- */

static bool has_region(const struct layer_table *layers, uint64_t region)
{
	for (uint32_t i = 0; i < layers->n; i++)
		if (layers->places[i].region == region)
			return true;
	return false;
}

void local_tables_forget(struct local_objects *objects, uint64_t region)
{
	for (uint64_t i = 0; i < objects->tables.n; i++) {
		struct local_table *table = objects->tables.objects[i];

		if (table && has_region(&table->layers, region))
			table->released = region;
	}
}

int local_method_table_prepare(struct local_session *session, const union params *params,
                               union local_result *ret, struct error *err)
{
	struct local_table *table;
	uint64_t id;
	int r = table_new(session, &params->table_prepare.places, "places", &table, err);

	if (r < 0)
		return r;
	table->layers.serial = ++session->objects->tables_made;
	table->layers.noun = "table";
	id = local_ids_add(session, &session->objects->tables, table);
	if (id == 0) {
		free(table);
		return error_set(err, STATUS_NO_MEMORY, "no memory for a table");
	}
	ret->table_prepared = (struct msg_table_prepared){ .table = id };
	local_count(session, USAGE_TABLES, 1);
	return 0;
}

int local_method_table_release(struct local_session *session, const union params *params,
                               union local_result *ret, struct error *err)
{
	const uint64_t id = params->table_release.table;
	struct local_table *table = local_ids_take(session, &session->objects->tables, id);

	(void)ret;
	if (!table)
		return error_set(err, STATUS_NOT_FOUND, "table: this connection has no table %" PRIu64, id);
	local_count(session, USAGE_TABLES, -UINT64_C(1));
	free(table);
	return 0;
}
