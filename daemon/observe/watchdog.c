/* SPDX-License-Identifier: Apache-2.0 */
/* Each tick feeds the watchdog, asks the engine for a sign of life by the next tick, and updates the status.
 */
#include "watchdog.h"

#include <systemd/sd-daemon.h>

#include "log.h"
#include "daemon/server.h"

#define TICKS    3    /* per watchdog interval */
#define PROBE_MS 2000 /* that the engine has at least between two probes without a watchdog */

void watchdog_open(struct watchdog *watchdog, struct server *server)
{
	*watchdog = (struct watchdog){ 0 };
	uv_timer_init(&server->loop, &watchdog->timer);
	watchdog->timer.data = server;
}

void watchdog_feed(void)
{
	if (sd_watchdog_enabled(0, NULL) > 0)
		sd_notify(0, "WATCHDOG=1");
}

static void probe(struct server *server)
{
	struct watchdog *watchdog = &server->watchdog;
	struct error err;
	bool is_silent = engine_probe(server->engine, &err) < 0;

	if (is_silent && !watchdog->is_silent)
		log_line(LOG_LEVEL_WARNING, "engine %s: %s; the watchdog is not notified until there is one",
		         server->engine->name, err.message);
	else if (watchdog->is_silent && !is_silent)
		log_line(LOG_LEVEL_NOTICE, "engine %s: it shows signs of life again", server->engine->name);
	watchdog->is_silent = is_silent;
}

bool watchdog_engine_up(struct watchdog *watchdog)
{
	uint64_t now = uv_now(watchdog->timer.loop);
	struct server *server = watchdog->timer.data;

	if (!uv_is_active((uv_handle_t *)&watchdog->timer) && now - watchdog->probed_ms >= PROBE_MS) {
		watchdog->probed_ms = now;
		probe(server);
	}
	return !server->engine->lost && !watchdog->is_silent;
}

static void on_tick(uv_timer_t *timer)
{
	struct server *server = timer->data;

	probe(server);
	if (!server->watchdog.is_silent)
		watchdog_feed();
	notify_status(server);
}

void watchdog_start(struct watchdog *watchdog)
{
	uint64_t us, every_ms;

	if (sd_watchdog_enabled(0, &us) <= 0)
		return;
	every_ms = us / 1000 / TICKS;
	uv_timer_start(&watchdog->timer, on_tick, 0, every_ms > 0 ? every_ms : 1);
}

void watchdog_close(struct watchdog *watchdog)
{
	uv_close((uv_handle_t *)&watchdog->timer, NULL);
}
