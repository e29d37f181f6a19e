/* SPDX-License-Identifier: Apache-2.0 */
/* Tests ids: each finds its own object, no id is given twice, and a removed object is no longer found. */
#include <criterion/criterion.h>

#include "daemon/memory/region.h"

#define MOST 1000

static struct id_table table;
static int objects[MOST];
static uint64_t ids[MOST];

static void add(int i)
{
	struct error err;

	cr_assert_eq(id_table_add(&table, &objects[i], "objects", &ids[i], &err), 0);
	cr_assert_neq(ids[i], 0);
}

static void fill(int n)
{
	for (int i = 0; i < n; i++)
		add(i);
}

static void clear(int n)
{
	for (int i = 0; i < n; i++)
		id_table_remove(&table, ids[i]);
}

Test(id_table, an_empty_one_has_nothing)
{
	uint32_t cursor = 0;

	for (uint64_t id = 0; id < 10; id++)
		cr_expect_null(id_table_find(&table, id));
	cr_expect_null(id_table_find(&table, UINT64_MAX));
	cr_expect_null(id_table_next(&table, &cursor));
	id_table_deinit(&table);
}

Test(id_table, finds_what_is_in_it)
{
	fill(MOST);
	cr_expect_eq(table.used, MOST);
	for (int i = 0; i < MOST; i++)
		cr_expect_eq(id_table_find(&table, ids[i]), &objects[i], "%d", i);
	for (int i = 0; i < MOST; i += 2)
		id_table_remove(&table, ids[i]);
	for (int i = 0; i < MOST; i++)
		cr_expect_eq(id_table_find(&table, ids[i]), i % 2 ? &objects[i] : NULL, "%d", i);
	for (int i = 1; i < MOST; i += 2)
		id_table_remove(&table, ids[i]);
	cr_expect_eq(table.used, 0);
	id_table_deinit(&table);
}

Test(id_table, a_slot_is_used_again_and_an_id_never)
{
	uint64_t seen[MOST];
	uint32_t n_slots;

	fill(10);
	n_slots = table.n_slots;
	for (int i = 0; i < MOST; i++) {
		seen[i] = ids[i % 10];
		id_table_remove(&table, ids[i % 10]);
		add(i % 10);
	}
	cr_expect_eq(table.n_slots, n_slots, "%u slots for 10 objects", table.n_slots);
	for (int i = 0; i < MOST; i++) {
		cr_expect_null(id_table_find(&table, seen[i]), "%d", i);
		for (int j = 0; j < i; j++)
			cr_assert_neq(seen[i], seen[j], "%d and %d", i, j);
	}
	clear(10);
	id_table_deinit(&table);
}

Test(id_table, goes_through_all_while_they_are_removed)
{
	bool seen[100] = { false };
	uint32_t cursor = 0;
	int *object;

	fill(100);
	id_table_remove(&table, ids[3]);
	while ((object = id_table_next(&table, &cursor))) {
		int i = (int)(object - objects);

		cr_expect_not(seen[i], "%d twice", i);
		seen[i] = true;
		id_table_remove(&table, ids[i]);
	}
	for (int i = 0; i < 100; i++)
		cr_expect_eq(seen[i], i != 3, "%d", i);
	cr_expect_eq(table.used, 0);
	id_table_deinit(&table);
}
