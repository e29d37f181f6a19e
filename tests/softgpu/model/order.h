/* SPDX-License-Identifier: Apache-2.0 */
/* Who knows of what: the happens-before order of a cluster's threads and of its barriers' phases.
 *
 * Every actor (a thread, or a barrier) has a clock. An event is a stamp: its actor and the clock's value. A
 * thread knows of an event when a barrier, a __syncthreads or the like leads from there to it. What a thread
 * wrote and then fenced for the unit is kept apart: it is known as fenced only by those whom the fence's news
 * reached.
 */
#ifndef TESTS_SOFTGPU_MODEL_ORDER_H
#define TESTS_SOFTGPU_MODEL_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#define ORDER_CLOCK_BITS   20
#define ORDER_MAX_BARRIERS 128 /* of a cluster, over its life */

/* 0 is no event. */
typedef uint32_t order_stamp;

static inline uint32_t order_actor(order_stamp stamp)
{
	return stamp >> ORDER_CLOCK_BITS;
}

/* What a thread, or a message between threads, knows: clocks below which everything is known. */
struct order_view;

/* A fresh start. false: no memory, or too many. */
bool order_reset(uint32_t blocks, uint32_t block_threads);
void order_free(void);

/* The actor's event of now. A clock that ran over is noticed by order_is_worn. */
order_stamp order_now(uint32_t actor);
bool order_is_worn(void);

bool order_knows(uint32_t thread, order_stamp stamp);
bool order_knows_fenced(uint32_t thread, order_stamp stamp);

/* Whether the actor has fenced since that event of its own. */
bool order_has_fenced(order_stamp stamp);

/* What the thread did until now is visible to the unit, for all who hear of it. */
void order_fence(uint32_t thread);

/* Barrier number (below ORDER_MAX_BARRIERS): its actor, new, with two views: what this phase's arrivals say,
 * and what the phases that ended said. */
uint32_t order_barrier_new(uint32_t number);
void order_arrive(uint32_t thread, uint32_t number);
void order_phase_end(uint32_t number);
void order_wait(uint32_t thread, uint32_t number);

/* All threads of a block, or of the cluster, know what each of them knows. alive(thread): those that count.
 */
void order_meet_block(uint32_t block, bool (*alive)(uint32_t thread));
void order_meet_cluster(bool (*alive)(uint32_t thread));
/* The same for n threads of one block. */
void order_meet(const uint32_t *threads, uint32_t n);

#endif
