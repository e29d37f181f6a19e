/* SPDX-License-Identifier: Apache-2.0 */
/* A SIGBUS inside a copy ends that copy, not the process.
 *
 * A client's memory can fail under a copy: a hole punched when memory is short, a file that lost its end.
 * Work that touches such memory runs in a guard that names the ranges; a SIGBUS at an address in them, in the
 * thread that runs the guard, comes back as a status. Any other SIGBUS gets the action that was there before.
 */
#ifndef KERNELS_HOST_FAULT_H
#define KERNELS_HOST_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

#endif
