/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that the service's process, the front, shares with a child that runs an engine for it: a ring in
 * each direction, and words by which either side sees how the other one is.
 *
 * Both run the same program, so a struct has one layout; that is checked when the child starts (wire.h). A
 * side that sleeps is woken by a futex (the child) or an eventfd (the front, whose thread also waits for the
 * child's end).
 */
#ifndef KERNELS_PROCESS_SHARED_H
#define KERNELS_PROCESS_SHARED_H

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "kernels/engine.h"
#include "ring.h"

/* Calls that map or unmap memory at once, each on a socket of its own. */
#define SHARED_CALLS 64

/* What has become of a request to cancel a job. In the bits below those of its number. */
enum shared_cancel {
	CANCEL_ASKED,
	CANCEL_TAKEN,     /* the child is asking the engine */
	CANCEL_WITHDRAWN, /* the front has not waited: nothing was asked of the engine */
	CANCEL_DONE,      /* it has not started, and ends as CANCELED */
	CANCEL_REFUSED,
};
#define SHARED_CANCEL_BITS 3

/* These are the counts of tensor maps or plans (struct engine_cache_stats). */
struct shared_stats {
	atomic_uint_fast64_t hits, misses, evictions, entries;
};

struct shared {
	struct ring_positions to_child, to_front;

	/* The child sleeps on the word, which changes when there is something for it. */
	_Alignas(64) atomic_uint bell;
	atomic_bool child_sleeps;

	_Alignas(64)
	    atomic_bool front_sleeps; /* wants the eventfd to be written when something has come back */

	/* A request to cancel: its number, and what has become of it. The front waits for a change. */
	_Alignas(64) atomic_uint cancel;

	/* Probes: the number of the last, and of the last that the child has answered, as it says. */
	_Alignas(64) atomic_uint asked;
	atomic_uint answered;
	int probe_status;
	char probe_text[256];

	atomic_bool is_lost; /* the engine: the child has said so, why, and ends */
	char lost_why[256];

	struct shared_stats maps, plans; /* as of late */
	atomic_uint_fast64_t keep_plans; /* how many plans the child keeps */
	atomic_bool tunes;               /* whether the child tries alternatives to them */

	atomic_bool unwanted[SHARED_CALLS]; /* what the call maps (engine_handle) */
};

/* Where in the file what lies. */
#define SHARED_TO_CHILD_AT ((uint64_t)1 << 16)
#define SHARED_TO_FRONT_AT (SHARED_TO_CHILD_AT + RING_ROOM)
#define SHARED_FILE_BYTES  (SHARED_TO_FRONT_AT + RING_ROOM)

_Static_assert(sizeof(struct shared) <= SHARED_TO_CHILD_AT, "the words lie before the rings");

static inline void shared_wake(atomic_uint *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* Until the word has another value, or is woken, or it is that late; 0: however late. */
static inline void shared_sleep(atomic_uint *word, unsigned value, uint64_t ns)
{
	const struct timespec limit = { (time_t)(ns / 1000000000), (long)(ns % 1000000000) };

	syscall(SYS_futex, word, FUTEX_WAIT, value, ns ? &limit : NULL, NULL, 0);
}

/* There is something for the child. From any thread of either process. */
static inline void shared_ring(struct shared *shared)
{
	atomic_fetch_add(&shared->bell, 1);
	if (atomic_load(&shared->child_sleeps) && atomic_exchange(&shared->child_sleeps, false))
		shared_wake(&shared->bell);
}

static inline void shared_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

#endif
