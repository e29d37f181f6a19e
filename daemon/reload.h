/* SPDX-License-Identifier: Apache-2.0 */
/* SIGHUP has the service read the files with its settings again. A reload applies all changes that can be
 * applied without a restart or, if there is an error, none. */
#ifndef DAEMON_RELOAD_H
#define DAEMON_RELOAD_H

#include <stdbool.h>

#include <uv.h>

#include "daemon/config/config.h"

struct server;

struct reload {
	uv_work_t work; /* reads files, which may block */
	int argc;
	char **argv;
	/* Settings at the start, owned by the caller. Those that need a restart still apply. */
	const struct config *started;
	/* Settings last read without errors; NULL: `started` is still the latest. */
	struct config *latest;
	struct config *read; /* result of work; NULL: out of memory */
	bool is_under_way;
	bool is_asked_again; /* another signal has come during the reload */
};

/* Starts a reload or, if one is under way, has another one follow it. At the end of a reload the service
 * manager gets READY=1, whether the files were good or not. Does nothing unless the service runs. */
void reload_start(struct server *server);

/* Returns the settings read last, or NULL if the server was started without a config. */
const struct config *reload_latest(const struct reload *reload);

void reload_deinit(struct reload *reload);

#endif
