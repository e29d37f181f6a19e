/* SPDX-License-Identifier: Apache-2.0 */
/* Closing descriptors off the loop.
 *
 * close(2) may block for as long as the sender of the descriptor likes: a TCP socket that lingers, a file of
 * a FUSE file system that does not answer, a Unix socket whose queue holds such descriptors. So each account
 * with something to close has a thread of its own, which closes in the order given; a close that never
 * returns delays its own user only. The thread starts when it is needed and ends when it has had nothing to
 * do for a while.
 *
 * What a descriptor is charged to goes with it, and is released on the loop's thread once it is closed.
 */
#ifndef DAEMON_NET_ASYNC_CLOSE_H
#define DAEMON_NET_ASYNC_CLOSE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <uv.h>

#include "account.h"

struct async_close_queue;
struct closing;

TAILQ_HEAD(closing_queue, closing);

struct async_close {
	struct accounts *accounts;
	uv_async_t wake;             /* something is closed, or a thread has ended */
	uv_mutex_t mutex;            /* guards what follows, and what struct async_close_queue says */
	struct closing_queue closed; /* to be accounted for */
	bool stopping;
	/* The loop's alone. */
	LIST_HEAD(, async_close_queue) queues;
	uint64_t n; /* descriptors not yet closed and accounted for */
	void (*on_idle)(void *arg);
	void *arg;
};

/* on_idle is called on the loop whenever the last descriptor has been closed. */
void async_close_start(struct async_close *async_close, uv_loop_t *loop, struct accounts *accounts,
                       void (*on_idle)(void *arg), void *arg);

/* Nothing may be left to close. Ends the threads; the handle closes in the loop's next iteration. */
void async_close_stop(struct async_close *async_close);

/* Closes fd, then releases the charge. Takes the charge over: *charge, which may be empty, is empty
 * afterwards. */
void async_close_fd(struct async_close *async_close, struct account *account, int fd, struct charge *charge);

/* Closes a peer's connection, at once where nothing in it can block, which is the usual case. */
void async_close_socket(struct async_close *async_close, struct account *account, int fd,
                        struct charge *charge);

/* Whether so many of the account's descriptors do not close that its connections are refused. */
bool async_close_is_full(const struct account *account);

/* Logs the users whose descriptors do not close. */
void async_close_log_stuck(const struct async_close *async_close);

#endif
