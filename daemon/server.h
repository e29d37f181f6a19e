/* SPDX-License-Identifier: Apache-2.0 */
/* The server runs the service: it starts it, iterates its loop, applies changed settings, and stops it.
 *
 * Everything here belongs to the loop's thread. Results reach it in five ways: engine_done (jobs of engines
 * in this process), doorbell (jobs of engines in processes of their own), chores (memory that was mapped or
 * unmapped, plans that were made, descriptors that were closed), relays (entries of submission rings), and
 * libuv's work queue (settings that were read, memory that was returned to the kernel). The thread that
 * writes the log sends nothing back (loop/log.h).
 *
 * Call server_init and then server_run, which returns when the service stops or the device is lost. Call
 * server_deinit only after an orderly stop.
 */
#ifndef DAEMON_SERVER_H
#define DAEMON_SERVER_H

#include <pthread.h>
#include <stdbool.h>

#include <uv.h>

#include "daemon/config/options.h"
#include "daemon/loop/loop.h"
#include "daemon/loop/recovery.h"
#include "daemon/memory/devices.h"
#include "daemon/memory/service.h"
#include "daemon/net/connection.h"
#include "daemon/observe/exporter.h"
#include "daemon/observe/watchdog.h"
#include "reload.h"

/* server_run ends in one of these ways. */
enum server_end {
	SERVER_END_STOPPED, /* stopped as asked; call server_deinit */
	SERVER_END_STUCK,   /* stopped as asked, but a thread is still working; leave the server as it is */
	/* The device is lost and clients have been told; leave the server as it is, and restart. */
	SERVER_END_LOST,
};

/* Parameters of server_init. The server keeps pointers to the clock, the config, argv and what the options
 * point to. */
struct server_setup {
	const struct options *options;
	const struct engine_openers *openers;
	const struct clock *clock; /* NULL: clock_uv */
	/* Config that holds *options and was read by this command line; NULL: settings cannot be reloaded. */
	const struct config *config;
	int argc;
	char **argv;
	struct recovery recovery;
	struct penalties penalties;
};

struct server {
	struct service service;
	struct connections connections;
	pthread_t thread; /* the loop's thread */
	uv_async_t engine_done;
	struct doorbell doorbell; /* rung by engines in processes of their own when jobs have ended */
	/* Runs before the loop sleeps, for finished jobs, ready sessions and replies. */
	uv_prepare_t settle;
	uv_signal_t sigterm;
	uv_signal_t sigint;
	uv_signal_t sighup;
	uv_timer_t drain_timer; /* deadline for draining, or for clients to read that a device is lost */
	uv_work_t first_work;   /* starts the threads of libuv's pool */
	struct notify notify;
	struct exporter exporter;
	struct reload reload;
	bool stop_asked; /* SIGTERM or SIGINT came while the device was lost */
};

/* Opens the engines and the listener; server_run serves. On failure err says why, and nothing is left open.
 * The server is too large for a stack. */
int server_init(struct server *server, const struct server_setup *setup, struct error *err);

/* Serves until the server was asked to stop and everything has ended, or until the device was lost. */
enum server_end server_run(struct server *server);

/* Must only be called after SERVER_END_STOPPED. */
void server_deinit(struct server *server);

/* Removes the socket files. To be called after SERVER_END_LOST if there is no restart. */
void server_abandon(struct server *server);

/* Stops accepting connections, and requests other than those that have arrived. A session ends when all of
 * its requests are answered and the answers are sent, or after drain_deadline_ms. */
void server_drain(struct server *server);

/* Closes the loop's handles, after which server_run returns. */
void server_stop(struct server *server);

#endif
