/* SPDX-License-Identifier: Apache-2.0 */
/* Words of timelines in memory of this process: 64 bits, aligned to 8 bytes, whose value only increases. A
 * point has been reached when word - value, as a signed number, is not negative.
 *
 * A waiter sleeps on the futex of the word's low half, which is shared between processes. A device that
 * writes the word wakes nobody, so no sleep is longer than 1 ms.
 */
#ifndef PROTO_MEMORY_WORD_H
#define PROTO_MEMORY_WORD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

static inline bool word_has_come(uint64_t word, uint64_t value)
{
	return (int64_t)(word - value) >= 0;
}

/* Sets the word, makes what this thread has written visible to whoever sees the value, and wakes all sleeping
 * waiters. Preserves errno and may be called from a signal handler. */
void word_signal(uint64_t *word, uint64_t value);

/* Waits until *word has reached value, and returns true. Returns false if it has not by deadline_ms, a time
 * of the monotonic clock in milliseconds (-1: no deadline). */
bool word_wait(const uint64_t *word, uint64_t value, int64_t deadline_ms);

/* Does the same, but also returns false once *stops is true, at the end of a sleep. */
bool word_wait_unless(const atomic_bool *stops, const uint64_t *word, uint64_t value, int64_t deadline_ms);

#endif
