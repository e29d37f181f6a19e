/* The deadlines of sessions: for a message to arrive, and for a connection that does nothing. */
#include "session.h"

#include "daemon/server.h"

#define NS_PER_MS UINT64_C(1000000)

#define LOOKS 4 /* within a deadline */

static void on_frame_deadline(uv_timer_t *timer);

/* ---- A message's -------------------------------------------------------------------------------------- */

/* A message that has begun has frame_deadline_ms in all to arrive whole. The clock stands still while its
 * rest is left unread: that time is not the peer's. */
void frame_clock_reset(struct session *session)
{
	uv_timer_stop(&session->frame_timer);
	session->frame_left_ns = limit_ns(session->server->limits.frame_deadline_ms);
}

void frame_clock_pause(struct session *session)
{
	uint64_t ran;

	if (!uv_is_active((uv_handle_t *)&session->frame_timer))
		return;
	uv_timer_stop(&session->frame_timer);
	ran = uv_hrtime() - session->frame_start_ns;
	session->frame_left_ns -= ran < session->frame_left_ns ? ran : session->frame_left_ns;
}

void frame_clock_run(struct session *session)
{
	if (session->frame_left_ns == 0) {
		on_frame_deadline(&session->frame_timer);
	} else if (!uv_is_active((uv_handle_t *)&session->frame_timer)) {
		session->frame_start_ns = uv_hrtime();
		uv_timer_start(&session->frame_timer, on_frame_deadline,
		               (session->frame_left_ns + NS_PER_MS - 1) / NS_PER_MS, 0);
	}
}

static void on_frame_deadline(uv_timer_t *timer)
{
	struct session *session = timer->data;

	session_end(session, LOG_LEVEL_NOTICE,
	            "a message did not arrive completely in time (frame_deadline_ms)");
}

/* ---- Of a connection that does nothing ---------------------------------------------------------------- */

static void end_idle(struct session *session)
{
	struct server *server = session->server;
	bool busy = session->jobs > 0 || session->mappings > 0 || buffer_len(&session->in) > 0 ||
	            buffer_len(&session->out) > 0;

	if (session->state == SESSION_OPEN && !busy &&
	    uv_now(&server->loop) - session->used_ms >= server->limits.idle_deadline_ms)
		session_end(session, LOG_LEVEL_INFO, "it was idle for too long (idle_deadline_ms)");
}

static void on_idle(uv_timer_t *timer)
{
	server_each_session(timer->data, end_idle);
}

void server_watch_idle(struct server *server)
{
	uint64_t deadline = server->limits.idle_deadline_ms;

	if (deadline == 0)
		uv_timer_stop(&server->idle);
	else
		uv_timer_start(&server->idle, on_idle, deadline / LOOKS + 1, deadline / LOOKS + 1);
}
