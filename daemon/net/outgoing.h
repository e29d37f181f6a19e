/* Descriptors that are on their way to clients: those of regions that the service makes (region_create).
 *
 * Each is charged to the uid (outgoing_fds_per_uid) from before it is made until it is closed here without
 * having been sent, or has been received. The kernel counts those that are sent and not received against our
 * own RLIMIT_NOFILE, whoever was sent them, and that does not end with our socket but with the receiver's: so
 * the socket of a session that ends before all is received lingers, shut down, with the connection's charge
 * and theirs.
 *
 * Nothing tells of a receipt. It is looked for when the uid has no more room, when the session has to send
 * one more, and from time to time while there is any: SIOCOUTQ says how much memory what is unread takes.
 */
#ifndef DAEMON_NET_OUTGOING_H
#define DAEMON_NET_OUTGOING_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

#include "account.h"

struct server;
struct session;

struct outgoing {
	struct server *server;
	uv_timer_t timer; /* runs while something is sent and not received */
};

void outgoing_open(struct outgoing *outgoing, struct server *server, uv_loop_t *loop);
void outgoing_close(struct outgoing *outgoing);

/* Charges the account for one more descriptor; QUOTA when that many are on their way even after a look at
 * what has been received. */
int outgoing_charge(struct server *server, struct account *account, struct charge *charge, struct error *err);

/* Whether the session's peer may be sent one more. */
bool outgoing_may_send(struct session *session);

/* The session's first descriptor was sent with the byte at session->sent, and is closed here. */
void outgoing_sent(struct session *session);

/* A session ends: what was not sent is closed. */
void outgoing_drop(struct session *session);

/* Closes the socket of a session that has ended, now or when all is received. */
void outgoing_close_socket(struct session *session);

/* Lets go of the sockets that linger. */
void outgoing_end(struct server *server);

#endif
