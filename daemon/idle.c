/* Connections that do nothing: nothing under way, nothing half said, for idle_deadline_ms. */
#include "server.h"
#include "daemon/net/session.h"

#define LOOKS 4 /* within a deadline */

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
