/* SPDX-License-Identifier: Apache-2.0 */
/* Which transforms and plans the child has: each pair is sent once, and jobs name it by number.
 *
 * An owner uses the same pair for many jobs. It is found by where it lies, and compared with what was sent
 * unless a job under way uses it: until that ends it cannot have changed.
 */
#ifndef KERNELS_PROCESS_LAYOUTS_H
#define KERNELS_PROCESS_LAYOUTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "numbers.h"
#include "wire.h"

#define LAYOUTS_IDLE    256 /* that no job under way uses, kept */
#define LAYOUTS_BUCKETS 1024

struct layout {
	const struct transform *transform;
	const struct plan *plan;
	uint32_t refs; /* of jobs under way */
	LIST_ENTRY(layout) bucket;
	TAILQ_ENTRY(layout) idle;
	struct wire_layout sent; /* and its number */
};

/* Zeroed but for the list. */
struct layouts {
	struct numbers numbers;
	uint32_t n_idle;
	TAILQ_HEAD(, layout) idle; /* longest first */
	LIST_HEAD(, layout) bucket[LAYOUTS_BUCKETS];
};

void layouts_init(struct layouts *layouts);

void layouts_deinit(struct layouts *layouts);

/* A reference; *ret_is_new: the child does not have it. NULL: out of memory. */
struct layout *layouts_get(struct layouts *layouts, const struct transform *transform,
                           const struct plan *plan, bool *ret_is_new);

/* Of one that a job under way refers to. */
uint32_t layouts_number(struct layouts *layouts, const struct transform *transform, const struct plan *plan);

/* Gives a reference back. Returns the number of a layout that the child is to forget, or WIRE_NONE. */
uint32_t layouts_put(struct layouts *layouts, const struct transform *transform, const struct plan *plan);

/* The child has gone: all of them, and the references. */
void layouts_forget(struct layouts *layouts);

#endif
