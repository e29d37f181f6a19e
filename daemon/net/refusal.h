/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that a limit refuses: the client is told which limit.
 *
 * A reply needs a msgid, so the service peeks at the first request without reading it. Once the msgid has
 * arrived, the connection is answered with the error and closed; until then it waits, for a short while. Few
 * connections may wait, and fewer of one uid; they are charged to nobody. When there are more, the oldest are
 * closed without an answer.
 */
#ifndef DAEMON_NET_REFUSAL_H
#define DAEMON_NET_REFUSAL_H

#include <stdint.h>

#include <uv.h>

#include "proto/status.h"

#define REFUSALS_MOST        64
#define REFUSALS_MOST_OF_UID 8

struct account;
struct server;

struct refusal {
	struct account *account;
	int fd;
	uint64_t since_ms;
	struct error error;
};

struct refusals {
	struct server *server;
	uv_timer_t timer; /* runs while connections wait */
	uint32_t n;
	struct refusal of[REFUSALS_MOST]; /* oldest first */
};

void refusals_open(struct refusals *refusals, struct server *server, uv_loop_t *loop);
void refusals_close(struct refusals *refusals);

/* Takes over an accepted, non-blocking socket that gets no session, and a reference to the account of its
 * user; account NULL: that of the peer's uid. err NULL: closes it at once. Descriptors may have arrived in
 * it. */
void refuse_socket(struct server *server, int fd, struct account *account, const struct error *err);

/* Closes the connections that wait. */
void refusals_end(struct refusals *refusals);

#endif
