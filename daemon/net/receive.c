/* SPDX-License-Identifier: Apache-2.0 */
/* Input of a session: reads bytes, finds whole messages, and has them handled.
 *
 * Bytes are read into a buffer that all sessions share, and handled from there. Only what cannot be handled
 * at once (the beginning of a message, or requests that have to wait) is copied to a block of the session's
 * own (input.h) and charged as input_bytes_per_uid. The session's poll handle asks for just the events that
 * can be acted on.
 */
#include "session.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "daemon/method/dispatch.h"
#include "daemon/resource/submission.h"
#include "daemon/server.h"
#include "deadline.h"
#include "watch.h"

static void on_readable(uv_poll_t *poll, int status, int events);
static void session_read(struct session *session);
static size_t room_to_read(const struct session *session);
static void take_input(struct session *session, const uint8_t *data, size_t len);
static void feed_kept(struct session *session);
static void charge_input(struct session *session);
static void stop_reading(struct session *session);
static size_t session_feed(struct session *session, const uint8_t *data, size_t len);

bool session_reads(const struct session *session)
{
	return session->state != SESSION_ENDED && session->received < session->last;
}

/* For a session that waits and is not read: ends it if its peer is gone altogether. A peer that only closed
 * its sending side still gets its answers. */
static void on_disconnect(struct session *session)
{
	struct pollfd peer = { .fd = session->fd, .events = 0 };

	if (poll(&peer, 1, 0) > 0 && (peer.revents & (POLLHUP | POLLERR)))
		session_end(session, LOG_LEVEL_DEBUG, "disconnected");
	session->sends_no_more = true;
	session_update_poll(session);
}

/* The error of the socket itself: libuv reports every error of a socket as EBADF. */
static int socket_error(int fd)
{
	int error = 0;
	socklen_t len = sizeof error;

	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0 ? errno : error;
}

/* A peer that closes its socket while replies are in it resets the connection. */
static void end_by_error(struct session *session, int error)
{
	if (error == ECONNRESET || error == 0)
		session_end(session, LOG_LEVEL_DEBUG, "disconnected, with replies unread");
	else
		session_end(session, LOG_LEVEL_NOTICE, strerror(error));
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
	struct session *session = poll->data;

	if (status < 0) {
		end_by_error(session, socket_error(session->fd));
		return;
	}
	if (events & UV_DISCONNECT) {
		on_disconnect(session);
		return;
	}
	if (events & UV_WRITABLE)
		session_flush(session);
	if (!(events & UV_READABLE) || !session_reads(session))
		return;
	if (session->waiting != WAIT_NONE)
		stop_reading(session);
	else if (time_slice_is_over(&session->server->time_slices, session->account))
		time_slices_add(session->server, session);
	else
		session_read(session);
}

/* The peer sends no more. One that is gone altogether gets no answers; one that only closed its sending side
 * does. */
static void on_end_of_stream(struct session *session)
{
	struct pollfd peer = { .fd = session->fd, .events = 0 };

	session->last = session->received;
	if (poll(&peer, 1, 0) > 0 && (peer.revents & (POLLHUP | POLLERR)))
		session_end(session, LOG_LEVEL_DEBUG, "disconnected");
	else
		session_finish(session);
	session_settle(session);
}

static void session_read(struct session *session)
{
	struct server *server = session->server;
	int fds[SOCKET_MAX_FDS];
	size_t n_fds;
	ssize_t n;
	struct error err;

	if (!session_reads(session)) { /* it began to finish while it was ready */
		session_settle(session);
		return;
	}
	n = socket_receive(session->fd, server->receive, room_to_read(session), fds, &n_fds);
	if (n == -EAGAIN || n == -EINTR) {
		session_update_poll(session); /* entries of its ring may have waited, and it was not polled */
		return;
	}
	if (n == -EMSGSIZE) {
		session_close_fds(session, fds, n_fds);
		session_end(session, LOG_LEVEL_NOTICE, "it sent more descriptors than a message may carry");
		return;
	}
	if (n < 0) {
		end_by_error(session, (int)-n);
		return;
	}
	if (n == 0) {
		on_end_of_stream(session);
		return;
	}
	if (session_keep_fds(session, fds, n_fds, session->received, session->received + (uint64_t)n, &err) <
	    0) {
		session_end(session, LOG_LEVEL_NOTICE, err.message);
		return;
	}
	session->received += (uint64_t)n;
	session->used_ms = server_now_ms(server);

	take_input(session, server->receive, (size_t)n);
	session_update_poll(session);
	session_settle(session);
}

/* Kept input is the beginning of a message: reads no more than may complete it. A uid that has much kept
 * input is read in small amounts. */
