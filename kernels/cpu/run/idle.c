/* SPDX-License-Identifier: Apache-2.0 */
/* A thread's state is the word that it sleeps on. Only the thread itself goes from looking to asleep; a
 * caller ends either. A thread that sleeps stays so until idle_wake, and only then uses its entry again. */
#include "idle.h"

#include <linux/futex.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/clock.h"

static bool change(struct idle_thread *thread, unsigned from, unsigned to)
{
	return atomic_compare_exchange_strong(&thread->state, &from, to);
}

static unsigned state_of(struct idle_thread *thread)
{
	return atomic_load_explicit(&thread->state, memory_order_acquire);
}

void idle_add(struct idle *idle, struct idle_thread *thread)
{
	atomic_store_explicit(&thread->state, IDLE_LOOKING, memory_order_relaxed);
	SLIST_INSERT_HEAD(&idle->threads, thread, entry);
	idle->n++;
}

unsigned idle_call(struct idle *idle, unsigned n, unsigned most_asleep, struct idle_threads *asleep)
{
	unsigned called = 0;
	for (struct idle_thread *thread; called < n && (thread = SLIST_FIRST(&idle->threads)); called++) {
		/* Looking, it may be on its way before it has left the list; it needs the lock to come back.
		 */
		bool sleeps = !change(thread, IDLE_LOOKING, IDLE_CALLED);
		if (sleeps && most_asleep == 0)
			break;
		SLIST_REMOVE_HEAD(&idle->threads, entry);
		idle->n--;
		if (!sleeps)
			continue;
		SLIST_INSERT_HEAD(asleep, thread, entry);
		most_asleep--;
	}
	return called;
}

void idle_wake(struct idle_threads *asleep)
{
	for (struct idle_thread *thread; (thread = SLIST_FIRST(asleep));) {
		SLIST_REMOVE_HEAD(asleep, entry);
		atomic_store_explicit(&thread->state, IDLE_CALLED, memory_order_release);
		syscall(SYS_futex, &thread->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	}
}

void idle_wait(struct idle_thread *thread, uint64_t awake_ns)
{
	for (uint64_t end = awake_ns ? clock_ns() + awake_ns : 0;
	     end && state_of(thread) == IDLE_LOOKING && clock_ns() < end;)
		sched_yield();
	if (!change(thread, IDLE_LOOKING, IDLE_ASLEEP))
		return;
	while (state_of(thread) == IDLE_ASLEEP)
		syscall(SYS_futex, &thread->state, FUTEX_WAIT_PRIVATE, IDLE_ASLEEP, NULL, NULL, 0);
}
