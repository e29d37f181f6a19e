/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a job had the engine to itself: no job of another stream was under way at any time between its
 * start and its end. Jobs of other processes on the same device are not known of.
 *
 * An engine has one struct, zeroed at first, under the lock that it starts and ends jobs under.
 */
#ifndef KERNELS_QUEUE_CONTENTION_H
#define KERNELS_QUEUE_CONTENTION_H

#include <stdbool.h>
#include <stdint.h>

#define CONTENTION_MET UINT64_MAX

struct contention {
	uint32_t busy; /* streams with a job under way */
	uint64_t met;  /* how many jobs started while another stream was busy */
};

/* A job starts; is_first: its stream was not busy. Returns what contention_end takes. */
static inline uint64_t contention_start(struct contention *contention, bool is_first)
{
	contention->busy += is_first;
	if (contention->busy == 1)
		return contention->met;
	contention->met++;
	return CONTENTION_MET;
}

/* It ends; is_last: its stream is not busy any more. Returns whether it was alone. */
static inline bool contention_end(struct contention *contention, uint64_t since, bool is_last)
{
	contention->busy -= is_last;
	return since == contention->met;
}

#endif
