/* SPDX-License-Identifier: Apache-2.0 */
/* Notifications to the service manager by sd_notify(3), which `systemctl status` shows. Without a service
 * manager nothing happens. */
#ifndef DAEMON_OBSERVE_NOTIFY_H
#define DAEMON_OBSERVE_NOTIFY_H

struct server;

struct notify {
	char note[512];  /* appended to the status while it serves; "": none */
	char told[1024]; /* the status last told */
};

/* Sends READY=1 and the status. note is appended to the status from now on, truncated if it is too long; "":
 * none. */
void notify_ready(struct server *server, const char *note);

/* Sends the status if it has changed; to be called whenever it may have. */
void notify_status(struct server *server);

/* Sends RELOADING=1 and a status of its own, until notify_ready. */
void notify_reloading(struct server *server);

/* Sends STOPPING=1 and the status. */
void notify_stopping(struct server *server);

#endif
