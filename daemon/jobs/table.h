/* SPDX-License-Identifier: Apache-2.0 */
/* A table holds the places of the layers of one side of a request. It has an entry for each layer, and each
 * entry may be in a region of its own.
 *
 * A prepared table belongs to its connection until it is released. Jobs hold the tables that they use, and a
 * table holds its regions, so jobs need not hold these; a region that is released drains until its tables are
 * gone. A table that came with a request lives as long as its job. The entries are checked when the table is
 * made; the checks that remain for each request cost the same however many entries there are (layer_table.h).
 */
#ifndef DAEMON_JOBS_TABLE_H
#define DAEMON_JOBS_TABLE_H

#include <stdint.h>

#include "daemon/memory/account.h"
#include "daemon/memory/region.h"
#include "kernels/transform/layer_table.h"
#include "proto/schema.h"
#include "proto/status.h"

struct session;
struct table_view;

struct table {
	struct layer_table layers; /* its arrays (places, memories and so on) lie in data */
	struct region **regions;   /* indexed by entry */
	/* Device of all regions. DEVICE_ANY: they are on several, or one is loose (engine_memory). */
	uint32_t device;
	struct table_view *views; /* the table as other devices see it */
	uint64_t id;              /* id in session->tables; 0: the table belongs to one request */
	uint32_t refs;            /* references; the last one frees the table */
	struct charge charge;
	uint64_t data[];
};

/* Makes a table of entries in the format of the message. It belongs to one request, is charged as
 * list_bytes_per_uid, and has a reference for the caller. name is the argument that error messages refer to.
 * Returns 0, INVALID_ARGUMENT, NOT_FOUND, OUT_OF_RANGE, QUOTA or NO_MEMORY. */
int table_new(struct session *session, const struct bytes *places, const char *name, struct table **ret,
              struct error *err);

/* Makes a table that the connection keeps, charged as table_bytes_per_uid, and sets *ret_id to its id.
 * Returns what table_new does. */
int table_add(struct session *session, const struct bytes *places, uint64_t *ret_id, struct error *err);

/* Finds a table by its id. *ret has a reference for the caller. name is the argument that error messages
 * refer to. Returns 0 or NOT_FOUND. */
int table_find(struct session *session, uint64_t id, const char *name, struct table **ret, struct error *err);

/* Returns how many entries the table has, or 0 if the session has no table with that id. */
uint32_t table_entries(struct session *session, uint64_t id);

/* Returns 0, or NOT_FOUND if the session has no table with that id. */
int table_release(struct session *session, uint64_t id, struct error *err);

void tables_release_all(struct session *session);

/* Sets *ret to the layers with the addresses that they have on the device, for jobs of its engine; they live
 * as long as the table. Returns 0, QUOTA, NO_MEMORY, or what region_reach does. */
int table_reach(struct table *table, uint32_t device, struct layer_table **ret, struct error *err);

/* Takes a reference to the table. NULL is allowed. */
static inline struct table *table_ref(struct table *table)
{
	if (table)
		table->refs++;
	return table;
}

/* NULL is allowed. */
void table_unref(struct table *table);

#endif
