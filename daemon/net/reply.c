/* SPDX-License-Identifier: Apache-2.0 */
/* This file sends the output of a connection: replies are queued, charged, and sent together before the loop
 * sleeps.
 *
 * A descriptor goes with the first byte of its reply. What the socket does not take stays queued; the peer
 * then has reply_deadline_ms to read.
 */
#include "connection.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <linux/sockios.h>

/* Pause before another attempt to send descriptors, when as many are in transit as the kernel allows. */
#define RESEND_MS 20

static void on_resend(uv_timer_t *timer);
static bool outgoing_may_send(struct connection *connection);
static void outgoing_sent(struct connection *connection);

bool connection_has_room(const struct connection *connection)
{
	return buffer_len(&connection->out) < connection->session.service->limits.reply_pause_bytes &&
	       connection->n_out_fds + connection->session.mappings < CONNECTION_MAX_OUTGOING_FDS;
}

/* Charges for the bytes appended to connection->out since it had `before` bytes, and has them sent before the
 * loop sleeps. This may end the session. */
static void queue_reply(struct connection *connection, size_t before)
{
	struct connections *connections = connection->connections;
	size_t len = buffer_len(&connection->out);
	struct error err;

	if (len > connections->service->limits.reply_limit_bytes) {
		session_end(&connection->session, LOG_LEVEL_NOTICE,
		            "it reads no replies (reply_limit_bytes)");
		return;
	}
	if (charge_take(&connection->session.out_charge, &connections->service->accounts,
	                connection->session.account, CHARGE_QUEUED_BYTES, len - before, &err) < 0) {
		session_end(&connection->session, LOG_LEVEL_NOTICE, err.message);
		return;
	}
	if (!connection->unsent) {
		connection->unsent = true;
		TAILQ_INSERT_TAIL(&connections->unsent, connection, unsent_entry);
	}
}

/* Queues what an encoder has appended to connection->out since it had `before` bytes; r is what the encoder
 * returned. */
static void queue_encoded(struct connection *connection, size_t before, int r)
{
	if (r < 0)
		session_end(&connection->session, LOG_LEVEL_WARNING, "no memory for its replies");
	else
		queue_reply(connection, before);
}

/* Closes, off the loop, a descriptor that has not been sent and is charged for. */
static void close_unsent(struct connection *connection, int fd)
{
	struct charge charge = { 0 };

	charge_move(&connection->session.out_fds_charge, &charge, 1);
	async_close_fd(&connection->session.service->chores, connection->session.account, fd, &charge);
}

void connection_reply(struct session *session, uint32_t msgid, const struct method *method,
                      const void *result, int fd)
{
	struct connection *connection = connection_of(session);
	size_t before = buffer_len(&connection->out);

	if (connection->session.state == SESSION_ENDED ||
	    (fd >= 0 && connection->n_out_fds == CONNECTION_MAX_OUTGOING_FDS) ||
	    rpc_encode_result(&connection->out, msgid, method, result) < 0) {
		if (fd >= 0)
			close_unsent(connection, fd);
		if (connection->session.state != SESSION_ENDED)
			session_end(&connection->session, LOG_LEVEL_WARNING, "no room for its replies");
		return;
	}
	if (fd >= 0)
		connection->out_fds[connection->n_out_fds++] =
		    (struct outgoing_fd){ fd, connection->sent + before };
	session_log(&connection->session, LOG_LEVEL_DEBUG, msgid, "answered %s", method->name);
	queue_reply(connection, before);
}

void connection_reply_queued(struct session *session, uint32_t msgid)
{
	struct connection *connection = connection_of(session);
	size_t before = buffer_len(&connection->out);

	if (connection->session.state == SESSION_ENDED)
		return;
	queue_encoded(connection, before, rpc_encode_queued(&connection->out, msgid));
}

void connection_notify_done(struct session *session, uint32_t msgid, const struct method *method,
                            const void *result, const struct error *error)
{
	struct connection *connection = connection_of(session);
	size_t before = buffer_len(&connection->out);

	if (error)
		session_count_error(&connection->session, error->status);
	if (connection->session.state == SESSION_ENDED)
		return;
	queue_encoded(connection, before, rpc_encode_done(&connection->out, msgid, method, result, error));
}

