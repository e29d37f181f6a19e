/* SPDX-License-Identifier: Apache-2.0 */
/* Time slices: how the users share the loop.
 *
 * In each iteration of the loop every uid has one time slice, however many sessions it has. Requests that do
 * not fit into it wait for the next iteration, and so does input that the uid has sent and nobody has read.
 * So a request waits for one slice of each other uid at most. While several uids send requests, a slice is
 * about as long as a small request takes with its reply, so that a uid with one small request at a time keeps
 * most of its speed beside any other. A uid that is alone has longer slices, because iterations cost time.
 *
 * The queue: accounts with ready sessions, each with a queue of those sessions; both are served round robin.
 */
#ifndef DAEMON_NET_TIME_SLICE_H
#define DAEMON_NET_TIME_SLICE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include <uv.h>

struct account;
struct clock;
struct server;
struct session;
TAILQ_HEAD(account_queue, account);

struct time_slices {
	const struct clock *clock;
	uv_idle_t busy;             /* runs while sessions are ready, so that the loop does not sleep */
	struct account_queue ready; /* accounts with sessions that are ready */
	uint64_t iteration;         /* of the loop, counted from 1 */
	uint64_t last_user;         /* the last that had a slice */
	uint64_t shared_until_ns;   /* until then slices are short (clock->now_ns) */
};

void time_slices_open(struct time_slices *time_slices, uv_loop_t *loop, const struct clock *clock);
void time_slices_close(struct time_slices *time_slices);

/* Asks the kernel for short slices of a CPU for the calling thread, which is the loop's, so that it runs as
 * soon as it wakes: otherwise it waits for milliseconds behind threads of the engine. Kernels before 6.12
 * ignore that. */
void time_slices_ask_for_cpu(void);

/* Begins an iteration, and lets the sessions that are ready go on. Once in each iteration of the loop, before
 * it sleeps. */
void time_slices_resume_ready(struct server *server);

/* Whether the account's slice is over: to be asked before or after each act for the account. The first call
 * in an iteration begins the slice. */
bool time_slice_is_over(struct time_slices *time_slices, struct account *account);

/* Makes a session go on in its account's next slice; or takes that back, because the session ends. */
void time_slices_add(struct server *server, struct session *session);
void time_slices_remove(struct server *server, struct session *session);

/* If the account may queue a job: lets the session go on that has waited for that longest. */
void time_slices_wake_waiting(struct server *server, struct account *account);

#endif
