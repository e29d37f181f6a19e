/* SPDX-License-Identifier: Apache-2.0 */
/* Tests ranges that are found by address against a list that is searched from end to end. */
#include "client/range_set.h"

#include <criterion/criterion.h>

#include "tests/support/oracle.h"

#define MOST  40
#define STEPS 20000
#define SPACE 200

static struct range_set set;

/* An entry without an owner is free. */
static struct range list[MOST];

static bool is_held(uint64_t start, uint64_t size)
{
	for (size_t i = 0; i < MOST; i++)
		if (list[i].owner && list[i].start <= start && start + size <= list[i].end)
			return true;
	return false;
}

static size_t count(uint64_t before)
{
	size_t n = 0;

	for (size_t i = 0; i < MOST; i++)
		n += list[i].owner && list[i].start < before;
	return n;
}

static void assert_found(uint64_t start, uint64_t size, int step)
{
	const struct range *found = range_set_find(&set, start, size);

	cr_assert_eq(found != NULL, is_held(start, size), "step %d: %d bytes at %d", step, (int)size,
	             (int)start);
	if (!found)
		return;
	cr_assert(found->start <= start && start + size <= found->end, "step %d", step);
	cr_assert_eq(((struct range *)found->owner)->start, found->start, "step %d: it is its owner's", step);
}

Test(range_set, finds_what_a_list_finds)
{
	uint64_t state = 1;

	for (int step = 0; step < STEPS; step++) {
		struct range *entry = &list[oracle_random(&state) % MOST];

		if (entry->owner) {
			range_set_remove(&set, entry->start, entry);
			range_set_remove(&set, entry->start, entry); /* no such range is left */
			*entry = (struct range){ 0 };
		} else {
			entry->start = oracle_random(&state) % SPACE;
			entry->end = entry->start + 1 + oracle_random(&state) % (step % 3 ? 8 : SPACE);
			entry->owner = entry;
			cr_assert(range_set_add(&set, entry->start, entry->end - entry->start, entry));
		}
		for (int i = 0; i < 8; i++)
			assert_found(oracle_random(&state) % (SPACE + 8), 1 + oracle_random(&state) % 10,
			             step);
		const uint64_t from = oracle_random(&state) % SPACE;

		cr_assert_eq(range_set_from(&set, from), count(from), "step %d: from %d", step, (int)from);
	}
	range_set_deinit(&set);
	cr_assert_null(range_set_find(&set, 0, 1));
}

Test(range_set, ends_of_the_address_space)
{
	int owner;

	cr_assert(range_set_add(&set, UINT64_MAX - 9, 9, &owner));
	cr_assert_not_null(range_set_find(&set, UINT64_MAX - 9, 9));
	cr_assert_null(range_set_find(&set, UINT64_MAX - 9, 10));
	cr_assert_null(range_set_find(&set, UINT64_MAX - 1, UINT64_MAX), "a size that overflows");
	cr_assert_null(range_set_find(&set, 0, UINT64_MAX));
	range_set_deinit(&set);
}
