/* SPDX-License-Identifier: Apache-2.0 */
/* A table of a connection's objects by the ids that the client uses: regions, tables, plans.
 *
 * An id is a slot's number with a generation above it: no id is given twice, and a lookup is one read. The
 * table does not own its objects. Zero-initialised, it is empty.
 */
#ifndef DAEMON_RESOURCE_ID_TABLE_H
#define DAEMON_RESOURCE_ID_TABLE_H

#include <stdint.h>

#include "proto/status.h"

struct id_slot {
	void *object; /* NULL: free */
	uint64_t id;  /* the object's id; for a free slot, the number of the next free slot, 0: none */
};

struct id_table {
	struct id_slot *slots;
	uint32_t n_slots;
	uint32_t used;
	uint32_t first_free; /* number of a slot; 0: none */
	uint64_t generation;
};

/* All objects must have been removed. */
void id_table_deinit(struct id_table *table);

/* Adds object with a new id, never 0. QUOTA or NO_MEMORY; the error names the objects with noun ("regions").
 */
int id_table_add(struct id_table *table, void *object, const char *nouns, uint64_t *ret_id,
                 struct error *err);

/* Returns NULL if there is no object with that id. */
void *id_table_find(const struct id_table *table, uint64_t id);

/* The id must be in the table. */
void id_table_remove(struct id_table *table, uint64_t id);

/* Iterates over the objects in no particular order: NULL past the last. *cursor starts at 0. Objects may be
 * removed meanwhile. */
void *id_table_next(const struct id_table *table, uint32_t *cursor);

#endif
