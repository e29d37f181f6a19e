/* SPDX-License-Identifier: Apache-2.0 */
/* A submission ring: how requests and their ends lie in memory that a client and the service share.
 *
 * The memory is a part of a region of the client's. The client writes entries and counts them in `submitted`;
 * the service takes each once, and writes their ends, in whatever order they end, counted in `done`, which
 * the client reads and counts in `reaped`. Counts go on for ever, modulo 2^32; slot i % entries holds entry,
 * or end, number i. A client keeps submitted - reaped <= entries, so that there is always room for an end.
 *
 * The service looks at `submitted` by itself while `awake` is not 0. Else the client rings: it sends the
 * notification [2, "ring", []] on the connection, after a full fence between its store to `submitted` and its
 * load of `awake`. A client that sleeps sets `sleeps` to 1, fences, looks at `done` once more, and waits on
 * `done` by futex (shared, not private); the service wakes it after a store to `done` when `sleeps` is not 0.
 *
 * Everything is little-endian; counts are stored with release and loaded with acquire order.
 */
#ifndef PROTO_SUBMISSION_H
#define PROTO_SUBMISSION_H

#include <stddef.h>
#include <stdint.h>

#define SUBMISSION_LEAST_ENTRIES 2
#define SUBMISSION_MOST_ENTRIES  4096 /* a power of two, as every number of entries */

#define SUBMISSION_LINE 64 /* each side's counts have cache lines of their own */

/* A run of a prepared plan, as plan_run's fields. */
struct submission_entry {
	uint64_t plan;
	uint64_t dst_region;
	uint64_t dst_offset;
	uint64_t src_region;
	uint64_t src_offset;
	uint64_t tag;      /* of the client's choice; comes back in its end */
	uint32_t priority; /* enum job_priority; 0: normal */
	uint32_t multiprocessors;
	uint32_t host_threads;
	uint32_t reserved; /* 0 */
};

/* How an entry ended. */
struct submission_end {
	uint64_t tag;
	int64_t status; /* 0, or the code of an error */
	uint64_t bytes; /* read plus written */
	uint64_t ns;    /* the engine's own time */
};

struct submission_ring {
	/* The client's. */
	_Alignas(SUBMISSION_LINE) uint32_t submitted;
	uint32_t reaped;
	uint32_t sleeps;
	/* The service's. */
	_Alignas(SUBMISSION_LINE) uint32_t done;
	uint32_t awake;
	/* Then the entries, and then the ends. */
	_Alignas(SUBMISSION_LINE) struct submission_entry entry[];
};

_Static_assert(sizeof(struct submission_entry) == 64 && sizeof(struct submission_end) == 32 &&
                   offsetof(struct submission_ring, reaped) == 4 &&
                   offsetof(struct submission_ring, sleeps) == 8 &&
                   offsetof(struct submission_ring, done) == 64 &&
                   offsetof(struct submission_ring, awake) == 68 &&
                   offsetof(struct submission_ring, entry) == 128,
               "as protocol.md says");

/* Bytes of a ring of so many entries. */
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
