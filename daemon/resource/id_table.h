/* What a connection has, by ids that it can name: regions, plans.
 *
 * An id is a generation above a slot's number: it is never given twice, and a look-up is one read. The table
 * does not own what is in it. Zero-initialised it is empty.
 */
#ifndef DAEMON_RESOURCE_ID_TABLE_H
#define DAEMON_RESOURCE_ID_TABLE_H

#include <stdint.h>

#include "proto/status.h"

struct id_slot {
	void *object; /* NULL: free */
	uint64_t id;  /* the object's; of a free slot, the next free one's number, 0: none */
};

struct id_table {
	struct id_slot *slots;
	uint32_t n_slots;
	uint32_t used;
	uint32_t first_free; /* a slot's number; 0: none */
	uint64_t generation;
};

/* Everything must have been removed. */
void id_table_deinit(struct id_table *table);

/* Puts object into the table, with a new id, never 0. QUOTA or NO_MEMORY, in words about nouns ("regions").
 */
int id_table_add(struct id_table *table, void *object, const char *nouns, uint64_t *ret_id,
                 struct error *err);

/* NULL: there is none with that id. */
void *id_table_find(const struct id_table *table, uint64_t id);

/* The id is one of the table's. */
void id_table_remove(struct id_table *table, uint64_t id);

/* One object after the other, in no order: NULL past the last. *cursor starts at 0. Objects may be removed on
 * the way. */
void *id_table_next(const struct id_table *table, uint32_t *cursor);

#endif
