/* SPDX-License-Identifier: Apache-2.0 */
/* Notifications of the service manager: the state of the service (sd_notify(3)), and its watchdog
 * (WATCHDOG_USEC, sd_watchdog_enabled(3)).
 *
 * A timer of the loop notifies the watchdog three times per interval, as long as the engines give signs of
 * life (engine_probe). If the loop or an engine hangs, the notifications stop, and the service manager ends
 * the process and starts it again. Engines in processes of their own are excluded: a hung one is ended and
 * started again alone (kernels/process/front.c). Only the loop's thread may use this. */
#ifndef DAEMON_OBSERVE_WATCHDOG_H
#define DAEMON_OBSERVE_WATCHDOG_H

#include <uv.h>

struct service;

/* The state of the notifications. */
struct notify {
	struct service *service;
	const char *path;    /* path of the socket for clients; borrowed */
	char note[512];      /* text appended to the status while the service runs; "": none */
	char told[1024];     /* status that was last sent; "": it has to be sent again */
	uv_timer_t watchdog; /* runs if the service manager has enabled its watchdog */
};

/* Initializes *notify and its timer. service->loop must have been initialized. path is borrowed, and must
 * outlive notify. */
void notify_init(struct notify *notify, struct service *service, const char *path);

/* Sends READY=1 and the status. From now on note, truncated if it is too long, is appended to the status. */
void notify_ready(struct notify *notify, const char *note);

/* Sends the status if it has changed. Must be called whenever it may have changed. */
void notify_status(struct notify *notify);

/* Sends RELOADING=1 and a status that says so; the next call of another function replaces it. */
void notify_reloading(struct notify *notify);

/* Sends STOPPING=1 and the status. */
void notify_stopping(struct notify *notify);

/* Starts the timer if the service manager has enabled its watchdog. Must be called when the engines are open
 * and the loop is about to run. */
void watchdog_start(struct notify *notify);

/* Notifies the watchdog if it is enabled. Must be called before anything that delays the loop for long. */
void watchdog_feed(void);

#endif
