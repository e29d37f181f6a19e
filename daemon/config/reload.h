/* SIGHUP: the files of settings are read again, and what a reload can change changes, or nothing does. */
#ifndef DAEMON_CONFIG_RELOAD_H
#define DAEMON_CONFIG_RELOAD_H

#include <stdbool.h>

#include <uv.h>

#include "config.h"

struct server;

struct reload {
	uv_work_t work; /* reads files, which may block */
	int argc;
	char **argv;
	const struct config *started; /* what restarts alone can change is as here; the caller's */
	struct config *latest;        /* read last without errors; NULL: started */
	struct config *read;          /* by work; NULL: no memory */
	bool is_under_way;
	bool is_asked_again; /* while one was under way */
};

/* Begins one, or another after the one that is under way. In the end the service manager gets READY=1,
 * whether the files were good or not. Only while the service runs. */
void reload_start(struct server *server);

/* What counts now. NULL: the server was started without a config. */
const struct config *reload_latest(const struct reload *reload);

void reload_deinit(struct reload *reload);

#endif
