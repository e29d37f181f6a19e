/* SPDX-License-Identifier: Apache-2.0 */
/* A whole server in the test's process, on the fake clock, with clients on socket pairs. One a process. */
#ifndef TESTS_UNIT_DAEMON_SERVICE_H
#define TESTS_UNIT_DAEMON_SERVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/net/connection.h"
#include "daemon/server.h"

/* A request: ping, with msgid 7. */
#define PING       "\x94\x00\x07\xa4ping\x90"
#define PING_BYTES (sizeof PING - 1)

struct client {
	struct server *server;
	int fd;
	uint64_t session; /* its id */
};

/* Starts the server; set_limits (NULL: none) changes the limits' defaults. */
struct server *service_start(void (*set_limits)(struct limits *limits));

/* Disconnects all clients and ends it in order; nothing of theirs may be left. Does nothing when none was
 * started: a fixture of the suites that start one. */
void service_stop(void);

/* Iterates the loop a few times, without waiting; or once. */
void service_iterate(struct server *server);
void service_iterate_once(struct server *server);

/* Connects a client and has its requests accounted to uid. */
struct client client_connect(struct server *server, uid_t uid);

void client_send(const struct client *client, const void *data, size_t len);
void client_send_pings(const struct client *client, int n);

/* Reads all that has come; returns how many bytes. */
size_t client_read(const struct client *client);

/* NULL: it has been freed. */
struct session *client_session(const struct client *client);

/* Requests that the service has handled, of pings alone. */
uint64_t client_handled(const struct client *client);

#endif
