/* SPDX-License-Identifier: Apache-2.0 */
/* Restarting within the process after a device was lost, and what is passed from one life to the next.
 *
 * A sticky error of a GPU cannot be cleared within a process image, so the service replaces its program by
 * execv and keeps the listening socket open: the pid and the path stay, and clients that connect meanwhile
 * wait in the socket's queue. One environment variable carries the state. Another carries the settings as
 * read from the files, in case the files are broken by then. Both are removed from the environment when they
 * are read. A socket that a service manager passed is passed on as LISTEN_FDS (passed.h).
 */
#ifndef DAEMON_RECOVERY_H
#define DAEMON_RECOVERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/status.h"

#define RECOVERY_VARIABLE "TMAD_RECOVERY"
#define RECOVERY_SETTINGS "TMAD_RECOVERY_SETTINGS"

/* More restarts than that within that time mean that something is broken which a restart does not mend. */
#define RECOVERY_MOST      5
#define RECOVERY_WITHIN_MS 60000

struct recovery {
	int listener;                  /* our own socket, still open; -1: none */
	int metrics;                   /* the exporter's socket, likewise */
	uint64_t count;                /* restarts of this process */
	uint64_t at_ms[RECOVERY_MOST]; /* of the last restarts, newest first; monotonic; 0: none */
	const char *settings; /* from the last life's files (config_kept), in the environment; NULL: none */
};

/* Reads what the last life passed on, if anything; otherwise count is 0. */
void recovery_take(struct recovery *ret);

/* Counts a restart at now_ms. False: that is one too many. */
bool recovery_count(struct recovery *recovery, uint64_t now_ms);

/* Restarts the program with the same command line, these settings (NULL: none), our own sockets (-1: none)
 * and those that a service manager passed. Closes every other descriptor except the standard three. Returns
 * only on failure. */
int recovery_exec(const struct recovery *recovery, int listener, int metrics, const char *settings,
                  char **argv, struct error *err);

/* The text in the variable; for recovery.c and its tests. recovery_read returns false, and leaves *ret alone,
 * if the text is malformed or of another pid. */
#define RECOVERY_TEXT 192
void recovery_write(const struct recovery *recovery, pid_t pid, char text[RECOVERY_TEXT]);
bool recovery_read(struct recovery *ret, pid_t pid, const char *text);

#endif
