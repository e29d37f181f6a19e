/* Connections that a limit refuses, and who shall know which.
 *
 * A reply needs a msgid, so the first request is looked at, unread: where its msgid has come the connection
 * is answered with the error and closed, else it waits for that for a short while. Few may wait, and fewer of
 * one uid; they are charged to nobody. The others are closed without a word, the oldest first.
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
	uv_timer_t timer; /* runs while some wait */
	uint32_t n;
	struct refusal of[REFUSALS_MOST]; /* oldest first */
};

void refusals_open(struct refusals *refusals, struct server *server, uv_loop_t *loop);
void refusals_close(struct refusals *refusals);

/* Takes over an accepted, non-blocking socket that gets no session; err NULL: it is closed at once. It may
 * hold descriptors already. */
void refuse_socket(struct server *server, int fd, const struct error *err);

/* Closes those that wait. */
void refusals_end(struct refusals *refusals);

#endif
