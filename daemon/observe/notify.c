/* SPDX-License-Identifier: Apache-2.0 */
/* A status text for each state of the server. */
#include "notify.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <systemd/sd-daemon.h>

#include "proto/text.h"
#include "daemon/server.h"

static void bytes_text(uint64_t bytes, char *text, size_t size)
{
	static const char *const units[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double value = (double)bytes / 1024;
	int i = 0;

	for (; value >= 1000 && i < 5; i++)
		value /= 1024;
	snprintf(text, size, "%.1f %s", value, units[i]);
}

static void serving_text(const struct server *server, char *text, size_t size)
{
	uint64_t connections = server->accounts.total[CHARGE_CONNECTIONS];
	char bytes[32], device[sizeof((struct engine){ 0 }).device + 32];

	server_describe(server, device, sizeof device);
	bytes_text(server->mapped_bytes, bytes, sizeof bytes);
	snprintf(text, size,
	         "Serving on %s, engine %s (%s)%s: %" PRIu64 " client%s, %" PRIu64 " region%s of %s%s",
	         server->listener.path, server_engine_name(server), device,
	         server->watchdog.is_silent ? ", which gives no sign of life" : "", connections,
	         text_plural(connections), server->n_regions, text_plural(server->n_regions), bytes,
	         server->notify.note);
}

static void status_text(const struct server *server, char *text, size_t size)
{
	switch (server->state) {
	case SERVER_RUNNING:
		serving_text(server, text, size);
		break;
	case SERVER_LOST:
		snprintf(text, size, "Starting again: engine %s was lost: %s", server_engine_name(server),
		         devices_lost_why(&server->devices));
		break;
	case SERVER_DRAINING:
	case SERVER_STOPPED:
	case SERVER_STUCK:
		snprintf(text, size, "Stopping: %" PRIu64 " connection%s, %" PRIu64 " transform%s to finish",
		         server->accounts.total[CHARGE_CONNECTIONS],
		         text_plural(server->accounts.total[CHARGE_CONNECTIONS]),
		         server->accounts.total[CHARGE_JOBS],
		         text_plural(server->accounts.total[CHARGE_JOBS]));
		break;
	}
}

static void tell(struct server *server, const char *state)
{
	struct notify *notify = &server->notify;
	char text[sizeof notify->told];

	if (!getenv("NOTIFY_SOCKET"))
		return;
	status_text(server, text, sizeof text);
	if (!*state && !strcmp(text, notify->told))
		return;
	memcpy(notify->told, text, sizeof text);
	sd_notifyf(0, "%sSTATUS=%s", state, text);
}

void notify_ready(struct server *server, const char *note)
{
	snprintf(server->notify.note, sizeof server->notify.note, "%s", note);
	tell(server, "READY=1\n");
}

void notify_status(struct server *server)
{
	tell(server, "");
}

void notify_reloading(struct server *server)
{
	sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64 "\nSTATUS=Reading the settings again",
	           uv_hrtime() / 1000);
	*server->notify.told = '\0';
}

void notify_stopping(struct server *server)
{
	tell(server, "STOPPING=1\n");
}
