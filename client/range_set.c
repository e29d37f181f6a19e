/* SPDX-License-Identifier: Apache-2.0 */
/* A sorted array of ranges; furthest[i] is the index of the greatest end among the first i + 1. */
#include "range_set.h"

#include <stdlib.h>
#include <string.h>

#define LEAST_ROOM 16

static bool grow(struct range_set *set)
{
	size_t room = set->room ? 2 * set->room : LEAST_ROOM;
	struct range *ranges = realloc(set->ranges, room * sizeof *ranges);
	size_t *furthest;

	if (!ranges)
		return false;
	set->ranges = ranges;
	furthest = realloc(set->furthest, room * sizeof *furthest);
	if (!furthest)
		return false;
	set->furthest = furthest;
	set->room = room;
	return true;
}

/* Recomputes `furthest` from entry i on. */
static void update(struct range_set *set, size_t i)
{
	for (; i < set->n; i++) {
		size_t before = i ? set->furthest[i - 1] : i;

		set->furthest[i] = set->ranges[before].end > set->ranges[i].end ? before : i;
	}
}

/* Returns the index of the first range that starts after start, or starts there and ends after end. */
static size_t upper_bound(const struct range_set *set, uint64_t start, uint64_t end)
{
	size_t low = 0, high = set->n;

	while (low < high) {
		const size_t middle = low + (high - low) / 2;
		const struct range *range = &set->ranges[middle];

		if (range->start > start || (range->start == start && range->end > end))
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

bool range_set_add(struct range_set *set, uint64_t start, uint64_t size, void *owner)
{
	size_t at;

	if (set->n == set->room && !grow(set))
		return false;
	at = upper_bound(set, start, start + size);
	memmove(set->ranges + at + 1, set->ranges + at, (set->n - at) * sizeof *set->ranges);
	set->ranges[at] = (struct range){ start, start + size, owner };
	set->n++;
	update(set, at);
	return true;
}

void range_set_remove(struct range_set *set, uint64_t start, const void *owner)
{
	for (size_t i = range_set_from(set, start); i < set->n && set->ranges[i].start == start; i++) {
		if (set->ranges[i].owner != owner)
			continue;
		set->n--;
		memmove(set->ranges + i, set->ranges + i + 1, (set->n - i) * sizeof *set->ranges);
		update(set, i);
		return;
	}
}

const struct range *range_set_find(const struct range_set *set, uint64_t start, uint64_t size)
{
	const size_t n = upper_bound(set, start, UINT64_MAX);
	const struct range *range;

	if (n == 0)
		return NULL;
	range = &set->ranges[set->furthest[n - 1]];
	return start < range->end && size <= range->end - start ? range : NULL;
}

size_t range_set_from(const struct range_set *set, uint64_t start)
{
	return upper_bound(set, start, 0); /* No range ends at 0. */
}

void range_set_deinit(struct range_set *set)
{
	free(set->ranges);
	free(set->furthest);
	*set = (struct range_set){ 0 };
}
