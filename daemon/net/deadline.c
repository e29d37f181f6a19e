/* SPDX-License-Identifier: Apache-2.0 */
/* Two timers of each session, and one of the server that checks all sessions for idleness. */
#include "deadline.h"

#include "daemon/server.h"
#include "session.h"

#define NS_PER_MS UINT64_C(1000000)

#define IDLE_CHECKS 4 /* within an idle deadline */

static void on_frame_deadline(uv_timer_t *timer);
static void on_reply_deadline(uv_timer_t *timer);

static const struct clock *clock_of(const struct session *session)
{
	return session->server->clock;
}

/* ---- A message's arrival ------------------------------------------------------------------------------ */

void frame_timer_run(struct session *session)
{
	if (session->frame_left_ns == 0) {
		on_frame_deadline(&session->frame_timer);
	} else if (!uv_is_active((uv_handle_t *)&session->frame_timer)) {
		session->frame_start_ns = clock_of(session)->now_ns();
		clock_of(session)->timer_start(&session->frame_timer, on_frame_deadline,
		                               (session->frame_left_ns + NS_PER_MS - 1) / NS_PER_MS, 0);
	}
}

void frame_timer_pause(struct session *session)
{
	uint64_t ran;

	if (!uv_is_active((uv_handle_t *)&session->frame_timer))
		return;
	clock_of(session)->timer_stop(&session->frame_timer);
	ran = clock_of(session)->now_ns() - session->frame_start_ns;
	session->frame_left_ns -= ran < session->frame_left_ns ? ran : session->frame_left_ns;
}

void frame_timer_reset(struct session *session)
{
	clock_of(session)->timer_stop(&session->frame_timer);
	session->frame_left_ns = limit_ns(session->server->limits.frame_deadline_ms);
}

static void on_frame_deadline(uv_timer_t *timer)
{
	struct session *session = timer->data;

	session_end(session, LOG_LEVEL_NOTICE,
	            "a message did not arrive completely in time (frame_deadline_ms)");
}

/* ---- Replies ------------------------------------------------------------------------------------------ */

void reply_timer_run(struct session *session)
{
	if (!uv_is_active((uv_handle_t *)&session->reply_timer))
		clock_of(session)->timer_start(&session->reply_timer, on_reply_deadline,
		                               session->server->limits.reply_deadline_ms, 0);
}

void reply_timer_reset(struct session *session)
{
	clock_of(session)->timer_stop(&session->reply_timer);
}

static void on_reply_deadline(uv_timer_t *timer)
{
	struct session *session = timer->data;

	session_end(session, LOG_LEVEL_NOTICE, "it did not read its replies in time (reply_deadline_ms)");
}

/* ---- Idleness ----------------------------------------------------------------------------------------- */

static void end_idle(struct session *session)
{
	struct server *server = session->server;
	bool busy = session->jobs > 0 || session->mappings > 0 || buffer_len(&session->in) > 0 ||
	            buffer_len(&session->out) > 0;

	if (session->state == SESSION_OPEN && !busy &&
	    server_now_ms(server) - session->used_ms >= server->limits.idle_deadline_ms)
		session_end(session, LOG_LEVEL_INFO, "it was idle for too long (idle_deadline_ms)");
}

static void on_idle_check(uv_timer_t *timer)
{
	server_each_session(timer->data, end_idle);
}

void server_watch_idle(struct server *server)
{
	uint64_t every_ms = server->limits.idle_deadline_ms / IDLE_CHECKS + 1;

	if (server->limits.idle_deadline_ms == 0)
		server->clock->timer_stop(&server->idle);
	else
		server->clock->timer_start(&server->idle, on_idle_check, every_ms, every_ms);
}
