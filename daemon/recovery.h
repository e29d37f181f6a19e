/* Starting again in the same process, after a device was lost: what goes from one life to the next.
 *
 * A sticky error of a GPU cannot be cleared in a process, so the service replaces its own program by execv,
 * with the listening socket kept open: same pid, same path, and clients that connect meanwhile wait in its
 * queue. One environment variable carries the rest, and another what the files of settings came to, for the
 * case that they are broken meanwhile; both are taken out of the environment when they are read. A socket
 * that a service manager passed goes on as LISTEN_FDS (passed.h).
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

/* More than so many within so long, and something is broken that starting again does not mend. */
#define RECOVERY_MOST      5
#define RECOVERY_WITHIN_MS 60000

struct recovery {
	int listener;                  /* our own, still open; -1: none */
	int metrics;                   /* as listener, of the exporter */
	uint64_t count;                /* in this process, ever */
	uint64_t at_ms[RECOVERY_MOST]; /* of the last ones, newest first; monotonic; 0: none */
	const char *settings; /* of the last life's files (config_kept); NULL: none; of the environment */
};

/* What the last life left, or nothing: count is 0 then. */
void recovery_take(struct recovery *ret);

/* Counts one more at now_ms. False: that is one too many. */
bool recovery_count(struct recovery *recovery, uint64_t now_ms);

/* Starts again with the same command line, these settings (NULL: none), and the sockets that are our own (-1:
 * none) and those that a service manager passed. Every other descriptor but the standard three is closed on
 * the way. Returns only when that failed. */
int recovery_exec(const struct recovery *recovery, int listener, int metrics, const char *settings,
                  char **argv, struct error *err);

/* As it stands in the variable; for recovery.c and its tests. Reading gives false, and *ret untouched, when
 * the text is not one of this pid's. */
#define RECOVERY_TEXT 192
void recovery_write(const struct recovery *recovery, pid_t pid, char text[RECOVERY_TEXT]);
bool recovery_read(struct recovery *ret, pid_t pid, const char *text);

#endif
