/* SPDX-License-Identifier: Apache-2.0 */
/* A client puts runs of prepared plans into a submission ring in shared memory (proto/submission.h), from
 * which the service takes them without a message for each. The service writes a completion (struct
 * submission_end, the "end" of a run) into the same ring.
 *
 * An entry is copied before anything in it is read, and then treated like any other request: the same checks,
 * limits, accounts and time slices apply. While the service is awake, the client need not send the message
 * that rings: after the last entry the service polls for more, at most for the time with which the ring was
 * opened, and then declares that it sleeps. The client can write to all of the ring at any time; whatever it
 * does there harms only its own connection.
 */
#ifndef DAEMON_JOBS_SUBMISSION_H
#define DAEMON_JOBS_SUBMISSION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <uv.h>

#include "proto/status.h"
#include "proto/submission.h"

struct region;
struct service;
struct session;
struct waker;

struct submission {
	struct session *session;
	struct region *region; /* a reference is held */
	struct submission_ring *shared;
	struct relay *relay; /* thread that touches the ring instead of the loop; NULL: the loop does */
	struct waker *waker; /* wakes the client if it sleeps on the ring's word `done` */
	uint32_t entries;    /* number of entries that the ring can hold */
	uint32_t taken;      /* number of entries taken, comparable to the ring's `submitted` */
	uint32_t done;       /* number of completions written; the ring's own `done` is not trusted */
	uint32_t under_way;  /* number of jobs that are under way */
	uint64_t spin_ns;    /* longest time in ns for which the ring stays awake; 0: never */
	uint64_t left_ns;    /* credit for staying awake, in ns, as of active_ns */
	uint64_t active_ns;  /* when an entry last came or ended (uv_hrtime) */
	bool awake;          /* the ring is in service->submissions.awake */
	/* The next entry is handled again, and has been counted as a request already. */
	bool is_again;
	LIST_ENTRY(submission) entry; /* in service->submissions.awake */
};

/* Returns whether the client has rung and the relay has not looked at the ring since, so that nobody knows
 * how many entries are in it. A request that depends on that number waits as for memory (WAIT_MEMORY) and is
 * handled again. Returns false for a session that finishes, which takes no more entries. */
bool submission_is_rung(const struct submission *submission);

/* Returns the number of runs whose end the client cannot see yet: jobs that are under way, and what the
 * ring's relay holds. */
uint32_t submission_count(const struct submission *submission);

/* Opens a ring for a session that has none, at `offset` bytes in a region of host memory. Returns 0 or
 * NO_MEMORY. */
int submission_open(struct session *session, struct region *region, uint64_t offset, uint32_t entries,
                    uint64_t spin_us, struct error *err);

/* Closes and frees the ring, whose jobs must have ended. NULL is allowed. */
void submission_close(struct submission *submission);

/* Stops polling the ring; the next submission_take polls it again. NULL is allowed. */
void submission_stop(struct submission *submission);

/* Takes the entries of the session's ring, as far as limits and time slices allow; does nothing without a
 * ring. This may end the session. */
void submission_take(struct session *session);

/* Does the same after the client has rung. */
void submission_ring(struct session *session);

#endif
