/* SPDX-License-Identifier: Apache-2.0 */
/* Makes tables from the bytes of a message, and keeps those of a session by their ids. */
#include "table.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/memory/region.h"
#include "daemon/memory/service.h"
#include "daemon/memory/session.h"
#include "placed.h"

/* ---- Making ------------------------------------------------------------------------------------------- */

/* Returns the bytes that each entry takes in table->data, where the places come first because their alignment
 * is the strictest. The text about table_bytes_per_uid in limits.def gives the same number. */
static size_t entry_room(void)
{
	const struct table *table = NULL;

	return sizeof *table->layers.places + sizeof *table->layers.memories + sizeof *table->regions +
	       sizeof *table->layers.layers + sizeof *table->layers.order;
}

static int find_region(struct session *session, uint64_t id, const char *name, uint32_t entry,
                       struct region **ret, struct error *err)
{
	struct region *region = id_table_find(&session->regions.ids, id);
	char what[48];

	if (region && region->state == REGION_STATE_OPEN && !region->is_bounce) {
		*ret = region;
		return 0;
	}
	snprintf(what, sizeof what, "%s: entry %" PRIu32, name, entry);
	return region_table_find(&session->regions, id, what, ret, err);
}

static const char *sort_of(const struct region *region)
{
	return region->memory->host ? "host" : "device";
}

/* Checks that the entry is in the same kind of memory, host or device, as entry 0: the difference of two
 * addresses has no meaning otherwise. */
static int check_sort(const struct table *table, uint32_t entry, const char *name, struct error *err)
{
	const struct region *first = table->regions[0], *region = table->regions[entry];

	if (!first->memory->host == !region->memory->host)
		return 0;
	return error_set(err, STATUS_INVALID_ARGUMENT,
	                 "%s: entry %" PRIu32 ": region %" PRIu64
	                 " is %s memory, but entry 0, region %" PRIu64
	                 ", is %s memory; a table is of one of the two",
	                 name, entry, region->id, sort_of(region), first->id, sort_of(first));
}

/* Checks the entries and fills them in. On failure, table->layers.n says how many regions the table holds. */
static int fill(struct session *session, const struct bytes *places, const char *name, uint32_t n,
                struct table *table, struct error *err)
{
	struct layer_place *place = (struct layer_place *)table->data;
	struct engine_memory **memories = (struct engine_memory **)(place + n);

	table->layers.places = place;
	table->layers.memories = memories;
	table->regions = (struct region **)(memories + n);
	table->layers.layers = (int64_t *)(table->regions + n);
	table->layers.order = (uint32_t *)(table->layers.layers + n);
	table->layers.read_only = n;
	table->device = DEVICE_ANY;
	for (uint32_t i = 0; i < n; i++) {
		struct region *region;
		uint64_t id, offset;
		int r;

		layer_entry_get(places, i, &id, &offset);
		r = find_region(session, id, name, i, &region, err);
		if (r < 0)
			return r;
		table->regions[i] = region;
		if (i == 0)
			table->device = region->device;
		if (table->device != region->device || atomic_load(&region->memory->is_loose))
			table->device = DEVICE_ANY;
		r = check_sort(table, i, name, err);
		if (r < 0)
			return r;
		region_join_table(region);
		table->layers.n = i + 1;
		memories[i] = region->memory;
		place[i] = (struct layer_place){ .at = place_of(region, offset),
			                         .region = id,
			                         .address = region->memory->address + offset };
		if (!region->memory->writable && table->layers.read_only == n)
			table->layers.read_only = i;
	}
	return layer_table_init(&table->layers, name, err);
}

static int make(struct session *session, const struct bytes *places, const char *name, enum charge_kind kind,
                struct table **ret, struct error *err)
{
	const uint32_t n = (uint32_t)(places->len / LAYER_ENTRY_BYTES);
	struct charge charge = { 0 };
	struct table *table;
	size_t size;
	int r = layer_entries_check(places, name, err);

	if (r < 0)
		return r;
	size = sizeof *table + n * entry_room();
	r = charge_take(&charge, &session->service->accounts, session->account, kind, size, err);
	if (r < 0)
		return r;
	table = calloc(1, size);
	if (!table) {
		charge_release(&charge);
		return error_set(err, STATUS_NO_MEMORY, "no memory for a table of %" PRIu32 " entries", n);
	}
	table->charge = charge;
	table->refs = 1;
	table->layers.noun = "places";
	r = fill(session, places, name, n, table, err);
	if (r < 0) {
		table_unref(table);
		return r;
	}
	*ret = table;
	return 0;
}

int table_new(struct session *session, const struct bytes *places, const char *name, struct table **ret,
              struct error *err)
{
	return make(session, places, name, CHARGE_LIST_BYTES, ret, err);
}

