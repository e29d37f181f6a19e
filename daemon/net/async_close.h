/* SPDX-License-Identifier: Apache-2.0 */
/* Closing descriptors off the loop.
 *
 * close(2) may block for as long as the sender of the descriptor likes: a TCP socket that lingers, a file of
 * a FUSE file system that does not answer, a Unix socket whose queue holds such descriptors. So each close is
 * a chore of its account (CHORE_CLOSE). One thread does these for the account, in the order given; a close
 * that never returns delays its own user only.
 *
 * A descriptor keeps its charge until it is closed; the loop releases it then.
 */
#ifndef DAEMON_NET_ASYNC_CLOSE_H
#define DAEMON_NET_ASYNC_CLOSE_H

#include <stdbool.h>

#include "account.h"

/* Closes fd, then releases the charge. Takes the charge over: *charge, which may be empty, is empty
 * afterwards. */
void async_close_fd(struct chores *chores, struct account *account, int fd, struct charge *charge);

/* Closes a peer's connection, at once where nothing in it can block, which is the usual case. */
void async_close_socket(struct chores *chores, struct account *account, int fd, struct charge *charge);

/* Returns whether so many of the account's descriptors do not close that its connections are refused. */
bool async_close_is_full(const struct account *account);

/* Logs the users whose descriptors do not close. */
void async_close_log_stuck(const struct accounts *accounts);

#endif
