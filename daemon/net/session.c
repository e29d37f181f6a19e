/* Connections: reading, framing, and the one way to the end. They open in opening.c; replies are in reply.c.
 */
#include "session.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <linux/sockios.h>

#include "daemon/method/dispatch.h"
#include "daemon/resource/prepared.h"
#include "daemon/server.h"
#include "daemon/resource/submission.h"
#include "watch.h"

#define NS_PER_MS UINT64_C(1000000)

static void on_readable(uv_poll_t *poll, int status, int events);
static void on_frame_deadline(uv_timer_t *timer);
static void on_closed(uv_handle_t *handle);
static void session_read(struct session *session);
static size_t room_to_read(const struct session *session);
static void take_input(struct session *session, const uint8_t *data, size_t len);
static void feed_kept(struct session *session);
static void charge_input(struct session *session);
static void stop_reading(struct session *session);
static size_t session_feed(struct session *session, const uint8_t *data, size_t len);

/* ---- In ---------------------------------------------------------------------------------------------- */

static bool session_reads(const struct session *session)
{
	return session->state != SESSION_ENDED && session->received < session->last;
}

/* Of one that waits and is not read: whether its peer is gone altogether. One that only closed its sending
 * side still has its answers. */
static void on_disconnect(struct session *session)
{
	struct pollfd peer = { .fd = session->fd, .events = 0 };

	if (poll(&peer, 1, 0) > 0 && (peer.revents & (POLLHUP | POLLERR)))
		session_end(session, LOG_LEVEL_DEBUG, "disconnected");
	session->sends_no_more = true;
	session_update_poll(session);
}

/* What the socket itself says: libuv calls every error of a socket EBADF. */
static int socket_error(int fd)
{
	int error = 0;
	socklen_t len = sizeof error;

	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0 ? errno : error;
}

/* A peer that closes its socket while there are replies in it resets the connection. */
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

/* The peer is done sending. One that is gone altogether gets no answers; one that only closed its sending
 * side does. */
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

	if (!session_reads(session))
		return;
	n = socket_receive(session->fd, server->receive, room_to_read(session), fds, &n_fds);
	if (n == -EAGAIN || n == -EINTR)
		return;
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
	session->used_ms = uv_now(&server->loop);

	take_input(session, server->receive, (size_t)n);
	session_update_poll(session);
	session_settle(session);
}

/* What is unhandled already is the beginning of a message: no more is read than its end and what may come
 * behind it. Of a uid that has much unhandled, little is read at a time. */
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

/* Handles what has been read, as far as it goes, and keeps the rest. */
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

/* Handles what was kept. */
static void feed_kept(struct session *session)
{
	size_t used = session_feed(session, session->in.data + session->in.start, buffer_len(&session->in));

	input_drop(&session->server->inputs, &session->in, used);
	charge_input(session);
}

/* For what is kept until there is more, or until it may be handled. */
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

/* A message that has begun has frame_deadline_ms in all to arrive whole. The clock stands still while its
 * rest is left unread: that time is not the peer's. */
static void frame_clock_reset(struct session *session)
{
	uv_timer_stop(&session->frame_timer);
	session->frame_left_ns = limit_ns(session->server->limits.frame_deadline_ms);
}

static void frame_clock_pause(struct session *session)
{
	uint64_t ran;

	if (!uv_is_active((uv_handle_t *)&session->frame_timer))
		return;
	uv_timer_stop(&session->frame_timer);
	ran = uv_hrtime() - session->frame_start_ns;
	session->frame_left_ns -= ran < session->frame_left_ns ? ran : session->frame_left_ns;
}

static void frame_clock_run(struct session *session)
{
	if (session->frame_left_ns == 0) {
		on_frame_deadline(&session->frame_timer);
	} else if (!uv_is_active((uv_handle_t *)&session->frame_timer)) {
		session->frame_start_ns = uv_hrtime();
		uv_timer_start(&session->frame_timer, on_frame_deadline,
		               (session->frame_left_ns + NS_PER_MS - 1) / NS_PER_MS, 0);
	}
}

/* Of a session with a wait under way: whether one more transform may stand behind it. */
static bool fits_behind(const struct session *session)
{
	return session->transforms < session->server->limits.jobs_behind_wait &&
	       charge_fits(&session->server->accounts, session->account, CHARGE_BEHIND_WAITS, 1);
}

/* Whether the next request has to stay unread for now. The time that it waits is not
 * the peer's. One that waits already is in a queue: entries of its ring may have put it there, with messages
 * behind the one that rang. */
bool session_must_wait(struct session *session)
{
	if (session->waiting != WAIT_NONE)
		return true;
	if (session->server->state == SERVER_LOST)
		return false;
	if (!session_has_room(session)) {
		session->waiting = WAIT_REPLIES;
	} else if (!charge_fits(&session->server->accounts, session->account, CHARGE_JOBS, 1)) {
		session->waiting = WAIT_JOBS;
		TAILQ_INSERT_TAIL(&session->account->waiting, session, waiting_entry);
	} else if (session->waiting_jobs > 0 && !fits_behind(session)) {
		session->waiting = WAIT_BEHIND;
	} else if (time_slice_is_over(&session->server->time_slices, session->account)) {
		time_slices_add(session->server, session);
	} else {
		return false;
	}
	frame_clock_pause(session);
	return true;
}

