/* What the service does when its engine is lost: everybody is told, for a bounded time; then it starts again
 * (recovery.c, by tmad.c). */
#include "server.h"

#include <unistd.h>

#include "daemon/observe/log.h"
#include "daemon/net/session.h"

/* For clients to read that the device is lost. */
#define LOST_MS 1000

static void on_lost_deadline(uv_timer_t *timer)
{
	struct server *server = timer->data;

	log_line(LOG_LEVEL_WARNING, "some clients have not read within %d ms that the device is lost",
	         LOST_MS);
	uv_stop(&server->loop);
}

static void answer_and_finish(struct session *session)
{
	session_resume(session);
	session_finish(session);
}

/* What is under way ends as DEVICE_LOST, in the engine or in dispatch. When all of it is answered, or clients
 * have had their time to read, the loop stops. */
void server_lose(struct server *server)
{
	server->state = SERVER_LOST;
	log_line(LOG_LEVEL_ERROR, "engine %s is lost: %s; starting again", server->engine->name,
	         server->engine->lost_why);
	notify_status(server);
	penalties_count(&server->penalties, uv_hrtime() / 1000000);
	listener_pause(&server->listener);
	uv_timer_start(&server->drain_timer, on_lost_deadline, LOST_MS, 0);
	server_each_session(server, answer_and_finish);
	server_on_session_freed(server);
}

void server_abandon(struct server *server)
{
	if (server->listener.owns_path)
		unlink(server->listener.path);
	if (server->exporter.owns && endpoint_path(&server->exporter.endpoint))
		unlink(endpoint_path(&server->exporter.endpoint));
}
