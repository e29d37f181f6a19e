/* SPDX-License-Identifier: Apache-2.0 */
/* Tests lists of counted allocations: which bytes of one region another region can refer to. */
#include "kernels/cuda/memory/memory.h"

#include <string.h>

#include <criterion/criterion.h>

#define CHUNKS 7
#define UNIT   16

/* Makes a list of allocations of 1, 2, 3, 1, 2, 3, ... units. */
static void list_make(struct cuda_chunks *chunks)
{
	struct error err;

	*chunks = (struct cuda_chunks){ 0 };
	cr_assert_eq(cuda_chunks_reserve(chunks, CHUNKS, &err), 0);
	for (uint64_t i = 0; i < CHUNKS; i++)
		cr_assert_eq(cuda_chunks_add(chunks, 100 + i, (1 + i % 3) * UNIT, &err), 0);
	cr_assert_eq(cuda_chunks_complete(chunks, &err), 0, "%s", err.message);
}

/* Returns the number of the allocation that begins at this unit, or -1 if none does. */
static int begins_at(const struct cuda_chunks *chunks, uint64_t unit)
{
	uint64_t at = 0;
	int i = 0;

	for (; i < CHUNKS && at < unit * UNIT; i++)
		at += chunks->list[i]->size;
	return at == unit * UNIT ? i : -1;
}

Test(chunks, every_range_of_units)
{
	struct cuda_chunks all;

	list_make(&all);
	for (uint64_t from = 0; from <= all.size / UNIT; from++)
		for (uint64_t n = 0; from + n <= all.size / UNIT + 1; n++) {
			const int first = begins_at(&all, from), last = begins_at(&all, from + n);
			const bool is_whole = first >= 0 && last >= 0 && from + n <= all.size / UNIT;
			struct cuda_chunks some = { 0 };
			struct error err;
			int r = cuda_chunks_share(&some, &all, from * UNIT, n * UNIT, &err);

			cr_assert_eq(r, is_whole ? 0 : STATUS_OUT_OF_RANGE, "%d + %d units", (int)from,
			             (int)n);
			cr_assert_eq((int)some.n, is_whole ? last - first : 0);
			for (uint32_t i = 0; i < some.n; i++)
				cr_assert_eq(some.list[i], all.list[(uint32_t)first + i]);
			cuda_chunks_leave(&some);
		}
	cuda_chunks_leave(&all);
}

/* Finding a part of a region of thousands of allocations does not go through all of them, so the others may
 * be missing here. */
Test(chunks, the_others_are_not_looked_at)
{
	struct cuda_chunk *list[CHUNKS];
	struct cuda_chunks all, some = { 0 };
	struct error err;

	list_make(&all);
	memcpy(list, all.list, sizeof list);
	memset(all.list, 0, sizeof list);
	all.list[4] = list[4];
	cr_assert_eq(cuda_chunks_share(&some, &all, 7 * UNIT, 2 * UNIT, &err), 0, "%s", err.message);
	cr_assert_eq(some.n, 1);
	cr_assert_eq(some.list[0], list[4]);
	cuda_chunks_leave(&some);
	memcpy(all.list, list, sizeof list);
	cuda_chunks_leave(&all);
}
