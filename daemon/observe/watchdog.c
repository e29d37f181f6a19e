/* SPDX-License-Identifier: Apache-2.0 */
/* Sends the state of the service and the notifications of the watchdog to the service manager. */
#include "watchdog.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <systemd/sd-daemon.h>

#include "daemon/loop/log.h"
#include "daemon/memory/service.h"
#include "proto/status.h"

/* ==== Notices ======================================================================================== */

static void bytes_text(uint64_t bytes, char *text, size_t size)
{
	static const char *const units[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double value = (double)bytes / 1024;
	int i = 0;

	for (; value >= 1000 && i < 5; i++)
		value /= 1024;
	snprintf(text, size, "%.1f %s", value, units[i]);
}

static void serving_text(const struct notify *notify, char *text, size_t size)
{
	const struct service *service = notify->service;
	uint64_t connections = service->accounts.total[CHARGE_CONNECTIONS];
	char bytes[32], device[sizeof((struct engine){ 0 }).device + 32];

	service_describe(service, device, sizeof device);
	bytes_text(service->mapped_bytes, bytes, sizeof bytes);
	snprintf(text, size,
	         "Serving on %s, engine %s (%s)%s: %" PRIu64 " client%s, %" PRIu64 " region%s of %s%s",
	         notify->path, service_engine_name(service), device,
	         !devices_answer(&service->devices) ? ", which gives no sign of life" : "", connections,
	         text_plural(connections), service->n_regions, text_plural(service->n_regions), bytes,
	         notify->note);
}

static void status_text(const struct notify *notify, char *text, size_t size)
{
	const struct service *service = notify->service;
	switch (service->state) {
	case SERVICE_RUNNING:
		serving_text(notify, text, size);
		break;
	case SERVICE_LOST:
		snprintf(text, size, "Starting again: engine %s was lost: %s", service_engine_name(service),
		         devices_lost_why(&service->devices));
		break;
	case SERVICE_DRAINING:
	case SERVICE_STOPPED:
	case SERVICE_STUCK:
		snprintf(text, size, "Stopping: %" PRIu64 " connection%s, %" PRIu64 " transform%s to finish",
		         service->accounts.total[CHARGE_CONNECTIONS],
		         text_plural(service->accounts.total[CHARGE_CONNECTIONS]),
		         service->accounts.total[CHARGE_JOBS],
		         text_plural(service->accounts.total[CHARGE_JOBS]));
		break;
	}
}

/* Sends state, which is "" or lines such as "READY=1\n", with the current status. Does nothing if state is ""
 * and the status has not changed. */
static void tell(struct notify *notify, const char *state)
{
	char text[sizeof notify->told];

	if (!getenv("NOTIFY_SOCKET"))
		return;
	status_text(notify, text, sizeof text);
	if (!*state && !strcmp(text, notify->told))
		return;
	memcpy(notify->told, text, sizeof text);
	sd_notifyf(0, "%sSTATUS=%s", state, text);
}

void notify_ready(struct notify *notify, const char *note)
{
	snprintf(notify->note, sizeof notify->note, "%s", note);
	tell(notify, "READY=1\n");
}

void notify_status(struct notify *notify)
{
	tell(notify, "");
}

void notify_reloading(struct notify *notify)
{
	sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64 "\nSTATUS=Reading the settings again",
	           uv_hrtime() / 1000);
	*notify->told = '\0';
}

void notify_stopping(struct notify *notify)
{
	tell(notify, "STOPPING=1\n");
}

/* ==== Probes ========================================================================================= */

/* Each tick of the timer probes the engines, notifies the watchdog if they answer, and sends a changed
 * status. */

#define TICKS 3 /* ticks per watchdog interval */

void watchdog_feed(void)
{
	if (sd_watchdog_enabled(0, NULL) > 0)
		sd_notify(0, "WATCHDOG=1");
}

static void on_tick(uv_timer_t *timer)
{
	struct notify *notify = timer->data;

	service_probe(notify->service);
	if (devices_answer(&notify->service->devices))
		watchdog_feed();
	notify_status(notify);
}

void watchdog_start(struct notify *notify)
{
	uint64_t us, every_ms;

	if (sd_watchdog_enabled(0, &us) <= 0)
		return;
	every_ms = us / 1000 / TICKS;
	notify->service->is_watched = true;
	uv_timer_start(&notify->watchdog, on_tick, 0, every_ms > 0 ? every_ms : 1);
}

void notify_init(struct notify *notify, struct service *service, const char *path)
{
	notify->service = service;
	notify->path = path;
	uv_timer_init(&service->loop, &notify->watchdog);
	notify->watchdog.data = notify;
}