/* Handles the whole messages in data, as far as limits allow; returns the bytes used. data is everything
 * not yet handled, from the start of a message. A uid that has much to ask takes turns with others. */
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
			dispatch(session, data + used, frame_len);
			used += frame_len;
			session_drop_fds(session, session->handled);
			frame_clock_reset(session);
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
		frame_clock_run(session);
	return used;
}

void session_resume(struct session *session)
{
	submission_run(session);
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

void session_on_job_ended(struct session *session)
{
	if (session->waiting == WAIT_BEHIND)
		time_slices_add(session->server, session);
}

static void on_frame_deadline(uv_timer_t *timer)
{
	struct session *session = timer->data;

	session_end(session, LOG_LEVEL_NOTICE,
	            "a message did not arrive completely in time (frame_deadline_ms)");
}

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

/* It has more, and waits for its turn longer than the loop takes to go round. */
static void stop_reading(struct session *session)
{
	set_poll(session, session->poll_events & ~UV_READABLE);
}

/* Asks the loop for just the events that can be acted on. One whose turn comes at once goes on as it is: to
 * ask less and then more again is three system calls. */
void session_update_poll(struct session *session)
{
	int events = 0;

	if (session->state == SESSION_ENDED)
		return;
	if (session_reads(session) && session->waiting == WAIT_READY)
		events |= session->poll_events & UV_READABLE;
	if (session_reads(session) && session->waiting == WAIT_NONE)
		events |= UV_READABLE;
	if ((session->waiting == WAIT_JOBS || session->waiting == WAIT_BEHIND) && !session->sends_no_more)
		events |= UV_DISCONNECT;
	if (buffer_len(&session->out) > 0 && !session->unsent && !session->resend)
		events |= UV_WRITABLE;
	set_poll(session, events);
}

/* ---- The end ----------------------------------------------------------------------------------------- */

void session_finish(struct session *session)
{
	int unread;

	if (session->state != SESSION_OPEN)
		return;
	session->state = SESSION_FINISHING;
	submission_stop(session->submission);
	if (session->last == UINT64_MAX)
		session->last =
		    session->received + (ioctl(session->fd, SIOCINQ, &unread) < 0 ? 0 : (uint64_t)unread);
	uv_timer_stop(&session->frame_timer);
	session_update_poll(session);
	session_settle(session);
}

static void stop_waiting(struct session *session)
{
	if (session->waiting == WAIT_JOBS)
		TAILQ_REMOVE(&session->account->waiting, session, waiting_entry);
	else if (session->waiting == WAIT_READY)
		time_slices_remove(session->server, session);
	session->waiting = WAIT_NONE;
}

void session_end(struct session *session, enum log_level level, const char *reason)
{
	if (session->state == SESSION_ENDED)
		return;
	session->state = SESSION_ENDED;
	session_log(session, level, -1, "ended: %s", reason);
	if (level < LOG_LEVEL_DEBUG)
		session->server->metrics.sessions_ended++;

	stop_waiting(session);
	submission_stop(session->submission);
	if (session->unsent)
		TAILQ_REMOVE(&session->server->unsent, session, unsent_entry);
	session->unsent = false;
	session_drop_fds(session, UINT64_MAX);
	outgoing_drop(session);

	engine_stream_cancel(session->server->engine, session->stream);
	session_give_up_mappings(session);
	region_table_release_all(&session->regions);
	prepared_release_all(session);
	uv_poll_stop(&session->poll);
	uv_timer_stop(&session->frame_timer);
	uv_timer_stop(&session->reply_timer);
	session_settle(session);
}

static void close_handles(struct session *session)
{
	if (uv_is_closing((uv_handle_t *)&session->poll))
		return;
	uv_close((uv_handle_t *)&session->poll, on_closed);
	uv_close((uv_handle_t *)&session->frame_timer, on_closed);
	uv_close((uv_handle_t *)&session->reply_timer, on_closed);
}

static void on_closed(uv_handle_t *handle)
{
	struct session *session = handle->data;

	if (handle->type == UV_POLL)
		outgoing_close_socket(session);
	session->handles--;
	session_settle(session);
}

static bool is_all_answered(const struct session *session)
{
	return !session_reads(session) && session->waiting == WAIT_NONE && buffer_len(&session->out) == 0;
}

void session_settle(struct session *session)
{
	struct server *server = session->server;

	if (session->state == SESSION_ENDED && session->jobs == 0) {
		submission_close(session->submission);
		close_handles(session);
	}
	if (session->jobs > 0 || session->mappings > 0)
		return;
	if (session->state == SESSION_FINISHING && is_all_answered(session))
		session_end(session, LOG_LEVEL_DEBUG, "finished");
	if (session->state != SESSION_ENDED || session->handles > 0)
		return;

	TAILQ_REMOVE(&server->sessions, session, entry);
	session_free(session);
	server_on_session_freed(server);
}
