/* SPDX-License-Identifier: Apache-2.0 */
/* The listening socket, at our own path or passed by a service manager.
 *
 * It stays open across a restart within the process (recovery.h). Our own socket file is removed when the
 * listener closes.
 */
#ifndef DAEMON_NET_LISTENER_H
#define DAEMON_NET_LISTENER_H

#include <stdbool.h>
#include <limits.h>

#include <uv.h>

#include "proto/status.h"
#include "proto/wire/socket.h"

struct options;
struct server;

struct listener {
	struct server *server;
	uv_poll_t poll;
	uv_timer_t retry; /* accepts again after EMFILE and similar errors */
	int fd;           /* -1: closed */
	int spare_fd;     /* closed for a moment to refuse a connection when no other descriptor is left */
	bool owns_path;   /* path is removed at the end */
	bool passed;      /* by a service manager */
	char path[SOCKET_PATH_BYTES]; /* "@NAME": an abstract socket, which has no file */
};

/* Takes the socket of LISTEN_FDS if there is one, otherwise the one that was ours already (kept; -1: none),
 * otherwise creates one as options say. Needs server->loop. On failure, kept is closed and its file removed.
 */
int listener_open(struct listener *listener, struct server *server, int kept, const struct options *options,
                  struct error *err);

/* Closes a socket from before a restart within the process, and removes its file. -1 is allowed. */
void listener_drop(int kept);

/* Stops accepting; clients wait in the socket's queue. */
void listener_pause(struct listener *listener);

/* Stops accepting and removes our own socket file. Asynchronous: the listener may be freed once the loop has
 * ended. */
void listener_close(struct listener *listener);

#endif
