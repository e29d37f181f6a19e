/* SPDX-License-Identifier: Apache-2.0 */
/* The scout is a process that does to a client's file what could keep this one waiting.
 *
 * mmap and munmap wait for a lock of the file while they hold the lock of the whole address space. A client
 * can keep the former for seconds: it maps its file 60000 times, and punches holes in it. Whoever waits for
 * that here keeps everybody waiting who maps memory, or grows the heap. A client can hold the lock of the
 * file's inode for ever, and a thread that waits for it, as to add a seal does, cannot be killed. The scout
 * has an address space of its own, and a process of its own for each file, so it alone waits. The lock may
 * still be taken between the scout's look and the mapping here, which is some microseconds.
 */
#ifndef KERNELS_HOST_SCOUT_H
#define KERNELS_HOST_SCOUT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Starts the scout. Must be called before this process has threads. If that fails, or it was never called,
 * every file is taken for free. */
void scout_start(void);

/* Ends the scout. If a file keeps one of its processes waiting, that stays until the kernel lets it go. */
void scout_stop(void);

/* The scout looks at a part of a user's file. Only a few of its processes at a time may be kept waiting by
 * one user's files; requests for that user wait for one of them to end. */
struct scout_part {
	int fd;
	uint64_t user; /* any number that tells users apart */
	uint64_t offset, size;
};

/* Waits until the part could be mapped at once. False means that it could not for two seconds, or that
 * *unwanted was set meanwhile (unwanted may be NULL). It may be called from any thread. */
bool scout_finds_free(const struct scout_part *part, const atomic_bool *unwanted);

enum scout_seal {
	SCOUT_SEALED,
	SCOUT_SEALED_WITH_HOLE, /* that part of the file has a hole, or pages that were never written */
	SCOUT_REFUSED,          /* the kernel does not seal the file */
	SCOUT_LATE,             /* it took too long, it is not wanted any more, or the scout has ended */
};

/* Has the file sealed against writing and shrinking, after which no page of it can go, and looks for a hole
 * in the part. Without a scout this thread does it. It may be called from any thread. */
enum scout_seal scout_seal(const struct scout_part *part, const atomic_bool *unwanted);

#endif
