/* SPDX-License-Identifier: Apache-2.0 */
/* A whole server in the test's process, on the fake clock, with clients on socket pairs. A process has one
 * server. */
#ifndef TESTS_UNIT_DAEMON_SERVICE_H
#define TESTS_UNIT_DAEMON_SERVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/net/connection.h"
#include "daemon/server.h"

/* A ping request with msgid 7. */
#define PING       "\x94\x00\x07\xa4ping\x90"
#define PING_BYTES (sizeof PING - 1)

struct client {
	struct server *server;
	int fd;
	uint64_t session; /* id of its session */
};

/* Starts the server. set_limits changes the default limits; NULL: they are used as they are. */
struct server *service_start(void (*set_limits)(struct limits *limits));

/* Disconnects all clients and stops the server in order. Fails if anything of theirs is left. Does nothing if
 * no server was started, so that suites can use it as their teardown. */
void service_stop(void);

/* These run the event loop without waiting, a few times or once. */
void service_iterate(struct server *server);
void service_iterate_once(struct server *server);

/* Connects a client whose requests are charged to uid. */
struct client client_connect(struct server *server, uid_t uid);

void client_send(const struct client *client, const void *data, size_t len);
void client_send_pings(const struct client *client, int n);

/* Reads everything that has arrived and returns how many bytes it was. */
size_t client_read(const struct client *client);

/* Returns the client's session, or NULL if it has been freed. */
struct session *client_session(const struct client *client);

/* Returns how many requests of a client that sends only pings the service has handled. */
uint64_t client_handled(const struct client *client);

#endif
