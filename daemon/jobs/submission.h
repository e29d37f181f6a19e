/* SPDX-License-Identifier: Apache-2.0 */
/* A client puts runs of prepared plans into a submission ring in shared memory (proto/submission.h), from
 * which the service takes them without a message for each.
 *
 * An entry is copied before anything in it is read, and then treated like any other request: the same checks,
 * limits, accounts and time slices. While the service is awake, the client need not ring: after the last
 * entry the service polls for more, at most for the time with which the ring was opened, and then declares
 * that it sleeps. The client can write to all of the ring at any time; whatever it does there harms only its
 * own connection.
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
	struct relay *relay; /* the thread that touches the ring instead of the loop; NULL: the loop does */
	struct waker *waker; /* for clients that sleep on `done` */
	uint32_t entries;
	uint32_t taken;     /* entries taken, as counted by `submitted` */
	uint32_t done;      /* own copy of the ring's `done`, which is not trusted */
	uint32_t under_way; /* jobs that are under way */
	uint64_t spin_ns;
	uint64_t left_ns;   /* credit for staying awake, at active_ns */
	uint64_t active_ns; /* when an entry last came or ended */
	bool awake;         /* the ring is in service->submissions.awake */
	/* The next entry has been counted already, because it is taken once more. */
	bool is_again;
	LIST_ENTRY(submission) entry;
};

/* Returns whether the client has rung and the relay has not looked at the ring since, so that nobody knows
 * how many entries are in it. A request that waits for that, as for memory (WAIT_MEMORY), is handled again. A
 * session that finishes takes no more entries, and its ring is never rung. */
bool submission_is_rung(const struct submission *submission);

/* Counts the runs that have not ended for the client: jobs that are under way, and what the ring's relay
 * holds. */
uint32_t submission_count(const struct submission *submission);

/* Opens a ring for a session that has none, in host memory of a region. Returns 0 or NO_MEMORY. */
int submission_open(struct session *session, struct region *region, uint64_t offset, uint32_t entries,
                    uint64_t spin_us, struct error *err);

/* Closes the ring, whose jobs must have ended. NULL is allowed. */
void submission_close(struct submission *submission);

/* Puts the ring to sleep until the client rings again. NULL is allowed. */
void submission_stop(struct submission *submission);

/* Takes the entries of the session's ring, as far as limits and time slices allow; does nothing without a
 * ring. This may end the session. */
void submission_take(struct session *session);

/* Does the same when the client has said that there are entries. */
void submission_ring(struct session *session);

#endif
