/* SPDX-License-Identifier: Apache-2.0 */
/* The address at which metrics are served: a path, or a port that only this machine reaches. */
#ifndef DAEMON_OBSERVE_ENDPOINT_H
#define DAEMON_OBSERVE_ENDPOINT_H

#include <sys/socket.h>

#include "proto/status.h"
#include "proto/wire/socket.h"

#define ENDPOINT_NAME 160

struct endpoint {
	char path[SOCKET_PATH_BYTES]; /* of a Unix socket, also an abstract one (socket.h); otherwise "" */
	struct sockaddr_storage address;
	socklen_t len;
};

/* "unix:PATH", "127.0.0.1:PORT" (or another address in 127.0.0.0/8), "[::1]:PORT" or "localhost:PORT", which
 * is 127.0.0.1; port 0: any that is free. Else INVALID_ARGUMENT with the rule. */
int endpoint_parse(struct endpoint *ret, const char *text, struct error *err);

/* Creates a listening socket there: non-blocking, close-on-exec, owned by the caller. Its file, with mode
 * 0660, replaces a socket file that nobody listens on. ALREADY_EXISTS or PERMISSION. */
int endpoint_listen(const struct endpoint *endpoint, int backlog, struct error *err);

/* The address to which a listening socket is bound; len 0 if unknown. */
void endpoint_of(struct endpoint *ret, int fd);

/* "unix:/run/x", "http://127.0.0.1:9464". */
void endpoint_name(const struct endpoint *endpoint, char name[ENDPOINT_NAME]);

#endif
