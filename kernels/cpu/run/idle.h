/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that have no work: how they wait, and which of them is called when work comes.
 *
 * A thread first looks whether it has been called, for a moment, and then sleeps. The one that ran out of
 * work last is called first: most likely it still looks, which makes a call a store instead of a system call,
 * and its caches are the warmest. The others sleep on undisturbed. Who calls decides how many come, so
 * threads that come at once do not meet where there is nothing left.
 */
#ifndef KERNELS_CPU_RUN_IDLE_H
#define KERNELS_CPU_RUN_IDLE_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/queue.h>

enum idle_state {
	IDLE_CALLED, /* or never waited */
	IDLE_LOOKING,
	IDLE_ASLEEP
};

/* One thread's place; the thread embeds it, zeroed. */
struct idle_thread {
	atomic_uint state; /* its futex; enum idle_state */
	SLIST_ENTRY(idle_thread) entry;
};

SLIST_HEAD(idle_threads, idle_thread);

/* Those that wait, the last one first. Zeroed: none. */
struct idle {
	struct idle_threads threads;
	unsigned n;
};

/* ---- Under one lock --------------------------------------------------------------------------------- */

/* The thread waits from now on; it goes to idle_wait. */
void idle_add(struct idle *idle, struct idle_thread *thread);

/* Calls up to n of those that wait, of which at most most_asleep sleep; gives back how many. Those that sleep
 * are added to *asleep, for idle_wake; the others are on their way. */
unsigned idle_call(struct idle *idle, unsigned n, unsigned most_asleep, struct idle_threads *asleep);

/* ---- Without it -------------------------------------------------------------------------------------- */

/* Wakes those that were called asleep. */
void idle_wake(struct idle_threads *asleep);

/* The thread that was added, until it is called: it looks for awake_ns, and yields its CPU to whoever else
 * wants it meanwhile, and then sleeps. */
void idle_wait(struct idle_thread *thread, uint64_t awake_ns);

#endif