void connection_refuse(struct session *session, uint32_t msgid, const struct method *method,
                       uint64_t start_ns, const struct error *error)
{
	struct connection *connection = connection_of(session);
	size_t before = buffer_len(&connection->out);

	session_count_error(&connection->session, error->status);
	if (connection->session.state == SESSION_ENDED)
		return;
	session_log_refusal(&connection->session, msgid, method, start_ns, error);
	queue_encoded(connection, before, rpc_encode_error(&connection->out, msgid, error));
}

/* Calls send once: for bytes, with at most one descriptor, which goes with the first byte of its reply.
 * Returns the number of bytes sent or a negative errno: -EBUSY if this peer has too many descriptors that it
 * has not received, -ETOOMANYREFS if all peers together have. */
static ssize_t send_some(struct connection *connection)
{
	size_t len = buffer_len(&connection->out), n_fds = 0;
	ssize_t n;

	if (connection->n_out_fds > 0) {
		uint64_t ahead = connection->out_fds[0].pos - connection->sent;

		if (ahead == 0) {
			n_fds = 1;
			if (connection->n_out_fds > 1)
				ahead = connection->out_fds[1].pos - connection->sent;
		}
		if (ahead > 0 && ahead < len)
			len = ahead;
	}
	if (n_fds > 0 && !outgoing_may_send(connection))
		return -EBUSY;
	n = socket_send(connection->fd, connection->out.data + connection->out.start, len,
	                &connection->out_fds[0].fd, n_fds);
	if (n > 0 && n_fds > 0)
		outgoing_sent(connection);
	return n;
}

static void resend_later(struct connection *connection)
{
	uv_timer_t *timer = &connection->connections->resend;

	connection->resend = true;
	if (!uv_is_active((uv_handle_t *)timer))
		uv_timer_start(timer, on_resend, RESEND_MS, 0);
}

static void resend(struct connection *connection)
{
	if (connection->resend)
		session_flush(&connection->session);
}

/* Tries again to send to the sessions whose descriptors the kernel did not take. */
static void on_resend(uv_timer_t *timer)
{
	connections_each(timer->data, resend);
}

static void log_crowded(struct connections *connections)
{
	if (log_allows(LOG_NOBODY, uv_now(&connections->service->loop)))
		log_line(
		    LOG_LEVEL_WARNING,
		    "descriptors wait to be sent: as many as LimitNOFILE= allows are on their way to clients");
}

void connection_flush(struct session *session)
{
	struct connection *connection = connection_of(session);
	bool is_peers = true; /* unsent replies wait for the peer, not for the kernel's limit */

	connection->resend = false;
	if (connection->unsent) {
		connection->unsent = false;
		TAILQ_REMOVE(&connection->connections->unsent, connection, unsent_entry);
	}
	while (connection->session.state != SESSION_ENDED && buffer_len(&connection->out) > 0) {
		ssize_t n = send_some(connection);

		if (n == -EINTR)
			continue;
		if (n == -EAGAIN)
			break;
		if (n == -EBUSY || n == -ETOOMANYREFS) {
			is_peers = n == -EBUSY;
			resend_later(connection);
			break;
		}
		if (n < 0) {
			session_end(&connection->session, LOG_LEVEL_DEBUG, strerror((int)-n));
			return;
		}
		connection->sent += (uint64_t)n;
		charge_shrink(&connection->session.out_charge, (uint64_t)n);
		buffer_consume(&connection->out, (size_t)n, CONNECTION_KEEP_BYTES);
		connection->session.used_ms = service_now_ms(connection->session.service);
		reply_timer_reset(connection);
	}
	if (connection->session.state == SESSION_ENDED)
		return;

	if (!is_peers) {
		log_crowded(connection->connections);
		reply_timer_reset(connection);
	} else if (buffer_len(&connection->out) > 0) {
		reply_timer_run(connection);
	}
	if (connection->session.waiting == WAIT_REPLIES && connection_has_room(connection))
		time_slices_add(&connection->connections->time_slices, session);
	session_update_poll(&connection->session);
	session_settle(&connection->session);
}

/* ==== Descriptors on their way ======================================================================= */

/* A connection's unread_fds are the descriptors that it has sent and whose receipt is not known, oldest
 * first. An account lists its connections that have any, and the sockets that linger. */

