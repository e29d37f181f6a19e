/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors on their way to clients: those of regions that the service creates (region_create).
 *
 * Each is charged to the uid (outgoing_fds_per_uid) from before it is created until the peer has received it,
 * or until it is closed here unsent. The kernel counts descriptors that are sent and not received against our
 * own RLIMIT_NOFILE, whoever the receiver is, until the receiver's socket closes; closing ours does not end
 * that. So the socket of a session that ends before everything is received lingers, shut down, together with
 * the charges for the connection and for the descriptors.
 *
 * The kernel does not notify the sender of a receipt. The service checks for it when the uid has no more
 * room, when the session has another descriptor to send, and at intervals while any is outstanding: SIOCOUTQ
 * tells how much memory the unread bytes take.
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
	uv_timer_t timer; /* runs while descriptors are sent and not received */
};

void outgoing_open(struct outgoing *outgoing, struct server *server, uv_loop_t *loop);
void outgoing_close(struct outgoing *outgoing);

/* Charges the account for one more descriptor. Returns QUOTA if the limit is reached even after a check for
 * receipts. */
int outgoing_charge(struct server *server, struct account *account, struct charge *charge, struct error *err);

/* Whether the session may send its peer one more. */
bool outgoing_may_send(struct session *session);

/* The session's first descriptor was sent with the byte at session->sent: closes it here. */
void outgoing_sent(struct session *session);

/* The session ends: closes what was not sent. */
void outgoing_drop(struct session *session);

/* Closes the socket of a session that has ended, now or when everything is received. */
void outgoing_close_socket(struct session *session);

/* Closes the sockets that linger. */
void outgoing_end(struct server *server);

#endif
