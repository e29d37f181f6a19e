/* SPDX-License-Identifier: Apache-2.0 */
/* An endpoint is an address at which metrics are served to this machine alone. */
#ifndef DAEMON_CONFIG_ENDPOINT_H
#define DAEMON_CONFIG_ENDPOINT_H

#include <sys/socket.h>

#include "proto/status.h"
#include "proto/wire/socket.h"

#define ENDPOINT_UNIX "unix:"

struct endpoint {
	char path[SOCKET_PATH_BYTES]; /* path of a Unix socket or an abstract one (socket.h); otherwise "" */
	struct sockaddr_storage address;
	socklen_t len;
};

/* Parses "unix:PATH", "127.0.0.1:PORT" (or another address in 127.0.0.0/8), "[::1]:PORT" or "localhost:PORT",
 * which is 127.0.0.1. Port 0 stands for any that is free. Returns 0, or INVALID_ARGUMENT with the rule. */
int endpoint_parse(struct endpoint *ret, const char *text, struct error *err);

#endif
