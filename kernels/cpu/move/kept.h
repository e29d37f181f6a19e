/* SPDX-License-Identifier: Apache-2.0 */
/* A layout's plan (cpu_plan.h) keeps what its moves have planned, for all later moves and all threads: plans
 * of loop nests and of kinds of tiles, tables of offsets, which axes are windows.
 *
 * A plan is found by its key, whose bytes are all that it depends on beside the layout. Neither names memory
 * that is moved. Plans are only added, and are freed together. Threads find and add plans without a lock;
 * kept_forget is called when no other thread uses them.
 */
#ifndef KERNELS_CPU_MOVE_KEPT_H
#define KERNELS_CPU_MOVE_KEPT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

/* This is a power of two, so that a remainder is a mask. Other numbers were not measured. */
#define KEPT_CHAINS 16

/* A layout keeps so many bytes at most: 30 kinds of tiles, or a few thousand loop nests. Other sizes were not
 * measured. */
#define KEPT_MOST (2 << 20)

struct kept_node;

/* This begins as zeros, but for room. */
struct kept_plans {
	_Atomic(struct kept_node *) chain[KEPT_CHAINS];
	atomic_llong bytes;
	atomic_llong *room;  /* So many bytes may still be kept for the engine's layouts. NULL: none. */
	atomic_uint planned; /* how many times something was planned for the layout; tests read it */
};

/* Each key begins with what it is the key of. */
enum kept_kind {
	KEPT_MOVE,
	KEPT_OFFSETS,
	KEPT_TILE,
	KEPT_WINDOWS,
};

/* Counts what is planned. kept may be NULL. */
static inline void kept_count(struct kept_plans *kept)
{
	if (kept)
		atomic_fetch_add_explicit(&kept->planned, 1, memory_order_relaxed);
}

/* Hashes a key of n bytes. */
uint64_t kept_hash(const void *key, size_t n);

/* Returns the plan with that key, which stays until kept_forget; NULL: there is none. kept may be NULL. */
const void *kept_find(const struct kept_plans *kept, const void *key, size_t n, uint64_t hash);

/* Keeps a copy of a plan, if there is room: from then on every thread finds it. Two threads may both give one
 * with the same key. kept may be NULL. */
void kept_add(struct kept_plans *kept, const void *key, size_t n, uint64_t hash, const void *plan,
              size_t bytes);

/* Frees all plans. Nobody may use them any more. */
void kept_forget(struct kept_plans *kept);

#endif
