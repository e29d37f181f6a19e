/* SPDX-License-Identifier: Apache-2.0 */
/* Reads, signals and wakes the words of timelines: one atomic access a call, under the guard against memory
 * that fails. */
#include "timeline.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fault.h"
#include "memory.h"

/* A wake-up of a few takes 50 us; after one that took longer than this, the owner's are slow for so long. */
#define SLOW_WAKE_NS  250000
#define SLOW_WAKES_NS 1000000000

/* Else the low half is not where the word is. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words of timelines are little-endian");

struct access {
	uint64_t *word;
	uint64_t value;
};

static uint64_t *word_of(const struct engine_point *point)
{
	return (uint64_t *)(void *)(host_memory(point->memory)->data + point->offset);
}

static bool guarded(const struct engine_point *point, void (*work)(void *arg), struct access *access)
{
	struct fault_range ranges[2] = { host_memory(point->memory)->mapped, { NULL, 0 } };
	return fault_guard(ranges, work, access);
}

static void load(void *arg)
{
	struct access *access = arg;
	access->value = __atomic_load_n(access->word, __ATOMIC_ACQUIRE);
}

static void store(void *arg)
{
	struct access *access = arg;
	__atomic_store_n(access->word, access->value, __ATOMIC_RELEASE);
}

int timeline_read(const struct engine_point *point, uint32_t *ret_low)
{
	struct access access = { word_of(point), 0 };
	if (!guarded(point, load, &access))
		return STATUS_DEVICE;
	*ret_low = (uint32_t)access.value;
	return (int64_t)(access.value - point->value) >= 0;
}

int timeline_signal(const struct engine_point *point)
{
	struct access access = { word_of(point), point->value };
	if (!guarded(point, store, &access))
		return STATUS_DEVICE;
	return 0;
}

/* Memory that has gone away has had its signal, and nobody can sleep on it now. */
uint32_t timeline_wake(const struct engine_point *point, uint32_t n)
{
	long woken = syscall(SYS_futex, timeline_futex(point), FUTEX_WAKE, n, NULL, NULL, 0);
	return woken < 0 ? 0 : (uint32_t)woken;
}

/* A thread that was woken may be asleep again before all have been: it waits for the next value, and goes
 * last. So the sleepers are counted first, by having them requeued to where they are. One of a real-time
 * policy goes first again: hence some more. */
uint32_t timeline_wakes(const struct engine_point *point)
{
	long n = syscall(SYS_futex, timeline_futex(point), FUTEX_REQUEUE, 0, TIMELINE_WAKE_MOST,
	                 timeline_futex(point), 0);
	if (n > 0)
		n += n / 4 + TIMELINE_WAKE_MORE;
	return n < 0 || n > TIMELINE_WAKE_MOST ? TIMELINE_WAKE_MOST : (uint32_t)n;
}

void timeline_note_wake(struct engine_owner *owner, uint64_t start_ns, uint64_t end_ns)
{
	if (end_ns - start_ns > SLOW_WAKE_NS)
		__atomic_store_n(&owner->slow_wakes_until_ns, end_ns + SLOW_WAKES_NS, __ATOMIC_RELAXED);
}

bool timeline_wakes_are_slow(const struct engine_owner *owner, uint64_t now_ns)
{
	return now_ns < __atomic_load_n(&owner->slow_wakes_until_ns, __ATOMIC_RELAXED);
}

uint32_t *timeline_futex(const struct engine_point *point)
{
	return (uint32_t *)(void *)word_of(point);
}
