/* Submission rings: runs of prepared plans that a client puts into shared memory (proto/submission.h), taken
 * without a message each.
 *
 * An entry is copied before anything of it is looked at, and then is a request like any other: the same
 * checks, limits, accounts and turns. While the service is awake, nobody rings: after the last entry it looks
 * for more by itself, for as long as the ring was opened with at most, and then says that it sleeps. The
 * client can write to all of the ring at any time; whatever it does there is its own connection's matter.
 */
#ifndef DAEMON_RESOURCE_SUBMISSION_H
#define DAEMON_RESOURCE_SUBMISSION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <uv.h>

#include "proto/status.h"
#include "proto/submission.h"

struct region;
struct server;
struct session;
struct waker;

struct submission {
	struct session *session;
	struct region *region; /* held */
	struct submission_ring *shared;
	struct waker *waker; /* of who sleeps on its `done` */
	uint32_t entries;
	uint32_t taken;     /* from `submitted` */
	uint32_t done;      /* as the shared one, which is not believed */
	uint32_t under_way; /* jobs */
	uint64_t spin_ns;
	uint64_t left_ns;   /* that it can stay awake for, at active_ns */
	uint64_t active_ns; /* when something last came or ended */
	bool awake;         /* in submissions->awake */
	LIST_ENTRY(submission) entry;
};

/* Of the server: the rings that are looked at, between the loop's turns. */
struct submissions {
	LIST_HEAD(, submission) awake;
	uv_idle_t spin;
};

void submissions_open(struct submissions *submissions, struct server *server, uv_loop_t *loop);
void submissions_close(struct submissions *submissions);

/* A ring of the session's, which has none, in host memory of a region. 0, or NO_MEMORY. */
int submission_open(struct session *session, struct region *region, uint64_t offset, uint32_t entries,
                    uint64_t spin_us, struct error *err);

/* Looks at it no more. Its jobs have ended. NULL is allowed. */
void submission_close(struct submission *submission);

/* Looks no more until the client rings again. NULL is allowed. */
void submission_stop(struct submission *submission);

/* Takes what the session's ring has, as far as limits and turns allow; nothing without a ring. The session
 * may end by it. */
void submission_take(struct session *session);

#endif
