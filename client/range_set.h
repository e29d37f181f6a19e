/* SPDX-License-Identifier: Apache-2.0 */
/* A set of address ranges, each with an owner. Ranges may overlap. A search takes logarithmic time. Adding or
 * removing a range moves the entries behind it. There are none if ranges are added in ascending order.
 *
 * The ranges are an array sorted by start, and each entry knows which range up to and including itself has
 * the greatest end. If any range contains a span, then so does the one with the greatest end among those that
 * start at or before the span.
 */
#ifndef CLIENT_RANGE_SET_H
#define CLIENT_RANGE_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct range {
	uint64_t start;
	uint64_t end; /* one past the last byte */
	void *owner;
};

/* A zero-initialized set is empty. */
struct range_set {
	struct range *ranges; /* ascending by start, then by end */
	/* furthest[i]: index of the range with the greatest end among ranges[0] to ranges[i] */
	size_t *furthest;
	size_t n;
	size_t room;
};

/* Adds a range; size must not be 0. Returns false, and adds nothing, if out of memory. */
bool range_set_add(struct range_set *set, uint64_t start, uint64_t size, void *owner);

/* Removes the range of this owner that starts at start. Does nothing if there is none. */
void range_set_remove(struct range_set *set, uint64_t start, const void *owner);

/* Returns a range that contains [start, start + size), or NULL. The result is valid until the set changes. */
const struct range *range_set_find(const struct range_set *set, uint64_t start, uint64_t size);

/* Returns the index of the first range that starts at or after start, or n if there is none. */
size_t range_set_from(const struct range_set *set, uint64_t start);

void range_set_deinit(struct range_set *set);

#endif
