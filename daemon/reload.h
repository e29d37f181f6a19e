/* SPDX-License-Identifier: Apache-2.0 */
/* SIGHUP has the service read its files of settings again. It applies all changes that a reload can apply, or
 * none if there is an error. */
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
	const struct config *started; /* settings that need a restart are as here; owned by the caller */
	struct config *latest;        /* settings last read without errors; NULL: those of started */
	struct config *read;          /* result of work; NULL: no memory */
	bool is_under_way;
	bool is_asked_again; /* another signal came during a reload */
};

/* Starts a reload, or another one after the one under way. In the end the service manager gets READY=1,
 * whether the files were good or not. Must only be called while the service runs. */
void reload_start(struct server *server);

/* Returns the settings in force, or NULL if the server was started without a config. */
const struct config *reload_latest(const struct reload *reload);

void reload_deinit(struct reload *reload);

#endif
