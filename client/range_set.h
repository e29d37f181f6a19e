/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges of addresses, each with what it stands for; they may overlap. A search takes logarithmic time;
 * adding and removing move what lies behind, which is nothing where addresses ascend.
 *
 * The ranges are an array in the order of their starts, and each entry knows which range up to it reaches
 * furthest: if any range holds a span, then so does the one that reaches furthest among those that begin at
 * its start or before.
 */
#ifndef CLIENT_RANGE_SET_H
#define CLIENT_RANGE_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct range {
	uint64_t start;
	uint64_t end; /* the byte after the last */
	void *owner;
};

/* Zero-initialised: empty. */
struct range_set {
	struct range *ranges; /* ascending by start, then by end */
	size_t *furthest;     /* of ranges[0] to this one: which one has the greatest end */
	size_t n;
	size_t room;
};

/* false: out of memory, and nothing was added. size > 0. */
bool range_set_add(struct range_set *set, uint64_t start, uint64_t size, void *owner);

/* Removes this owner's range of that start; it does nothing when there is none. */
void range_set_remove(struct range_set *set, uint64_t start, const void *owner);

/* A range that holds all of [start, start + size); NULL when there is none. Valid until the set changes. */
const struct range *range_set_find(const struct range_set *set, uint64_t start, uint64_t size);

/* The index of the first range that begins at start or later; n when there is none. */
size_t range_set_from(const struct range_set *set, uint64_t start);

void range_set_deinit(struct range_set *set);

#endif
