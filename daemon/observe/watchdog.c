/* SPDX-License-Identifier: Apache-2.0 */
/* Each tick feeds the watchdog, asks the engine for a sign of life by the next tick, and updates the status.
 */
#include "watchdog.h"

#include <stdio.h>

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

/* of: what tells the device from others, " GPU-...", or nothing. */
static void probe_one(struct served_device *device, const char *of)
{
	struct error err;
	bool is_silent = engine_probe(device->engine, &err) < 0;

	if (is_silent && !device->is_silent && device->engine->returns)
		log_line(LOG_LEVEL_WARNING, "engine %s%s: %s; the process is ended unless there is one soon",
		         device->engine->name, of, err.message);
	else if (is_silent && !device->is_silent)
		log_line(LOG_LEVEL_WARNING,
		         "engine %s%s: %s; the watchdog is not notified until there is one",
		         device->engine->name, of, err.message);
	else if (device->is_silent && !is_silent)
		log_line(LOG_LEVEL_NOTICE, "engine %s%s: it shows signs of life again", device->engine->name,
		         of);
	device->is_silent = is_silent;
}

static void probe(struct server *server)
{
	struct devices *devices = &server->devices;

	for (uint32_t i = 0; i < devices->n; i++) {
		char of[sizeof devices->of[i].engine->uuid + 1] = "";

		if (devices->n > 1)
			snprintf(of, sizeof of, " %s", devices->of[i].engine->uuid);
		probe_one(&devices->of[i], of);
	}
	server->watchdog.is_silent = !devices_answer(devices);
}

bool watchdog_engine_up(struct watchdog *watchdog)
{
	uint64_t now = uv_now(watchdog->timer.loop);
	struct server *server = watchdog->timer.data;

	if (!uv_is_active((uv_handle_t *)&watchdog->timer) && now - watchdog->probed_ms >= PROBE_MS) {
		watchdog->probed_ms = now;
		probe(server);
	}
	return devices_are_up(&server->devices);
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
