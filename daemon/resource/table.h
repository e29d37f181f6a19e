/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of places: where the layers of one side of a request lie, in as many regions as there are entries.
 *
 * A prepared table belongs to its connection until it is released. It holds its regions, which drain until it
 * is gone, and is held by the jobs that use it, which therefore hold none of them. One that came with a
 * request lives as long as its job. The entries are checked when the table is made; what is left to check for
 * a request costs the same however many there are (layer_table.h).
 */
#ifndef DAEMON_RESOURCE_TABLE_H
#define DAEMON_RESOURCE_TABLE_H

#include <stdint.h>

#include "daemon/net/account.h"
#include "kernels/transform/layer_table.h"
#include "proto/schema.h"
#include "proto/status.h"
#include "region.h"

struct session;
struct table_view;

struct table {
	struct layer_table layers; /* whose places, memories and more are in data */
	struct region **regions;   /* of each entry */
	uint32_t device;          /* of all regions; DEVICE_ANY: they have several, or one of them is loose */
	struct table_view *views; /* as other devices see it */
	uint64_t id;              /* 0: of a request alone */
	uint32_t refs;
	struct charge charge;
	uint64_t data[];
};

/* Makes a table of entries as they travel, which belongs to one request, with a reference for the caller.
 * name is the argument's. Charged as list_bytes_per_uid. INVALID_ARGUMENT, NOT_FOUND, OUT_OF_RANGE, QUOTA or
 * NO_MEMORY. */
int table_new(struct session *session, const struct bytes *places, const char *name, struct table **ret,
              struct error *err);

/* Makes one that the connection keeps, charged as table_bytes_per_uid. */
int table_add(struct session *session, const struct bytes *places, uint64_t *ret_id, struct error *err);

/* With a reference for the caller; NOT_FOUND names the argument. */
int table_find(struct session *session, uint64_t id, const char *name, struct table **ret, struct error *err);

/* How many entries the table has; 0: the session has no table with that id. */
uint32_t table_entries(struct session *session, uint64_t id);

/* NOT_FOUND: the session has no table with that id. */
int table_release(struct session *session, uint64_t id, struct error *err);

void tables_release_all(struct session *session);

/* The layers as the device reaches them, for jobs of its engine: REACH_LATER, or what region_reach says,
 * QUOTA or NO_MEMORY. They live as long as the table. */
int table_reach(struct table *table, uint32_t device, struct layer_table **ret, struct error *err);

/* One more reference to it, if there is one. */
static inline struct table *table_ref(struct table *table)
{
	if (table)
		table->refs++;
	return table;
}

/* NULL is allowed. */
void table_unref(struct table *table);

#endif
