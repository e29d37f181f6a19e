/* SPDX-License-Identifier: Apache-2.0 */
/* Words of timelines in memory of this process: 64 bits, aligned to as many, whose value only grows. A point
 * has come when word - value is not negative as a signed number.
 *
 * A waiter sleeps on the futex of the word's low half, which processes share. A device that writes the word
 * wakes nobody, so no sleep is longer than a nap. */
#ifndef PROTO_MEMORY_WORD_H
#define PROTO_MEMORY_WORD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

static inline bool word_has_come(uint64_t word, uint64_t value)
{
	return (int64_t)(word - value) >= 0;
}

/* Makes what this thread has written visible to those that see the value, and wakes all who sleep. Leaves
 * errno alone; a signal handler may call this. */
void word_signal(uint64_t *word, uint64_t value);

/* Returns whether the point has come before the deadline, in milliseconds of the monotonic clock; -1: never.
 */
bool word_wait(const uint64_t *word, uint64_t value, int64_t deadline_ms);

/* Does the same, and returns false within a nap once *stops is true. */
bool word_wait_unless(const atomic_bool *stops, const uint64_t *word, uint64_t value, int64_t deadline_ms);

#endif
