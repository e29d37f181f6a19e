/* SPDX-License-Identifier: Apache-2.0 */
/* The service restarts within its process after a device was lost, and passes state from one life to the
 * next.
 *
 * A sticky error of a GPU cannot be cleared within a process image, so the service replaces its program by
 * execv and keeps the listening socket open: the pid and the path stay, and clients that connect meanwhile
 * wait in the socket's queue. One environment variable carries the state. Another carries the settings as
 * read from the files, in case the files are broken by then. Both are removed from the environment when they
 * are read. A socket that a service manager passed is passed on as LISTEN_FDS (passed_pass_on).
 */
#ifndef DAEMON_LOOP_RECOVERY_H
#define DAEMON_LOOP_RECOVERY_H

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
	int metrics;                   /* the exporter's socket, still open; -1: none */
	uint64_t count;                /* restarts of this process */
	uint64_t at_ms[RECOVERY_MOST]; /* times of the last restarts, newest first; monotonic; 0: none */
	const char *settings; /* from the last life's files (config_kept), in the environment; NULL: none */
};

/* Reads what the last life passed on, if anything; otherwise count is 0. */
void recovery_take(struct recovery *ret);

/* Counts a restart at now_ms (monotonic). Returns false, and counts nothing, if there have been RECOVERY_MOST
 * within RECOVERY_WITHIN_MS. */
bool recovery_count(struct recovery *recovery, uint64_t now_ms);

/* Restarts the program with the same command line, these settings (NULL: none), our own sockets (-1: none)
 * and those that a service manager passed. Closes every other descriptor except the standard three. Returns
 * only on failure. */
int recovery_exec(const struct recovery *recovery, int listener, int metrics, const char *settings,
                  char **argv, struct error *err);

/* recovery_write writes the text that the environment variable carries, and recovery_read parses it; outside
 * of recovery.c only tests call them. recovery_read returns false, and leaves *ret alone, if the text is
 * malformed or belongs to another pid. */
#define RECOVERY_TEXT 192
void recovery_write(const struct recovery *recovery, pid_t pid, char text[RECOVERY_TEXT]);
bool recovery_read(struct recovery *ret, pid_t pid, const char *text);

/* Users whose requests bring the device down are refused for a while.
 *
 * When the device is lost, every uid that had a transform under way on it becomes a suspect; a uid whose
 * transforms still waited does not. A uid that was the only suspect three times, or one of several four
 * times, may not use the device for a while: requests for it are refused as BUSY; the rest of the service
 * stays open. Suspicions are forgotten after a long time without a loss. Everything is passed from one life
 * of the process to the next in an environment variable, which is removed from the environment when it is
 * read.
 */

#define PENALTY_VARIABLE "TMAD_PENALTIES"

#define PENALTY_MOST      64 /* users that are remembered; the one seen longest ago makes room for a new one */
#define PENALTY_REFUSE_MS 60000  /* length of a refusal */
#define PENALTY_FORGET_MS 600000 /* time after the last loss of which the user was suspected */

/* Points for one loss as the only suspect or as one of several, and the points at which a user is refused. */
#define PENALTY_ALONE  4
#define PENALTY_AMONG  3
#define PENALTY_REFUSE 12

struct suspect {
	uint64_t user; /* as in struct account */
	bool now;      /* a suspect of the loss under way */
	uint32_t points;
	uint64_t at_ms;    /* time of the last loss; monotonic */
	uint64_t until_ms; /* end of the refusal; 0: none */
};

/* In a zero-initialised one nobody is under suspicion. */
struct penalties {
	struct suspect suspect[PENALTY_MOST];
	uint32_t n;
};

/* Makes the user a suspect, because a transform of its was under way when the device was lost. */
void penalties_suspect(struct penalties *penalties, uint64_t user, uint64_t now_ms);

/* Gives the suspects of a loss their points, once all of them are known. */
void penalties_count(struct penalties *penalties, uint64_t now_ms);

/* Returns 0, or BUSY with the time left while the user is refused. */
int penalties_check(const struct penalties *penalties, uint64_t user, uint64_t now_ms, struct error *err);

/* penalties_take reads what the last life of this process passed on, if anything. penalties_pass_on passes it
 * to the next, and returns 0 or a negative errno. */
void penalties_take(struct penalties *ret);
int penalties_pass_on(const struct penalties *penalties);

/* penalties_write writes the text that the environment variable carries, and penalties_read parses it;
 * outside of recovery.c only tests call them. penalties_read returns false, and leaves *ret alone, if the
 * text is malformed or belongs to another pid. */
#define PENALTY_TEXT (32 + PENALTY_MOST * 76)
void penalties_write(const struct penalties *penalties, pid_t pid, char text[PENALTY_TEXT]);
bool penalties_read(struct penalties *ret, pid_t pid, const char *text);

#endif
