/* The listening socket: our own path, or one that a service manager passed. */
#ifndef DAEMON_NET_LISTENER_H
#define DAEMON_NET_LISTENER_H

#include <stdbool.h>
#include <limits.h>

#include <uv.h>

#include "proto/status.h"

struct options;
struct server;

struct listener {
	struct server *server;
	uv_poll_t poll;
	uv_timer_t retry; /* accepts again after EMFILE and its kin */
	int fd;           /* -1: closed */
	int spare_fd;     /* let go for a moment to refuse a connection when no other fd is left */
	bool owns_path;   /* remove path at the end */
	bool passed;      /* by a service manager */
	char path[108];
};

/* Takes LISTEN_FDS's socket if there is one, else the one that was ours already (kept; -1: none), else makes
 * one as options say. Needs server->loop. On failure kept is closed and its file removed. */
int listener_open(struct listener *listener, struct server *server, int kept, const struct options *options,
                  struct error *err);

/* Closes a socket that was ours already, and removes its file. -1 is allowed. */
void listener_drop(int kept);

/* Accepts no more; clients wait in the socket's queue. */
void listener_pause(struct listener *listener);

/* Stops accepting, removes our own socket file. Asynchronous: it may be freed once the loop has ended. */
void listener_close(struct listener *listener);

#endif
