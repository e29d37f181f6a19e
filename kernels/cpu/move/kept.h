/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps what the moves of a layout have planned, in the layout's plan (cpu_plan.h), for all later moves and
 * all threads: plans of loop nests and of kinds of tiles, tables of offsets, and which axes are windows.
 *
 * A plan is found by its key, whose bytes are everything that the plan depends on besides the layout. Neither
 * plan nor key names memory that is moved. Plans are only added, and are freed all together. Threads find and
 * add plans without a lock; kept_forget must be called only when no other thread uses them.
 */
#ifndef KERNELS_CPU_MOVE_KEPT_H
#define KERNELS_CPU_MOVE_KEPT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

/* A power of two, so that the remainder is a mask. Other numbers were not measured. */
#define KEPT_CHAINS 16

/* Maximum number of bytes that a layout keeps: enough for 30 kinds of tiles or a few thousand loop nests.
 * Other sizes were not measured. */
#define KEPT_MOST (2 << 20)

struct kept_node;

/* The plans that a layout keeps. All fields but `room` begin as zeros. */
struct kept_plans {
	_Atomic(struct kept_node *) chain[KEPT_CHAINS];
	atomic_llong bytes;
	/* Bytes that may still be kept for all layouts of the engine; NULL: nothing is kept. */
	atomic_llong *room;
	atomic_uint planned; /* number of times that something was planned for the layout; read by tests */
};

/* The first field of each key, which says what kind of plan has that key. */
enum kept_kind {
	KEPT_MOVE,
	KEPT_OFFSETS,
	KEPT_TILE,
	KEPT_WINDOWS,
};

/* Counts one more thing that was planned. kept may be NULL. */
static inline void kept_count(struct kept_plans *kept)
{
	if (kept)
		atomic_fetch_add_explicit(&kept->planned, 1, memory_order_relaxed);
}

/* Returns the hash of a key of n bytes. */
uint64_t kept_hash(const void *key, size_t n);

/* Returns the plan with that key, which stays valid until kept_forget, or NULL if there is none. kept may be
 * NULL. */
const void *kept_find(const struct kept_plans *kept, const void *key, size_t n, uint64_t hash);

/* Keeps a copy of a plan of `bytes` bytes if the limits allow that; every thread can then find it. Two
 * threads may both add a plan with the same key. kept may be NULL. */
void kept_add(struct kept_plans *kept, const void *key, size_t n, uint64_t hash, const void *plan,
              size_t bytes);

/* Frees all plans. No thread may use them any more. */
void kept_forget(struct kept_plans *kept);

#endif
