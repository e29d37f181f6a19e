/* SPDX-License-Identifier: Apache-2.0 */
/* Output of a session: replies are queued, charged, and sent together before the loop sleeps.
 *
 * A descriptor goes with the first byte of its reply. What the socket does not take stays queued; the peer
 * has reply_deadline_ms to read on (deadline.h). The session's log lines are written here too.
 */
#include "session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/server.h"
#include "deadline.h"

/* Before another attempt to send descriptors, when as many are on their way as the kernel allows. */
#define RESEND_MS 20

bool session_has_room(const struct session *session)
{
	return buffer_len(&session->out) < session->server->limits.reply_pause_bytes &&
	       session->n_out_fds + session->mappings < SESSION_MAX_OUTGOING_FDS;
}

/* Charges for what was appended since the buffer had before bytes, and has it sent before the loop sleeps. */
static void queue_reply(struct session *session, size_t before)
{
	struct server *server = session->server;
	size_t len = buffer_len(&session->out);
	struct error err;

	if (len > server->limits.reply_limit_bytes) {
		session_end(session, LOG_LEVEL_NOTICE, "it reads no replies (reply_limit_bytes)");
		return;
	}
	if (charge_take(&session->out_charge, &server->accounts, session->account, CHARGE_QUEUED_BYTES,
	                len - before, &err) < 0) {
		session_end(session, LOG_LEVEL_NOTICE, err.message);
		return;
	}
	if (!session->unsent) {
		session->unsent = true;
		TAILQ_INSERT_TAIL(&server->unsent, session, unsent_entry);
	}
}

static void close_unsent(struct session *session, int fd)
{
	struct charge charge = { 0 };

	charge_move(&session->out_fds_charge, &charge, 1);
	async_close_fd(&session->server->chores, session->account, fd, &charge);
}

void session_reply(struct session *session, uint32_t msgid, const struct method *method, const void *result,
                   int fd)
{
	size_t before = buffer_len(&session->out);

	if (session->state == SESSION_ENDED || (fd >= 0 && session->n_out_fds == SESSION_MAX_OUTGOING_FDS) ||
	    rpc_encode_result(&session->out, msgid, method, result) < 0) {
		if (fd >= 0)
			close_unsent(session, fd);
		if (session->state != SESSION_ENDED)
			session_end(session, LOG_LEVEL_WARNING, "no room for its replies");
		return;
	}
	if (fd >= 0)
		session->out_fds[session->n_out_fds++] = (struct outgoing_fd){ fd, session->sent + before };
	session_log(session, LOG_LEVEL_DEBUG, msgid, "answered %s", method->name);
	queue_reply(session, before);
}

void session_reply_queued(struct session *session, uint32_t msgid)
{
	size_t before = buffer_len(&session->out);

	if (session->state == SESSION_ENDED)
		return;
	if (rpc_encode_queued(&session->out, msgid) < 0)
		session_end(session, LOG_LEVEL_WARNING, "no memory for its replies");
	else
		queue_reply(session, before);
}

void session_notify_done(struct session *session, uint32_t msgid, const struct method *method,
                         const void *result, const struct error *error)
{
	size_t before = buffer_len(&session->out);

	if (error)
		session_count_error(session, error->status);
	if (session->state == SESSION_ENDED)
		return;
	if (rpc_encode_done(&session->out, msgid, method, result, error) < 0)
		session_end(session, LOG_LEVEL_WARNING, "no memory for its replies");
	else
		queue_reply(session, before);
}

void session_refuse(struct session *session, uint32_t msgid, const struct method *method, uint64_t start_ns,
                    const struct error *error)
{
	size_t before = buffer_len(&session->out);

	session_count_error(session, error->status);
	if (session->state == SESSION_ENDED)
		return;
	session_log_refusal(session, msgid, method, start_ns, error);
	if (rpc_encode_error(&session->out, msgid, error) < 0)
		session_end(session, LOG_LEVEL_WARNING, "no memory for its replies");
	else
		queue_reply(session, before);
}

/* Sends once. Returns the bytes sent or a negative errno: EBUSY while this peer has too many descriptors to
 * receive, ETOOMANYREFS while all peers together have. A descriptor goes with the first byte of its reply. */