static size_t room_to_read(const struct session *session)
{
	uint64_t left = session->last - session->received;
	size_t unhandled = buffer_len(&session->in), room;

	room = INPUT_BYTES - unhandled;
	if (room > SESSION_KEEP_BYTES &&
	    session->account->used[CHARGE_INPUT_BYTES] >
	        account_limits(&session->server->accounts, session->account)->input_bytes_per_uid / 2)
		room = SESSION_KEEP_BYTES;
	return left < room ? (size_t)left : room;
}

/* Handles what has been read as far as possible, and keeps the rest. */
static void take_input(struct session *session, const uint8_t *data, size_t len)
{
	bool direct = buffer_len(&session->in) == 0;
	size_t used = direct ? session_feed(session, data, len) : 0;

	if (session->state == SESSION_ENDED)
		return;
	if (used < len && input_keep(&session->server->inputs, &session->in, data + used, len - used) < 0)
		session_end(session, LOG_LEVEL_WARNING, "no memory for what it sent");
	else if (direct)
		charge_input(session);
	else
		feed_kept(session);
}

/* Handles kept input as far as possible. */
static void feed_kept(struct session *session)
{
	size_t used = session_feed(session, session->in.data + session->in.start, buffer_len(&session->in));

	input_drop(&session->server->inputs, &session->in, used);
	charge_input(session);
}

/* Adjusts the charge to what is kept now. */
static void charge_input(struct session *session)
{
	uint64_t kept = buffer_len(&session->in), charged = session->in_charge.amount;
	struct error err;

	if (kept < charged)
		charge_shrink(&session->in_charge, charged - kept);
	else if (kept > charged && session->state != SESSION_ENDED &&
	         charge_take(&session->in_charge, &session->server->accounts, session->account,
	                     CHARGE_INPUT_BYTES, kept - charged, &err) < 0)
		session_end(session, LOG_LEVEL_NOTICE, err.message);
}

/* Handles the whole messages in data, as far as limits allow; returns the bytes used. data is everything
 * not yet handled, from the start of a message. A uid with many requests stops at the end of its
 * time slice. */
static size_t session_feed(struct session *session, const uint8_t *data, size_t len)
{
	struct error err;
	size_t used = 0, frame_len;
	bool partial = false;

	session->server->taken_ns = uv_hrtime();
	while (session->state != SESSION_ENDED && !partial && used < len && !session_must_wait(session)) {
		switch (frame_scan(&session->scan, data + used, len - used, &frame_request_limits, &frame_len,
		                   &err)) {
		case FRAME_COMPLETE:
			session->handled += frame_len;
			if (!dispatch(session, data + used, frame_len)) {
				session->handled -= frame_len;
				session_wait_for_memory(session);
				break;
			}
			used += frame_len;
			session_drop_fds_before(session, session->handled);
			frame_timer_reset(session);
			break;
		case FRAME_PARTIAL:
			partial = true;
			break;
		case FRAME_BROKEN:
			session_end(session, LOG_LEVEL_NOTICE, err.message);
			break;
		}
	}

	if (partial && session->state == SESSION_OPEN)
		frame_timer_run(session);
	return used;
}

void session_resume(struct session *session)
{
	submission_take(session);
	if (session->state == SESSION_ENDED || session->waiting != WAIT_NONE)
		return;
	if (buffer_len(&session->in) == 0) {
		session_read(session);
		return;
	}
	feed_kept(session);
	session_update_poll(session);
	session_settle(session);
}

/* ---- What the loop watches ---------------------------------------------------------------------------- */

static void set_poll(struct session *session, int events)
{
	if (events == session->poll_events)
		return;
	session->poll_events = events;
	if (!events)
		uv_poll_stop(&session->poll);
	else if (watch_start(&session->poll, events, on_readable) < 0)
		session_end(session, LOG_LEVEL_WARNING, "no memory to watch its socket");
}

/* For a session whose socket is readable while it waits. */
static void stop_reading(struct session *session)
{
	set_poll(session, session->poll_events & ~UV_READABLE);
}

/* A session that is ready goes on so soon that it stays polled as it is: to stop and start again would take
 * three system calls. */
void session_update_poll(struct session *session)
{
	int events = 0;

	if (session->state == SESSION_ENDED)
		return;
	if (session_reads(session) && session->waiting == WAIT_READY)
		events |= session->poll_events & UV_READABLE;
	if (session_reads(session) && session->waiting == WAIT_NONE)
		events |= UV_READABLE;
	if ((session->waiting == WAIT_JOBS || session->waiting == WAIT_BEHIND ||
	     session->waiting == WAIT_MEMORY) &&
	    !session->sends_no_more)
		events |= UV_DISCONNECT;
	if (buffer_len(&session->out) > 0 && !session->unsent && !session->resend)
		events |= UV_WRITABLE;
	set_poll(session, events);
}
