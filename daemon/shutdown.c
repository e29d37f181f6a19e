/* SPDX-License-Identifier: Apache-2.0 */
/* A stop: sessions finish what they have read; after drain_deadline_ms those that are left are ended; what
 * does not end even then is left to the end of the process. A second signal skips the first step.
 *
 * A lost device: sessions are told, and have LOST_MS to read that.
 */
#include "shutdown.h"

#include <inttypes.h>
#include <unistd.h>

#include "daemon/observe/log.h"
#include "proto/text.h"
#include "server.h"
#include "daemon/net/session.h"
#include "daemon/resource/reach.h"

/* After the drain deadline: for what was ended then to be gone. */
#define LAST_MS 1000

/* For clients to read that the device is lost. */
#define LOST_MS 1000

static void on_drain_deadline(uv_timer_t *timer);
static void on_last_deadline(uv_timer_t *timer);

static void end_for_stop(struct session *session)
{
	session_end(session, LOG_LEVEL_NOTICE, "the service is stopping");
}

void server_drain(struct server *server)
{
	if (server->state != SERVER_RUNNING)
		return;
	server->state = SERVER_DRAINING;
	log_line(LOG_LEVEL_INFO, "stopping: %" PRIu64 " connection%s, %" PRIu64 " transform%s to finish",
	         server->accounts.total[CHARGE_CONNECTIONS],
	         text_plural(server->accounts.total[CHARGE_CONNECTIONS]), server->accounts.total[CHARGE_JOBS],
	         text_plural(server->accounts.total[CHARGE_JOBS]));
	notify_stopping(server);
	listener_close(&server->listener);
	exporter_close(&server->exporter);
	uv_timer_start(&server->drain_timer, on_drain_deadline, server->limits.drain_deadline_ms, 0);
	server_each_session(server, session_finish);
	outgoing_end(server);
	refusals_end(&server->refusals);
	drain_check(server);
}

static void end_now(struct server *server)
{
	server_each_session(server, end_for_stop);
	uv_timer_start(&server->drain_timer, on_last_deadline, LAST_MS, 0);
}

void drain_on_signal(uv_signal_t *signal, int number)
{
	struct server *server = signal->data;

	(void)number;
	if (server->state == SERVER_LOST)
		server->stop_asked = true;
	else if (server->state == SERVER_DRAINING)
		end_now(server); /* a second signal */
	else
		server_drain(server);
}

static void on_drain_deadline(uv_timer_t *timer)
{
	struct server *server = timer->data;

	log_line(LOG_LEVEL_WARNING, "not drained within %" PRIu64 " ms (drain_deadline_ms)",
	         server->limits.drain_deadline_ms);
	end_now(server);
}

static void log_stuck(struct session *session)
{
	session_log(session, LOG_LEVEL_WARNING, -1,
	            "it has not ended: %" PRIu32 " transform%s, %" PRIu32 " mapping%s, %" PRIu32
	            " ring%s under way",
	            session->jobs, text_plural(session->jobs), session->mappings,
	            text_plural(session->mappings), session->relays, text_plural(session->relays));
}

static void on_last_deadline(uv_timer_t *timer)
{
	struct server *server = timer->data;

	server_each_session(server, log_stuck);
	async_close_log_stuck(&server->accounts);
	chores_log_stuck(&server->chores);
	server->state = SERVER_STUCK;
	uv_stop(&server->loop);
}

void drain_check(void *arg)
{
	struct server *server = arg;

	if (server->state == SERVER_LOST && TAILQ_EMPTY(&server->sessions))
		uv_stop(&server->loop);

	if (server->state == SERVER_DRAINING && TAILQ_EMPTY(&server->sessions) && server->chores.n == 0)
		server_stop(server);
}

void server_on_session_freed(struct server *server)
{
	drain_check(server);
}

/* ---- The device is lost ------------------------------------------------------------------------------- */

static void on_lost_deadline(uv_timer_t *timer)
{
	struct server *server = timer->data;

	log_line(LOG_LEVEL_WARNING, "some clients did not read within %d ms that the device was lost",
	         LOST_MS);
	uv_stop(&server->loop);
}

static void answer_and_finish(struct session *session)
{
	session_resume(session);
	session_finish(session);
}

/* Work under way ends as DEVICE_LOST, in the engine or in dispatch. The loop stops when all of it is
 * answered, or when clients have had their time to read. */
void server_lose(struct server *server, const struct served_device *device)
{
	const struct engine *engine = device->engine;

	server->state = SERVER_LOST;
	if (server->devices.n > 1)
		log_line(LOG_LEVEL_ERROR, "engine %s of device %s is lost: %s; starting again", engine->name,
		         engine->uuid, engine->lost_why);
	else
		log_line(LOG_LEVEL_ERROR, "engine %s is lost: %s; starting again", engine->name,
		         engine->lost_why);
	notify_status(server);
	listener_pause(&server->listener);
	uv_timer_start(&server->drain_timer, on_lost_deadline, LOST_MS, 0);
	server_each_session(server, answer_and_finish);
	server_on_session_freed(server);
}

/* ---- A device is lost, and returns ----------------------------------------------------------------------
 */

static void finish_if_to_move(struct session *session)
{
	struct region *region;
	uint32_t cursor = 0;

	while ((region = region_table_next(&session->regions, &cursor)))
		if (region_is_to_move(region)) {
			answer_and_finish(session);
			return;
		}
}

static void tell_back(struct served_device *device)
{
	const struct engine *engine = device->engine;

	if (engine->dropped != device->dropped)
		log_line(LOG_LEVEL_WARNING, "device %s is back, but for %u mappings of regions: %s",
		         engine->uuid, engine->dropped - device->dropped,
		         "requests for them end with DEVICE_LOST until they are registered again");
	else
		log_line(LOG_LEVEL_INFO, "device %s is back", engine->uuid);
	device->dropped = engine->dropped;
}

/* What was under way on it has ended as DEVICE_LOST; nobody else notices. */
static void note_loss(struct server *server, struct served_device *device)
{
	const struct engine *engine = device->engine;

	if (engine->losses != device->losses) {
		log_line(LOG_LEVEL_ERROR, "device %s is lost: %s; its engine starts again", engine->uuid,
		         engine->lost_why);
		penalties_count(&server->penalties, uv_hrtime() / 1000000);
		device->is_away = true;
		device->is_silent = false;
		device->losses = engine->losses;
	}
	if (engine->failures != device->failures) {
		log_line(LOG_LEVEL_ERROR, "device %s does not come back: %s; its engine starts again",
		         engine->uuid, engine->lost_why);
		device->failures = engine->failures;
	}
	if (device->is_away && !engine->lost) {
		device->is_away = false;
		if (engine->dropped != device->dropped)
			server_each_session(server, finish_if_to_move);
		tell_back(device);
	}
}

void server_note_losses(struct server *server)
{
	for (uint32_t i = 0; i < server->devices.n; i++)
		note_loss(server, &server->devices.of[i]);
}

void server_abandon(struct server *server)
{
	chores_leave(&server->chores);
	if (server->listener.owns_path)
		socket_unlink(server->listener.path);
	if (server->exporter.owns)
		socket_unlink(server->exporter.endpoint.path);
}