static ssize_t send_some(struct session *session)
{
	size_t len = buffer_len(&session->out), n_fds = 0;
	ssize_t n;

	if (session->n_out_fds > 0) {
		uint64_t ahead = session->out_fds[0].pos - session->sent;

		if (ahead == 0) {
			n_fds = 1;
			if (session->n_out_fds > 1)
				ahead = session->out_fds[1].pos - session->sent;
		}
		if (ahead > 0 && ahead < len)
			len = ahead;
	}
	if (n_fds > 0 && !outgoing_may_send(session))
		return -EBUSY;
	n = socket_send(session->fd, session->out.data + session->out.start, len, &session->out_fds[0].fd,
	                n_fds);
	if (n > 0 && n_fds > 0)
		outgoing_sent(session);
	return n;
}

static void resend_later(struct session *session)
{
	uv_timer_t *timer = &session->server->resend;

	session->resend = true;
	if (!uv_is_active((uv_handle_t *)timer))
		uv_timer_start(timer, on_resend, RESEND_MS, 0);
}

static void resend(struct session *session)
{
	if (session->resend)
		session_flush(session);
}

void on_resend(uv_timer_t *timer)
{
	server_each_session(timer->data, resend);
}

static void log_crowded(struct server *server)
{
	if (log_allows(LOG_NOBODY, uv_now(&server->loop)))
		log_line(
		    LOG_LEVEL_WARNING,
		    "descriptors wait to be sent: as many as LimitNOFILE= allows are on their way to clients");
}

void session_flush(struct session *session)
{
	bool is_peers = true; /* it is the peer that unsent replies wait for */

	session->resend = false;
	if (session->unsent) {
		session->unsent = false;
		TAILQ_REMOVE(&session->server->unsent, session, unsent_entry);
	}
	while (session->state != SESSION_ENDED && buffer_len(&session->out) > 0) {
		ssize_t n = send_some(session);

		if (n == -EINTR)
			continue;
		if (n == -EAGAIN)
			break;
		if (n == -EBUSY || n == -ETOOMANYREFS) {
			is_peers = n == -EBUSY;
			resend_later(session);
			break;
		}
		if (n < 0) {
			session_end(session, LOG_LEVEL_DEBUG, strerror((int)-n));
			return;
		}
		session->sent += (uint64_t)n;
		charge_shrink(&session->out_charge, (uint64_t)n);
		buffer_consume(&session->out, (size_t)n, SESSION_KEEP_BYTES);
		session->used_ms = server_now_ms(session->server);
		reply_timer_reset(session);
	}
	if (session->state == SESSION_ENDED)
		return;

	if (!is_peers) {
		log_crowded(session->server);
		reply_timer_reset(session);
	} else if (buffer_len(&session->out) > 0) {
		reply_timer_run(session);
	}
	if (session->waiting == WAIT_REPLIES && session_has_room(session))
		time_slices_add(session->server, session);
	session_update_poll(session);
	session_settle(session);
}

/* ---- The log ------------------------------------------------------------------------------------------ */

static bool may_log(const struct session *session, enum log_level level)
{
	return log_wants(level) && (level == LOG_LEVEL_DEBUG ||
	                            log_allows(session->account->user, uv_now(&session->server->loop)));
}

static struct log_about about(const struct session *session)
{
	return (struct log_about){
		.has_uid = true,
		.uid = session->peer.uid,
		.cgroup = session->account->cgroup,
		.pid = session->peer.pid,
		.session = session->id,
	};
}

void session_log(struct session *session, enum log_level level, int64_t msgid, const char *format, ...)
{
	struct log_about of;
	char text[512];
	va_list args;

	if (!may_log(session, level))
		return;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	of = about(session);
	of.has_request = msgid >= 0;
	of.request = (uint32_t)msgid;
	log_about(level, &of, "%s", text);
}

/* Malformed requests concern the client alone; limits, memory, the device and defects also concern the
 * operator. */
static enum log_level refusal_level(int status)
{
	switch (status) {
	case STATUS_QUOTA:
	case STATUS_BUSY:
	case STATUS_NO_MEMORY:
	case STATUS_DEVICE:
	case STATUS_INTERNAL:
		return LOG_LEVEL_WARNING;
	default:
		return LOG_LEVEL_NOTICE;
	}
}

void session_log_refusal(struct session *session, uint32_t msgid, const struct method *method,
                         uint64_t start_ns, const struct error *error)
{
	enum log_level level = refusal_level(error->status);
	struct log_about of;

	if (!may_log(session, level))
		return;
	of = about(session);
	of.has_request = true;
	of.request = msgid;
	of.method = method ? method->name : NULL;
	of.status = status_name(error->status);
	of.duration_us = (uv_hrtime() - start_ns + 999) / 1000;
	log_about(level, &of, "refused %s: %s: %s", method ? method->name : "a request", of.status,
	          error->message);
}