#define CHECK_MS 100 /* interval at which the timer checks for receipts */

/* Time in ms for which connection_charge_fd does not check the user's sockets again after a check that found
 * nothing received. */
#define PAUSE_MS 5

struct lingering {
	LIST_ENTRY(lingering) entry; /* in account->lingering */
	struct account *account;
	int fd;
	struct charge connection;
	struct charge fds;
};

static void on_check(uv_timer_t *timer);

/* ---- What has been received --------------------------------------------------------------------------- */

/* Returns the memory that unread bytes take in the socket, which is at least one byte for each of them.
 * Returns 0 if there are none or the kernel does not report it. */
static uint64_t unread_of(int fd)
{
	int unread;

	return ioctl(fd, SIOCOUTQ, &unread) < 0 || unread < 0 ? 0 : (uint64_t)unread;
}

/* Returns how many of unread_fds have been received. If no byte is unread, all have been. Otherwise a
 * descriptor has been received if its own byte has been read: fewer bytes are unread than were sent from that
 * byte on. */
static uint32_t count_received(const struct connection *connection)
{
	uint64_t unread = unread_of(connection->fd);
	uint32_t n = 0;

	while (n < connection->n_unread_fds &&
	       (unread == 0 || unread < connection->sent - connection->unread_fds[n].pos))
		n++;
	return n;
}

/* Removes the descriptors that the peer has received from unread_fds, and releases their charges. Returns
 * their number. */
static uint32_t forget_received(struct connection *connection)
{
	uint32_t n = count_received(connection);

	if (n == 0)
		return 0;
	connection->n_unread_fds -= n;
	memmove(connection->unread_fds, connection->unread_fds + n,
	        connection->n_unread_fds * sizeof *connection->unread_fds);
	charge_shrink(&connection->session.out_fds_charge, n);
	if (connection->n_unread_fds == 0)
		LIST_REMOVE(connection, unread_entry);
	return n;
}

/* Closes a lingering socket off the loop and frees the struct. The peer has received everything, or the
 * service no longer waits for that. */
static void let_go(struct service *service, struct lingering *lingering)
{
	LIST_REMOVE(lingering, entry);
	async_close_socket(&service->chores, lingering->account, lingering->fd, &lingering->connection);
	charge_release(&lingering->fds);
	account_unref(lingering->account);
	free(lingering);
}

/* Checks all sockets of the account, and closes lingering ones that are done. Returns whether anything has
 * been received. The caller must hold a reference to the account. */
static bool check_account(struct service *service, struct account *account)
{
	struct connection *connection, *next_connection;
	struct lingering *lingering, *next;
	bool found = false;

	for (connection = LIST_FIRST(&account->unread); connection; connection = next_connection) {
		next_connection = LIST_NEXT(connection, unread_entry);
		found |= forget_received(connection) > 0;
	}
	for (lingering = LIST_FIRST(&account->lingering); lingering; lingering = next) {
		next = LIST_NEXT(lingering, entry);
		if (unread_of(lingering->fd) > 0)
			continue;
		let_go(service, lingering);
		found = true;
	}
	return found;
}

/* ---- Room --------------------------------------------------------------------------------------------- */

int connection_charge_fd(struct session *session, struct charge *charge, struct error *err)
{
	struct service *service = session->service;
	struct account *account = session->account;
	uint64_t now = service_now_ms(service);

	if (!charge_fits(&service->accounts, account, CHARGE_OUTGOING_FDS, 1) &&
	    now - account->checked_ms >= PAUSE_MS && !check_account(service, account))
		account->checked_ms = now;
	return charge_take(charge, &service->accounts, account, CHARGE_OUTGOING_FDS, 1, err);
}

/* Returns whether the connection may send its peer one more descriptor. */
static bool outgoing_may_send(struct connection *connection)
{
	if (connection->n_unread_fds == CONNECTION_MAX_UNREAD_FDS)
		forget_received(connection);
	return connection->n_unread_fds < CONNECTION_MAX_UNREAD_FDS;
}

/* ---- Sent --------------------------------------------------------------------------------------------- */

