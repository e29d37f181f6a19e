/* SPDX-License-Identifier: Apache-2.0 */
/* Access to clients' memory may fail. Guards and covers protect against SIGBUS; the words of timelines are
 * read and written under a guard.
 *
 * A client's memory can fail under a copy: a hole punched when memory is short, a file that lost its end.
 * Work that touches such memory runs in a guard that names the ranges; a SIGBUS at an address in them, in the
 * thread that runs the guard, comes back as a status, and ends that copy, not the process.
 *
 * Memory that a device has pinned is also touched where no guard can stand: by its driver, which on an H100
 * reads copies of up to 16 KiB from the host itself, in the thread that asks for them. It has a cover: a
 * SIGBUS there, outside of a guard, puts empty memory in the place of the page, and the access goes on. Any
 * other SIGBUS gets the action that was there before.
 *
 * A word of a timeline is 64 bits in a client's memory, that other processes change at any time and may take
 * away. A thread that waits for a word sleeps on the futex of its low half, shared between processes; one
 * that changes a word stores all of it, with release order, and then wakes that futex. Clients say how many
 * sleep there, so nobody is woken but a few at a time: to wake 8000 threads takes 70 ms.
 */
#ifndef KERNELS_HOST_FAULT_H
#define KERNELS_HOST_FAULT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "kernels/engine.h"

struct fault_range {
	const void *start;
	size_t size;
};

/* Installs the handler; the second and later calls only count. Returns 0 or a negative errno. */
int fault_init(void);
void fault_deinit(void);

/* Runs work(arg), which touches n ranges of memory that may fail. Returns false if the memory failed under
 * it, and it was left where it stood; it must own nothing that has to be given back. Guards do not nest. */
bool fault_guard_ranges(const struct fault_range *ranges, uint32_t n, void (*work)(void *arg), void *arg);

/* Does the same for two ranges. */
bool fault_guard(const struct fault_range ranges[2], void (*work)(void *arg), void *arg);

/* A cover is of a mapping. Where that has failed it is no longer the client's memory, and stays so. */
struct fault_cover {
	LIST_ENTRY(fault_cover) entry;
	struct fault_range range; /* range of whole pages */
	size_t page;              /* bytes */
	uint32_t replaced;        /* number of replaced pages */
	atomic_bool has_failed;
};

/* A cover is in use between these two calls, which stand before the first access and after the last. */
void fault_cover_add(struct fault_cover *cover, struct fault_range range, size_t page);
void fault_cover_remove(struct fault_cover *cover);

/* ---- Words of timelines -------------------------------------------------------------------------------- */

/* Returns 1 if a point has come, and all that was written before its word is visible; 0 if it has not, with
 * the low half of the word as it was read in *ret_low; or DEVICE if the memory failed. The word is read once.
 */
int timeline_read(const struct engine_point *point, uint32_t *ret_low);

/* These are the numbers of sleepers that are woken with the signal, then in each further step, and at most
 * for one signal. A call for a few may take long all the same: the kernel searches all that sleep on words of
 * the same hash, a million in 0.3 s. */
#define TIMELINE_WAKE_FIRST 8
#define TIMELINE_WAKE_MORE  64
#define TIMELINE_WAKE_MOST  65536

/* Makes a point come, after all that this thread wrote or has seen, and wakes nobody. Returns 0, or DEVICE if
 * the memory failed. */
int timeline_signal(const struct engine_point *point);

/* Wakes at most n of those that sleep on the word, the longest asleep first, without touching the word.
 * Returns how many were woken: if fewer than n, nobody is left. */
uint32_t timeline_wake(const struct engine_point *point, uint32_t n);

/* Returns how many to wake so that everyone who sleeps on the word now is woken; at most TIMELINE_WAKE_MOST.
 */
uint32_t timeline_wakes(const struct engine_point *point);

/* timeline_note_wake notes how long a wake-up of TIMELINE_WAKE_FIRST for a signal of the owner's took. If it
 * took long, timeline_wakes_are_slow tells so for a second. Any thread may call these. */
void timeline_note_wake(struct engine_owner *owner, uint64_t start_ns, uint64_t end_ns);
bool timeline_wakes_are_slow(const struct engine_owner *owner, uint64_t now_ns);

/* Returns the futex of the word. */
uint32_t *timeline_futex(const struct engine_point *point);

#endif
