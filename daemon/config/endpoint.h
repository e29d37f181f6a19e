/* SPDX-License-Identifier: Apache-2.0 */
/* An endpoint is an address at which metrics are served. Only processes on this machine can connect to it. */
#ifndef DAEMON_CONFIG_ENDPOINT_H
#define DAEMON_CONFIG_ENDPOINT_H

#include <sys/socket.h>

#include "proto/status.h"
#include "proto/wire/socket.h"

#define ENDPOINT_UNIX "unix:"

struct endpoint {
	char path[SOCKET_PATH_BYTES]; /* path of a Unix socket, or @NAME of an abstract one (socket.h);
	                                 otherwise "" */
	struct sockaddr_storage address;
	socklen_t len; /* bytes of the address; 0: it is unknown */
};

/* Parses "unix:PATH", "127.0.0.1:PORT" (or another address in 127.0.0.0/8), "[::1]:PORT", or
 * "localhost:PORT", which stands for 127.0.0.1. Port 0 stands for any free port. Returns 0, or
 * INVALID_ARGUMENT with the rule in err. */
int endpoint_parse(struct endpoint *ret, const char *text, struct error *err);

#endif
