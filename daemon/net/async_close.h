/* Closing descriptors off the loop.
 *
 * close(2) may block for as long as whoever sent the descriptor likes: a TCP socket that lingers, a file of a
 * FUSE file system that does not answer, a Unix socket whose queue holds such ones. So each account with
 * something to close has a thread of its own, in the order given; a close that never returns costs its own
 * user only. The thread starts when it is needed and ends when it has had nothing to do for a while.
 *
 * What a descriptor is charged to goes with it, and is given back on the loop's thread when it is closed.
 */
#ifndef DAEMON_NET_ASYNC_CLOSE_H
#define DAEMON_NET_ASYNC_CLOSE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <uv.h>

#include "account.h"

struct closer;
struct closing;

TAILQ_HEAD(closing_queue, closing);

struct closers {
	struct accounts *accounts;
	uv_async_t wake;             /* something is closed, or a thread has ended */
	uv_mutex_t mutex;            /* guards what follows, and what closer.c says */
	struct closing_queue closed; /* to be accounted for */
	bool stopping;
	/* The loop's alone. */
	LIST_HEAD(, closer) list;
	uint64_t n; /* descriptors not yet closed and accounted for */
	void (*on_idle)(void *arg);
	void *arg;
};

/* on_idle is called in a turn of the loop whenever the last descriptor has been closed. */
void closers_open(struct closers *closers, uv_loop_t *loop, struct accounts *accounts,
                  void (*on_idle)(void *arg), void *arg);

/* Nothing may be left to close. Ends the threads; the handle closes in the loop's next turn. */
void closers_close(struct closers *closers);

/* Closes fd, and then releases the charge, which may be empty and is so afterwards. */
void closer_close(struct closers *closers, struct account *account, int fd, struct charge *charge);

/* Closes a peer's connection: at once when nothing in it can block, which is the usual case. */
void closer_close_socket(struct closers *closers, struct account *account, int fd, struct charge *charge);

/* Whether so many of the account's descriptors do not close that it is no accident: it is let in no more. */
bool closer_is_full(const struct account *account);

/* Logs whose descriptors do not close. */
void closers_log(const struct closers *closers);

#endif
