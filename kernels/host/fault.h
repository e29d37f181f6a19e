/* SPDX-License-Identifier: Apache-2.0 */
/* Access to clients' memory may fail. Guards and covers protect the process against SIGBUS, and the words of
 * timelines are read and written under a guard.
 *
 * A client's memory can fail in the middle of a copy, because a hole was punched or the file was cut. Work
 * that touches such memory runs under a guard that names the ranges: a SIGBUS at an address in them, in the
 * thread that runs the guard, ends the work and is returned as a status, instead of ending the process.
 *
 * Memory that a device has pinned is also touched where no guard can be set: by the device's driver, which on
 * an H100 reads copies of up to 16 KiB from the host itself, in the thread that asks for them. Such memory
 * has a cover: a SIGBUS there, outside of a guard, replaces the page by empty memory and the access
 * continues. Any other SIGBUS gets the action that was installed before.
 *
 * A word of a timeline is 64 bits in a client's memory, which other processes may change or take away at any
 * time. A thread that waits for a word sleeps on the futex of its low half, which is shared between
 * processes. A thread that changes a word stores all of it with release order, and then wakes that futex. How
 * many threads sleep there is up to clients, so they are woken only a few at a time: waking 8000 threads
 * takes 70 ms.
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

/* fault_init installs the SIGBUS handler, and returns 0 or a negative errno. Calls are counted: the last
 * fault_deinit restores the previous action. */
int fault_init(void);
void fault_deinit(void);

/* Runs work(arg), which touches n ranges of memory that may fail. Returns false if the memory failed; work
 * was then abandoned where it stood, so it must own nothing that has to be released. Guards do not nest. */
bool fault_guard_ranges(const struct fault_range *ranges, uint32_t n, void (*work)(void *arg), void *arg);

/* Does the same for two ranges. */
bool fault_guard(const struct fault_range ranges[2], void (*work)(void *arg), void *arg);

/* A cover of one mapping. Once a page of it has failed and been replaced, that page is not the client's
 * memory any more. */
struct fault_cover {
	LIST_ENTRY(fault_cover) entry;
	struct fault_range range; /* whole pages of the mapping */
	size_t page;              /* bytes of a page */
	uint32_t replaced;        /* number of pages that have been replaced */
	atomic_bool has_failed;
};

/* fault_cover_add must be called before the first access to the range, and fault_cover_remove after the last
 * one. The caller owns the struct. */
void fault_cover_add(struct fault_cover *cover, struct fault_range range, size_t page);
void fault_cover_remove(struct fault_cover *cover);

/* ---- Words of timelines -------------------------------------------------------------------------------- */

/* Reads the word once. Returns 1 if the point has come; everything written before its word is then visible.
 * Returns 0 if it has not come, with the low half of the word in *ret_low, or DEVICE if the memory failed. */
int timeline_read(const struct engine_point *point, uint32_t *ret_low);

/* Maximum numbers of sleepers to wake: with the signal itself, in each further step, and for one signal in
 * all. Even a call that wakes few may take long, because the kernel searches all threads that sleep on words
 * of the same hash, of which it searches a million in 0.3 s. */
#define TIMELINE_WAKE_FIRST 8
#define TIMELINE_WAKE_MORE  64
#define TIMELINE_WAKE_MOST  65536

/* Sets the word to the point's value, after everything that this thread has written or seen, and wakes
 * nobody. Returns 0, or DEVICE if the memory failed. */
int timeline_signal(const struct engine_point *point);

/* Wakes at most n threads that sleep on the word, in the order in which they fell asleep, without touching
 * the word. Returns the number of threads woken: if it is less than n, nobody is left. */
uint32_t timeline_wake(const struct engine_point *point, uint32_t n);

/* Returns how many threads have to be woken so that all that sleep on the word now are among them, at most
 * TIMELINE_WAKE_MOST. */
uint32_t timeline_wakes(const struct engine_point *point);

/* timeline_note_wake records how long it took to wake the first threads for a signal of the owner's. If that
 * took long, timeline_wakes_are_slow returns true for a second. Any thread may call these. */
void timeline_note_wake(struct engine_owner *owner, uint64_t start_ns, uint64_t end_ns);
bool timeline_wakes_are_slow(const struct engine_owner *owner, uint64_t now_ns);

/* Returns the address of the word's low half, on which threads sleep. */
uint32_t *timeline_futex(const struct engine_point *point);

#endif
