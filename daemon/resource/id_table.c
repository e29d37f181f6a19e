/* SPDX-License-Identifier: Apache-2.0 */
/* Slots in an array that doubles when it is full; the free slots form a list. */
#include "id_table.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

/* Slots are numbered from 1, so that no id is 0. */
#define SLOT_BITS   20
#define SLOT_MASK   ((UINT64_C(1) << SLOT_BITS) - 1)
#define FIRST_SLOTS 4

void id_table_deinit(struct id_table *table)
{
	assert(table->used == 0);
	free(table->slots);
}

/* Doubles the number of slots. */
static int grow(struct id_table *table, const char *nouns, struct error *err)
{
	uint32_t n = table->n_slots ? 2 * table->n_slots : FIRST_SLOTS;
	struct id_slot *slots;

	if (n > SLOT_MASK)
		return error_set(err, STATUS_QUOTA, "%" PRIu32 " %s on one connection", table->used, nouns);
	slots = realloc(table->slots, n * sizeof *slots);
	if (!slots)
		return error_set(err, STATUS_NO_MEMORY, "no memory for %" PRIu32 " %s", n, nouns);
	for (uint32_t i = table->n_slots; i < n; i++)
		slots[i] = (struct id_slot){ .id = i + 2 };
	slots[n - 1].id = table->first_free;
	table->first_free = table->n_slots + 1;
	table->slots = slots;
	table->n_slots = n;
	return 0;
}

int id_table_add(struct id_table *table, void *object, const char *nouns, uint64_t *ret_id, struct error *err)
{
	struct id_slot *slot;
	uint32_t number;
	int r = table->first_free ? 0 : grow(table, nouns, err);

	if (r < 0)
		return r;
	number = table->first_free;
	slot = &table->slots[number - 1];
	table->first_free = (uint32_t)slot->id;
	*slot = (struct id_slot){ object, table->generation++ << SLOT_BITS | number };
	table->used++;
	*ret_id = slot->id;
	return 0;
}

void *id_table_find(const struct id_table *table, uint64_t id)
{
	uint64_t i = (id & SLOT_MASK) - 1;

	return i < table->n_slots && table->slots[i].id == id ? table->slots[i].object : NULL;
}

void id_table_remove(struct id_table *table, uint64_t id)
{
	uint32_t number = (uint32_t)(id & SLOT_MASK);

	assert(id_table_find(table, id));
	table->slots[number - 1] = (struct id_slot){ .id = table->first_free };
	table->first_free = number;
	table->used--;
}

void *id_table_next(const struct id_table *table, uint32_t *cursor)
{
	while (*cursor < table->n_slots) {
		void *object = table->slots[(*cursor)++].object;

		if (object)
			return object;
	}
	return NULL;
}
