/* The listening socket: our own path, or one that a service manager passed. */
#ifndef DAEMON_LISTENER_H
#define DAEMON_LISTENER_H

#include <stdbool.h>
#include <limits.h>

#include <uv.h>

#include "proto/status.h"

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

/* Takes LISTEN_FDS's socket if there is one, else makes one at path (NULL: the default). Needs
 * server->loop. */
int listener_open(struct listener *listener, struct server *server, const char *path, struct error *err);

/* Stops accepting, removes our own socket file. Asynchronous: the loop's last turn frees nothing of it. */
void listener_close(struct listener *listener);

#endif
