/* SPDX-License-Identifier: Apache-2.0 */
/* A sorted array of ranges with the maximum of each prefix. */
#include "range_tree.h"

#include <stdlib.h>
#include <string.h>

#define LEAST_ROOM 16

static bool grow(struct range_tree *tree)
{
	size_t room = tree->room ? 2 * tree->room : LEAST_ROOM;
	struct range *ranges = realloc(tree->ranges, room * sizeof *ranges);
	size_t *furthest;

	if (!ranges)
		return false;
	tree->ranges = ranges;
	furthest = realloc(tree->furthest, room * sizeof *furthest);
	if (!furthest)
		return false;
	tree->furthest = furthest;
	tree->room = room;
	return true;
}

/* From entry i on. */
static void update(struct range_tree *tree, size_t i)
{
	for (; i < tree->n; i++) {
		size_t before = i ? tree->furthest[i - 1] : i;

		tree->furthest[i] = tree->ranges[before].end > tree->ranges[i].end ? before : i;
	}
}

/* The first entry that begins after start, or at start and ends after end. */
static size_t upper_bound(const struct range_tree *tree, uint64_t start, uint64_t end)
{
	size_t low = 0, high = tree->n;

	while (low < high) {
		const size_t middle = low + (high - low) / 2;
		const struct range *range = &tree->ranges[middle];

		if (range->start > start || (range->start == start && range->end > end))
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

bool range_tree_add(struct range_tree *tree, uint64_t start, uint64_t size, void *owner)
{
	size_t at;

	if (tree->n == tree->room && !grow(tree))
		return false;
	at = upper_bound(tree, start, start + size);
	memmove(tree->ranges + at + 1, tree->ranges + at, (tree->n - at) * sizeof *tree->ranges);
	tree->ranges[at] = (struct range){ start, start + size, owner };
	tree->n++;
	update(tree, at);
	return true;
}

void range_tree_remove(struct range_tree *tree, uint64_t start, const void *owner)
{
	for (size_t i = range_tree_from(tree, start); i < tree->n && tree->ranges[i].start == start; i++) {
		if (tree->ranges[i].owner != owner)
			continue;
		tree->n--;
		memmove(tree->ranges + i, tree->ranges + i + 1, (tree->n - i) * sizeof *tree->ranges);
		update(tree, i);
		return;
	}
}

const struct range *range_tree_find(const struct range_tree *tree, uint64_t start, uint64_t size)
{
	const size_t n = upper_bound(tree, start, UINT64_MAX);
	const struct range *range;

	if (n == 0)
		return NULL;
	range = &tree->ranges[tree->furthest[n - 1]];
	return start < range->end && size <= range->end - start ? range : NULL;
}

size_t range_tree_from(const struct range_tree *tree, uint64_t start)
{
	return upper_bound(tree, start, 0); /* no range ends at 0 */
}

void range_tree_deinit(struct range_tree *tree)
{
	free(tree->ranges);
	free(tree->furthest);
	*tree = (struct range_tree){ 0 };
}
