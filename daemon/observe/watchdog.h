/* SPDX-License-Identifier: Apache-2.0 */
/* The service manager has a watchdog (WATCHDOG_USEC, sd_watchdog_enabled(3)). It is fed three times per
 * interval as long as the loop iterates, which its timer proves, and the engine answers (engine_probe). If
 * either hangs, nothing is repaired here: the service manager ends the process and starts it again. Engines
 * in processes of their own are not its concern: each is ended by itself (kernels/process/front.c). */
#ifndef DAEMON_OBSERVE_WATCHDOG_H
#define DAEMON_OBSERVE_WATCHDOG_H

#include <uv.h>

struct service;

/* This says what the service manager is told. */
struct notify {
	struct service *service;
	const char *path;    /* where clients connect */
	char note[512];      /* text that is appended to the status while the service runs; "": none */
	char told[1024];     /* the status last told */
	uv_timer_t watchdog; /* runs if there is a watchdog */
};

/* Prepares *notify and its timer; the service must have its loop. path is borrowed: it must live as long as
 * notify, and is read whenever the status is sent. */
void notify_init(struct notify *notify, struct service *service, const char *path);

/* Sends READY=1 and the status, to which note is appended from now on, truncated if it is too long; ""
 * appends nothing. */
void notify_ready(struct notify *notify, const char *note);

/* Sends the status if it has changed. To be called whenever it may have. */
void notify_status(struct notify *notify);

/* Sends RELOADING=1 and a status of its own, which lasts until notify_ready. */
void notify_reloading(struct notify *notify);

/* Sends STOPPING=1 and the status. */
void notify_stopping(struct notify *notify);

/* To be called when the engine is open and the loop is about to run. */
void watchdog_start(struct notify *notify);

/* Feeds the watchdog before something that keeps the loop from iterating for a while. */
void watchdog_feed(void);

#endif
