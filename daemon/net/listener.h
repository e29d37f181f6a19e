/* SPDX-License-Identifier: Apache-2.0 */
/* The listener accepts connections on a socket at the service's own path, or on one that a service manager
 * passed.
 *
 * It stays open across a restart within the process (recovery.h). The file of a socket of our own is removed
 * when the listener closes.
 */
#ifndef DAEMON_NET_LISTENER_H
#define DAEMON_NET_LISTENER_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

#include "proto/status.h"
#include "proto/wire/socket.h"

struct account;
struct options;
struct connections;

struct listener {
	struct connections *connections;
	uv_poll_t poll;
	uv_timer_t retry; /* accepts again after EMFILE and similar errors */
	int fd;           /* -1: closed */
	/* Closed for a moment to refuse a connection when the process has no other descriptor left. */
	int spare_fd;
	bool owns_path;               /* the socket is our own, and its file is removed at the end */
	bool passed;                  /* the socket was passed by a service manager */
	char path[SOCKET_PATH_BYTES]; /* "@NAME": an abstract socket, which has no file */
};

/* Takes the socket of LISTEN_FDS if there is one. Otherwise takes `kept`, a socket from before a restart
 * within the process (-1: none). If there is neither, creates a socket as options say. The service's loop
 * must exist. On failure, kept is closed and its file removed. */
int listener_open(struct listener *listener, struct connections *connections, int kept,
                  const struct options *options, struct error *err);

/* Closes a socket from before a restart within the process, and removes its file. -1 is allowed. */
void listener_drop(int kept);

/* Stops accepting; clients wait in the socket's queue meanwhile. */
void listener_pause(struct listener *listener);

/* Stops accepting and removes our own socket file. Asynchronous: the listener may be freed once the loop has
 * ended. */
void listener_close(struct listener *listener);

/* A client whose connection is refused because of a limit is told which limit it is.
 *
 * A reply needs a msgid, so the service peeks at the first request without reading it. Once the msgid has
 * arrived, the connection is answered with the error and closed; until then it waits, for a short while. Few
 * connections may wait, and fewer of one uid; they are charged to nobody. When there are more, the oldest are
 * closed without an answer.
 */

#define REFUSALS_MOST        64
#define REFUSALS_MOST_OF_UID 8

struct refusal {
	struct account *account; /* a reference is held */
	int fd;
	uint64_t since_ms; /* when it began to wait (uv_now) */
	struct error error;
};

struct refusals {
	uv_timer_t timer; /* runs while connections wait */
	uint32_t n;
	struct refusal of[REFUSALS_MOST]; /* connections that wait, oldest first */
};

/* Takes over an accepted, non-blocking socket that gets no session, and a reference to the account of its
 * user. If account is NULL, it is found by the peer's uid. If err is NULL, the socket is closed without an
 * answer. Closing is done off the loop, because descriptors may have arrived in the socket. */
void refuse_socket(struct connections *connections, int fd, struct account *account, const struct error *err);

/* Closes the connections that wait, without an answer. */
void refusals_end(struct connections *connections);

#endif
