/* SPDX-License-Identifier: Apache-2.0 */
/* The happens-before order of a cluster's threads and of its barriers' phases.
 *
 * Every actor (a thread or a barrier) has a clock. An event is identified by a stamp: its actor and that
 * actor's clock. A thread knows of an event if a barrier, a __syncthreads or the like orders it after the
 * event. Writes that their thread has fenced for the TMA unit are tracked separately: only those whom a later
 * message of that thread reaches know them as fenced.
 */
#ifndef TESTS_SOFTGPU_MODEL_ORDER_H
#define TESTS_SOFTGPU_MODEL_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#define ORDER_CLOCK_BITS   20
#define ORDER_MAX_BARRIERS 128 /* barriers of a cluster over its lifetime */

/* 0: no event */
typedef uint32_t order_stamp;

static inline uint32_t order_actor(order_stamp stamp)
{
	return stamp >> ORDER_CLOCK_BITS;
}

/* What a thread, or a message between threads, knows: for each actor, the clock below which all events are
 * known. */
struct order_view;

/* Starts a new order. Returns false if out of memory or if there are too many threads. */
bool order_reset(uint32_t blocks, uint32_t block_threads);
void order_free(void);

/* Returns the stamp of the actor's current event. order_is_worn returns whether a clock has overflowed. */
order_stamp order_now(uint32_t actor);
bool order_is_worn(void);

bool order_knows(uint32_t thread, order_stamp stamp);
bool order_knows_fenced(uint32_t thread, order_stamp stamp);

/* Returns whether the actor has fenced since that event of its own. */
bool order_has_fenced(order_stamp stamp);

/* Fences what the thread did until now: it is visible to the unit, for everyone who learns of the fence. */
void order_fence(uint32_t thread);

/* Makes the actor of barrier number (below ORDER_MAX_BARRIERS) and returns it. The barrier has two views:
 * what the arrivals of the current phase released, and what the ended phases released. */
uint32_t order_barrier_new(uint32_t number);
void order_arrive(uint32_t thread, uint32_t number);
void order_phase_end(uint32_t number);
void order_wait(uint32_t thread, uint32_t number);

/* All threads of a block, or of the cluster, learn what each of them knows. Only threads for which alive
 * returns true take part. */
void order_meet_block(uint32_t block, bool (*alive)(uint32_t thread));
void order_meet_cluster(bool (*alive)(uint32_t thread));
/* Does the same for n threads of one block. */
void order_meet(const uint32_t *threads, uint32_t n);

#endif
