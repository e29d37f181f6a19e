/* SPDX-License-Identifier: Apache-2.0 */
/* Words of timelines: 64 bits in a client's memory, that other processes change at any time and may take
 * away.
 *
 * Who waits for a word sleeps on the futex of its low half, shared between processes; who changes a word
 * stores all of it, with release order, and then wakes that futex. Clients say how many sleep there, so
 * nobody is woken but a few at a time: to wake 8000 threads takes 70 ms.
 */
#ifndef KERNELS_HOST_TIMELINE_H
#define KERNELS_HOST_TIMELINE_H

#include <stdint.h>

#include "kernels/engine.h"

/* Whether a point has come, and all that was written before its word is visible: 1, or 0 with the low half as
 * it was read, or DEVICE: the memory failed. The word is read once. */
int timeline_read(const struct engine_point *point, uint32_t *ret_low);

/* Sleepers woken with the signal; then at a time; and at most, for one signal. A call for a few may take long
 * all the same: the kernel searches all that sleep on words of the same hash, a million in 0.3 s. */
#define TIMELINE_WAKE_FIRST 8
#define TIMELINE_WAKE_MORE  64
#define TIMELINE_WAKE_MOST  65536

/* Makes a point come, after all that this thread wrote or has seen, and wakes nobody; 0, or DEVICE: the
 * memory failed.
 */
int timeline_signal(const struct engine_point *point);

/* Wakes at most n of those that sleep on the word, the longest asleep first; it is not touched. How many:
 * fewer than n, and nobody is left. */
uint32_t timeline_wake(const struct engine_point *point, uint32_t n);

/* How many to wake, so that all are woken who sleep on the word now; at most TIMELINE_WAKE_MOST. */
uint32_t timeline_wakes(const struct engine_point *point);

/* A wake-up of TIMELINE_WAKE_FIRST for a signal of the owner's took so long: one that took long is the next
 * ones' measure for a second. From any thread. */
void timeline_note_wake(struct engine_owner *owner, uint64_t start_ns, uint64_t end_ns);
bool timeline_wakes_are_slow(const struct engine_owner *owner, uint64_t now_ns);

/* The futex of the word. */
uint32_t *timeline_futex(const struct engine_point *point);

#endif
