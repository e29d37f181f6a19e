/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of a submission ring: how requests and their completions, called ends, lie in memory that a
 * client and the service share.
 *
 * The memory is part of a region of the client's. The client writes entries and counts them in `submitted`.
 * The service takes each entry once, and writes the ends in the order in which they occur, counted in `done`.
 * The client reads these, and counts them in `reaped`. Counts increase forever, modulo 2^32; entry or end
 * number i is in slot i % entries. The client must keep submitted - reaped <= entries, so that there is
 * always a free slot for an end.
 *
 * While `awake` is not 0, the service polls `submitted`. Otherwise the client has to send the notification
 * [2, "ring", []] on the connection; between its store to `submitted` and its load of `awake` it needs a full
 * fence. A client that wants to sleep sets `sleeps` to 1, issues a full fence, reads `done` once more, and
 * waits on `done` by a shared futex. The service wakes the client after a store to `done` if `sleeps` is not
 * 0.
 *
 * Everything is little-endian. Counts are stored with release order and loaded with acquire order.
 */
#ifndef PROTO_SUBMISSION_H
#define PROTO_SUBMISSION_H

#include <stddef.h>
#include <stdint.h>

#define SUBMISSION_LEAST_ENTRIES 2
#define SUBMISSION_MOST_ENTRIES  4096 /* the number of entries is a power of two */

#define SUBMISSION_LINE 64 /* bytes of a cache line: the counts of each side have lines of their own */

/* A run of a prepared plan, with the fields of plan_run. */
struct submission_entry {
	uint64_t plan;
	uint64_t dst_region;
	uint64_t dst_offset;
	uint64_t src_region;
	uint64_t src_offset;
	uint64_t tag;      /* chosen by the client, and returned in the end of this entry */
	uint32_t priority; /* enum job_priority; 0: normal */
	uint32_t multiprocessors;
	uint32_t host_threads;
	uint32_t reserved; /* must be 0 */
};

/* The end of an entry: how its run has ended. */
struct submission_end {
	uint64_t tag;
	int64_t status; /* 0 or the code of an error */
	uint64_t bytes; /* bytes read plus bytes written */
	uint64_t ns;    /* the engine's own time, nanoseconds */
};

struct submission_ring {
	/* written by the client */
	_Alignas(SUBMISSION_LINE) uint32_t submitted;
	uint32_t reaped;
	uint32_t sleeps;
	/* written by the service */
	_Alignas(SUBMISSION_LINE) uint32_t done;
	uint32_t awake;
	/* The entries are followed by as many ends (submission_ends). */
	_Alignas(SUBMISSION_LINE) struct submission_entry entry[];
};

_Static_assert(sizeof(struct submission_entry) == 64 && sizeof(struct submission_end) == 32 &&
                   offsetof(struct submission_ring, reaped) == 4 &&
                   offsetof(struct submission_ring, sleeps) == 8 &&
                   offsetof(struct submission_ring, done) == 64 &&
                   offsetof(struct submission_ring, awake) == 68 &&
                   offsetof(struct submission_ring, entry) == 128,
               "as protocol.md says");

/* Returns the bytes of a ring with this many entries. */
static inline size_t submission_bytes(uint32_t entries)
{
	return sizeof(struct submission_ring) +
	       entries * (sizeof(struct submission_entry) + sizeof(struct submission_end));
}

static inline struct submission_end *submission_ends(struct submission_ring *ring, uint32_t entries)
{
	return (struct submission_end *)&ring->entry[entries];
}

#endif
