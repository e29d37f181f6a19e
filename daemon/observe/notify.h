/* What the service manager is told of us, by sd_notify(3): what `systemctl status` shows. Without one nothing
 * is done. */
#ifndef DAEMON_OBSERVE_NOTIFY_H
#define DAEMON_OBSERVE_NOTIFY_H

struct server;

struct notify {
	char note[512];  /* behind the status while it serves; "": none */
	char told[1024]; /* the status last told */
};

/* READY=1, and the status. note: behind it from now on, cut where it is too long; "": none. */
void notify_ready(struct server *server, const char *note);

/* The status, where it is not what it was: to be called whenever it may have changed. */
void notify_status(struct server *server);

/* RELOADING=1, and a status of its own; notify_ready ends it. */
void notify_reloading(struct server *server);

/* STOPPING=1, and the status. */
void notify_stopping(struct server *server);

#endif