static void watch(struct connections *connections)
{
	uv_timer_t *timer = &connections->receipts;

	if (!uv_is_active((uv_handle_t *)timer))
		connections->service->clock->timer_start(timer, on_check, CHECK_MS, CHECK_MS);
}

/* Notes that the connection's first descriptor was sent, with the byte at connection->sent, and closes the
 * service's own copy of it. */
static void outgoing_sent(struct connection *connection)
{
	struct connections *connections = connection->connections;

	session_close_fds(&connection->session, &connection->out_fds[0].fd, 1);
	connection->n_out_fds--;
	memmove(connection->out_fds, connection->out_fds + 1,
	        connection->n_out_fds * sizeof *connection->out_fds);
	if (connection->n_unread_fds == 0)
		LIST_INSERT_HEAD(&connection->session.account->unread, connection, unread_entry);
	connection->unread_fds[connection->n_unread_fds++] =
	    (struct unread_fd){ .pos = connection->sent, .sent_ms = service_now_ms(connections->service) };
	watch(connections);
}

void outgoing_drop(struct connection *connection)
{
	for (uint32_t i = 0; i < connection->n_out_fds; i++)
		close_unsent(connection, connection->out_fds[i].fd);
	connection->n_out_fds = 0;
}

/* ---- Time --------------------------------------------------------------------------------------------- */

static void end_late(struct service *service, struct account *account)
{
	uint64_t now = service_now_ms(service);
	struct connection *connection, *next;

	for (connection = LIST_FIRST(&account->unread); connection; connection = next) {
		next = LIST_NEXT(connection, unread_entry);
		if (now - connection->unread_fds[0].sent_ms >= service->limits.reply_deadline_ms)
			session_end(&connection->session, LOG_LEVEL_NOTICE,
			            "it did not receive a region's descriptor in time (reply_deadline_ms)");
	}
}

static void on_check(uv_timer_t *timer)
{
	struct connections *connections = timer->data;
	struct account *account, *next;
	bool is_any = false;

	for (account = LIST_FIRST(&connections->service->accounts.list); account; account = next) {
		account->refs++;
		check_account(connections->service, account);
		end_late(connections->service, account);
		is_any |= !LIST_EMPTY(&account->unread) || !LIST_EMPTY(&account->lingering);
		next = LIST_NEXT(account, entry);
		account_unref(account);
	}
	if (!is_any)
		connections->service->clock->timer_stop(timer);
}

/* ---- The end of a session ----------------------------------------------------------------------------- */

/* Shuts the socket down and lets it linger, together with the connection's charges. Returns false if out of
 * memory; the socket then has to be closed at once. */
static bool linger(struct connection *connection)
{
	struct lingering *lingering = malloc(sizeof *lingering);
	struct account *account = connection->session.account;

	if (!lingering)
		return false;
	shutdown(connection->fd, SHUT_RDWR);
	account->refs++;
	*lingering = (struct lingering){ .account = account,
		                         .fd = connection->fd,
		                         .connection = connection->charge,
		                         .fds = connection->session.out_fds_charge };
	connection->charge = connection->session.out_fds_charge = (struct charge){ 0 };
	LIST_INSERT_HEAD(&account->lingering, lingering, entry);
	watch(connection->connections);
	return true;
}

/* If the service is stopping, the socket is closed even if the peer has not received everything. */
void outgoing_close_socket(struct connection *connection)
{
	struct connections *connections = connection->connections;
	bool is_unread;

	if (connection->n_unread_fds > 0)
		forget_received(connection);
	is_unread = connection->n_unread_fds > 0;
	if (is_unread) {
		LIST_REMOVE(connection, unread_entry);
		connection->n_unread_fds = 0;
	}
	if (is_unread && connections->service->state == SERVICE_RUNNING && linger(connection))
		return;
	charge_release(&connection->session.out_fds_charge);
	async_close_socket(&connections->service->chores, connection->session.account, connection->fd,
	                   &connection->charge);
}

void outgoing_end(struct connections *connections)
{
	struct account *account, *next;
	struct lingering *lingering;

	for (account = LIST_FIRST(&connections->service->accounts.list); account; account = next) {
		account->refs++;
		while ((lingering = LIST_FIRST(&account->lingering)))
			let_go(connections->service, lingering);
		next = LIST_NEXT(account, entry);
		account_unref(account);
	}
}
