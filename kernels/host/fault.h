/* SPDX-License-Identifier: Apache-2.0 */
/* A SIGBUS inside a copy ends that copy, not the process.
 *
 * A client's memory can fail under a copy: a hole punched when memory is short, a file that lost its end.
 * Work that touches such memory runs in a guard that names the ranges; a SIGBUS at an address in them, in the
 * thread that runs the guard, comes back as a status.
 *
 * Memory that a device has pinned is also touched where no guard can stand: by its driver, which on an H100
 * reads copies of up to 16 KiB from the host itself, in the thread that asks for them. It has a cover: a
 * SIGBUS there, outside of a guard, puts empty memory in the place of the page, and the access goes on. Any
 * other SIGBUS gets the action that was there before.
 */
#ifndef KERNELS_HOST_FAULT_H
#define KERNELS_HOST_FAULT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct fault_range {
	const void *start;
	size_t size;
};

/* Installs the handler; the second and later calls only count. 0 or negative errno. */
int fault_init(void);
void fault_deinit(void);

/* Runs work(arg), which touches n ranges of memory that may fail. false: the memory failed under it, and it
 * was left where it stood; it must own nothing that has to be given back. Guards do not nest. */
bool fault_guard_ranges(const struct fault_range *ranges, uint32_t n, void (*work)(void *arg), void *arg);

/* The same for two ranges. */
bool fault_guard(const struct fault_range ranges[2], void (*work)(void *arg), void *arg);

/* A mapping that is covered. Where it has failed it is no longer the client's memory, and stays so. */
struct fault_cover {
	LIST_ENTRY(fault_cover) entry;
	struct fault_range range; /* of whole pages */
	size_t page;              /* bytes */
	uint32_t replaced;        /* pages */
	atomic_bool has_failed;
};

/* Between the two the cover is in use: from before the first access to after the last. */
void fault_cover_add(struct fault_cover *cover, struct fault_range range, size_t page);
void fault_cover_remove(struct fault_cover *cover);

#endif
