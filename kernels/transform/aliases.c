/* SPDX-License-Identifier: Apache-2.0 */
/* Compares memories allocation by allocation: looks up those that a range touches, or, where these are many,
 * walks along both memories in the order of ids. */
#include "aliases.h"

#include <stdlib.h>
#include <string.h>

#include "proto/overlap.h"

static int by_id(const void *a, const void *b)
{
	const struct memory_chunk *x = a, *y = b;

	return x->id != y->id ? (x->id > y->id) - (x->id < y->id) : (x->at > y->at) - (x->at < y->at);
}

bool memory_chunks_sort(struct memory_chunks *chunks, uint64_t *ret)
{
	memcpy(chunks->by_id, chunks->by_place, chunks->n * sizeof *chunks->by_id);
	qsort(chunks->by_id, chunks->n, sizeof *chunks->by_id, by_id);
	for (uint32_t i = 1; i < chunks->n; i++) {
		if (chunks->by_id[i].id != chunks->by_id[i - 1].id)
			continue;
		*ret = chunks->by_id[i].at;
		return false;
	}
	return true;
}

/* How many bytes the parts of the ranges that lie in their common allocation have in common. */
static uint64_t meet_in(const struct memory_chunk *x, const struct memory_range *a,
                        const struct memory_chunk *y, const struct memory_range *b)
{
	const uint64_t a_low = a->low > x->at ? a->low - x->at : 0;
	const uint64_t b_low = b->low > y->at ? b->low - y->at : 0;
	const uint64_t a_high = a->high > x->at ? a->high - x->at : 0;
	const uint64_t b_high = b->high > y->at ? b->high - y->at : 0;
	const uint64_t low = a_low > b_low ? a_low : b_low;
	const uint64_t high = a_high < b_high ? a_high : b_high;

	return low < x->size && low < high ? (high < x->size ? high : x->size) - low : 0;
}

/* What has been found so far. */
struct finding {
	enum alias alias;
	__int128 shift;
	uint64_t bytes;
};

/* An allocation of both memories; whether that settles it. */
static bool take(struct finding *finding, const struct memory_chunk *x, const struct memory_range *a,
                 const struct memory_chunk *y, const struct memory_range *b)
{
	const __int128 shift = (__int128)y->at - x->at;
	const uint64_t bytes = meet_in(x, a, y, b);

	if (!bytes)
		return false;
	if (finding->alias == ALIAS_ONE && shift != finding->shift) {
		finding->alias = ALIAS_MANY;
		return true;
	}
	*finding = (struct finding){ ALIAS_ONE, shift, finding->bytes + bytes };
	return false;
}

/* The first allocation that ends after byte at. */
static uint32_t first_after(const struct memory_chunks *chunks, uint64_t at)
{
	uint32_t low = 0, high = chunks->n;

	while (low < high) {
		const uint32_t middle = low + (high - low) / 2;

		if (chunks->by_place[middle].at + chunks->by_place[middle].size > at)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

uint32_t memory_range_touched(const struct memory_range *range, uint32_t *ret_first)
{
	uint32_t last;

	*ret_first = first_after(range->chunks, range->low);
	if (range->high <= range->low)
		return 0;
	last = first_after(range->chunks, range->high - 1);
	return last - *ret_first + (last < range->chunks->n);
}

const struct memory_chunk *memory_chunks_find(const struct memory_chunks *chunks, uintptr_t id)
{
	uint32_t low = 0, high = chunks->n;

	while (low < high) {
		const uint32_t middle = low + (high - low) / 2;

		if (chunks->by_id[middle].id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low < chunks->n && chunks->by_id[low].id == id ? &chunks->by_id[low] : NULL;
}

/* Of the allocations that a touches, n from `first` on by place. */
static void look_up(struct finding *finding, const struct memory_range *a, uint32_t first, uint32_t n,
                    const struct memory_range *b)
{
	for (uint32_t i = first; i < first + n; i++) {
		const struct memory_chunk *x = &a->chunks->by_place[i],
					  *y = memory_chunks_find(b->chunks, x->id);

		if (y && take(finding, x, a, y, b))
			return;
	}
}

static void walk(struct finding *finding, const struct memory_range *a, const struct memory_range *b)
{
	for (uint32_t i = 0, j = 0; i < a->chunks->n && j < b->chunks->n;) {
		const struct memory_chunk *x = &a->chunks->by_id[i], *y = &b->chunks->by_id[j];

		i += x->id <= y->id;
		j += y->id <= x->id;
		if (x->id == y->id && take(finding, x, a, y, b))
			return;
	}
}

#define LOOK_UP_STEPS 16 /* at most, of an allocation, up to 65536 of them */

/* Whether the ranges have more bytes in common by that shift than their common allocations do. */
static bool is_partial(const struct finding *finding, const struct memory_range *a,
                       const struct memory_range *b)
{
	const __int128 low = (__int128)a->low + finding->shift, high = (__int128)a->high + finding->shift;

	return (high < b->high ? high : b->high) - (low > b->low ? low : b->low) > finding->bytes;
}

enum alias alias_between(const struct memory_range *a, const struct memory_range *b, __int128 *ret_shift)
{
	struct finding finding = { ALIAS_NONE, 0, 0 };
	uint32_t in_a, in_b, first_a, first_b;
	uint64_t most;

	if (!a->chunks || !b->chunks || !atomic_load(&a->chunks->shared) || !atomic_load(&b->chunks->shared))
		return ALIAS_NONE;
	in_a = memory_range_touched(a, &first_a);
	in_b = memory_range_touched(b, &first_b);
	most = (uint64_t)a->chunks->n + b->chunks->n;
	if ((uint64_t)LOOK_UP_STEPS * (in_a < in_b ? in_a : in_b) > most) {
		walk(&finding, a, b);
		overlap_count_steps(most);
	} else if (in_a <= in_b) {
		look_up(&finding, a, first_a, in_a, b);
		overlap_count_steps((uint64_t)LOOK_UP_STEPS * in_a);
	} else {
		look_up(&finding, b, first_b, in_b, a);
		overlap_count_steps((uint64_t)LOOK_UP_STEPS * in_b);
		finding.shift = -finding.shift;
	}
	if (finding.alias != ALIAS_ONE)
		return finding.alias;
	*ret_shift = finding.shift;
	return is_partial(&finding, a, b) ? ALIAS_SOME : ALIAS_ONE;
}