int table_add(struct session *session, const struct bytes *places, uint64_t *ret_id, struct error *err)
{
	struct table *table;
	int r = make(session, places, "places", CHARGE_TABLE_BYTES, &table, err);

	if (r < 0)
		return r;
	r = id_table_add(&session->tables, table, "tables", &table->id, err);
	if (r < 0) {
		table_unref(table);
		return r;
	}
	session->service->n_tables++;
	table->layers.serial = ++session->service->tables_made;
	table->layers.noun = "table";
	*ret_id = table->id;
	return 0;
}

/* ---- Using -------------------------------------------------------------------------------------------- */

int table_find(struct session *session, uint64_t id, const char *name, struct table **ret, struct error *err)
{
	struct table *table = id_table_find(&session->tables, id);

	if (!table)
		return error_set(err, STATUS_NOT_FOUND, "%s: this connection has no table %" PRIu64, name,
		                 id);
	table->refs++;
	*ret = table;
	return 0;
}

uint32_t table_entries(struct session *session, uint64_t id)
{
	const struct table *table = id_table_find(&session->tables, id);

	return table ? table->layers.n : 0;
}

/* ---- On other devices --------------------------------------------------------------------------------- */

/* A table as another device sees it: the same entries, with the addresses that they have on that device. */
struct table_view {
	struct table_view *next;
	uint32_t device;
	struct layer_table layers;
	uint64_t data[];
};

static int reach_all(const struct table *table, uint32_t device, struct error *err)
{
	int r = 0;

	for (uint32_t i = 0; i < table->layers.n && (r == 0 || r == REACH_LATER); i++) {
		const int one = region_reach(table->regions[i], device, err);

		r = one < 0 ? one : r;
	}
	return r;
}

static void fill_view(struct table_view *view, const struct table *table, uint32_t device)
{
	const uint32_t n = table->layers.n;
	struct layer_place *places = (struct layer_place *)view->data;
	struct engine_memory **memories = (struct engine_memory **)(places + n);

	view->device = device;
	view->layers = table->layers;
	view->layers.places = places;
	view->layers.memories = memories;
	view->layers.layers = (int64_t *)(memories + n);
	for (uint32_t i = 0; i < n; i++) {
		memories[i] = region_memory(table->regions[i], device);
		places[i] = table->layers.places[i];
		places[i].address = memories[i]->address + places[i].at.offset;
	}
	layer_table_take_addresses(&view->layers);
}

static int make_view(struct table *table, uint32_t device, struct layer_table **ret, struct error *err)
{
	const struct layer_table *layers = &table->layers;
	struct session *session = table->regions[0]->session;
	struct table_view *view;
	const size_t size = sizeof *view + layers->n * (sizeof *layers->places + sizeof *layers->memories +
	                                                sizeof *layers->layers);
	int r = charge_take(&table->charge, &session->service->accounts, session->account, table->charge.kind,
	                    size, err);

	if (r < 0)
		return r;
	view = calloc(1, size);
	if (!view) {
		charge_shrink(&table->charge, size);
		return error_set(err, STATUS_NO_MEMORY, "no memory for a table of %" PRIu32 " entries",
		                 layers->n);
	}
	fill_view(view, table, device);
	view->next = table->views;
	table->views = view;
	*ret = &view->layers;
	return 0;
}

int table_reach(struct table *table, uint32_t device, struct layer_table **ret, struct error *err)
{
	struct table_view *view;
	int r;

	*ret = &table->layers;
	if (table->device == device)
		return 0;
	for (view = table->views; view; view = view->next)
		if (view->device == device) {
			*ret = &view->layers;
			return 0;
		}
	r = reach_all(table, device, err);
	return r < 0 ? r : make_view(table, device, ret, err);
}

/* ---- The end ------------------------------------------------------------------------------------------ */

void table_unref(struct table *table)
{
	struct table_view *view;

	if (!table)
		return;
	assert(table->refs > 0);
	if (--table->refs > 0)
		return;
	while ((view = table->views)) {
		table->views = view->next;
		free(view);
	}
	for (uint32_t i = 0; i < table->layers.n; i++)
		region_leave_table(table->regions[i]);
	charge_release(&table->charge);
	free(table);
}

static void end(struct session *session, struct table *table)
{
	id_table_remove(&session->tables, table->id);
	session->service->n_tables--;
	table_unref(table);
}

int table_release(struct session *session, uint64_t id, struct error *err)
{
	struct table *table = id_table_find(&session->tables, id);

	if (!table)
		return error_set(err, STATUS_NOT_FOUND, "table: this connection has no table %" PRIu64, id);
	end(session, table);
	return 0;
}

void tables_release_all(struct session *session)
{
	struct table *table;
	uint32_t cursor = 0;

	while ((table = id_table_next(&session->tables, &cursor)))
		end(session, table);
}
