/* SPDX-License-Identifier: Apache-2.0 */
/* The scout is a separate process that does to a client's file what could block this process.
 *
 * mmap and munmap wait for a lock of the file while they hold the lock of the whole address space. A client
 * can hold the file's lock for seconds, by mapping its file 60000 times and punching holes in it. If a thread
 * of this process waited for that lock, every thread that maps memory or grows the heap would have to wait as
 * well. A client can also hold the lock of the file's inode for ever, and a thread that waits for it, for
 * instance to add a seal, cannot be killed. The scout has an address space of its own and forks a process for
 * each file, so that only such a process waits. A client can still take the lock between the scout's look and
 * the mapping here, which are some microseconds apart.
 */
#ifndef KERNELS_HOST_SCOUT_H
#define KERNELS_HOST_SCOUT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Starts the scout. Must be called before this process has threads. If the scout was not started or could not
 * be, every file is assumed to be free. */
void scout_start(void);

/* Ends the scout. A process of it that waits for a file remains until the kernel lets it go. */
void scout_stop(void);

/* The part of a user's file that the scout examines. Only a few processes at a time may be kept waiting by
 * one user's files; further requests for that user wait until one of them ends. */
struct scout_part {
	int fd;
	uint64_t user; /* any number that tells users apart */
	uint64_t offset, size;
};

/* Waits until the part can be mapped without waiting for its file. Returns false if that was not so for two
 * seconds, or if *unwanted was set meanwhile (unwanted may be NULL). May be called from any thread. */
bool scout_finds_free(const struct scout_part *part, const atomic_bool *unwanted);

enum scout_seal {
	SCOUT_SEALED,
	SCOUT_SEALED_WITH_HOLE, /* the part has a hole, or pages that were never written */
	SCOUT_REFUSED,          /* the kernel does not seal the file */
	SCOUT_LATE,             /* it took too long, is not wanted any more, or the scout has ended */
};

/* Seals the file against writing and shrinking, so that none of its pages can go any more, and looks for a
 * hole in the part. Without a scout, the calling thread does so itself. May be called from any thread. */
enum scout_seal scout_seal(const struct scout_part *part, const atomic_bool *unwanted);

#endif
