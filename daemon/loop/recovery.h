/* SPDX-License-Identifier: Apache-2.0 */
/* Restart of the service within its process after the loss of a device, and the state that survives it.
 *
 * A sticky error of a GPU cannot be cleared in a running program, so the service replaces its program by
 * execv and keeps the listening sockets open: the pid and the path of the socket stay the same, and clients
 * that connect in the meantime wait in the socket's queue. What runs between two calls of execv is called a
 * life of the process. One environment variable passes state to the next life, and another one the settings
 * that were read from files, in case the files have become invalid. Both are removed from the environment
 * when they are read. A socket that came from a service manager is passed on in LISTEN_FDS (passed_pass_on).
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

/* After RECOVERY_MOST restarts within RECOVERY_WITHIN_MS, the service gives up: a further restart would not
 * help either. */
#define RECOVERY_MOST      5
#define RECOVERY_WITHIN_MS 60000

struct recovery {
	int listener;                  /* the last life's own socket for clients, still open; -1: none */
	int metrics;                   /* the last life's own socket for metrics, still open; -1: none */
	uint64_t count;                /* number of restarts of this process */
	uint64_t at_ms[RECOVERY_MOST]; /* times of the last restarts, newest first, monotonic; 0: none */
	const char *settings;          /* settings of the last life's files (config_kept); NULL: none */
};

/* Sets *ret to what the last life passed on, or to a state without sockets and with a count of 0, and removes
 * the variables from the environment. */
void recovery_take(struct recovery *ret);

/* Counts a restart at now_ms (monotonic clock). Returns false, with nothing counted, if there have been
 * RECOVERY_MOST restarts within the last RECOVERY_WITHIN_MS, so that the service should not restart. */
bool recovery_count(struct recovery *recovery, uint64_t now_ms);

/* Replaces the program by execv with the command line argv. Passes on *recovery, the settings (NULL: none),
 * the service's own sockets (-1: none) and those that came from a service manager; all other descriptors
 * except 0 to 2 are closed. Returns only on failure, with INTERNAL. */
int recovery_exec(const struct recovery *recovery, int listener, int metrics, const char *settings,
                  char **argv, struct error *err);

/* recovery_write writes the value of the environment variable, and recovery_read parses it. Outside of
 * recovery.c only tests call them. recovery_read returns false and leaves *ret unchanged if the text is
 * malformed or belongs to another pid. */
#define RECOVERY_TEXT 192
void recovery_write(const struct recovery *recovery, pid_t pid, char text[RECOVERY_TEXT]);
bool recovery_read(struct recovery *ret, pid_t pid, const char *text);

/* Penalties: users whose requests repeatedly cause the loss of a device are refused for a while.
 *
 * When a device is lost, each user who had a transform running on it becomes a suspect; a user whose
 * transforms were only queued does not. A user who was the only suspect three times, or one of several four
 * times, may not use devices for a while: requests that need one are refused as BUSY, all others are served.
 * Suspicions are forgotten after PENALTY_FORGET_MS without a loss. The state is passed to the next life of
 * the process in an environment variable, which is removed from the environment when it is read.
 */

#define PENALTY_VARIABLE "TMAD_PENALTIES"

#define PENALTY_MOST      64     /* maximum number of suspects; the one suspected longest ago makes room */
#define PENALTY_REFUSE_MS 60000  /* length of a refusal */
#define PENALTY_FORGET_MS 600000 /* time after which a suspicion is forgotten */

/* Points for a loss as the only suspect, points for a loss as one of several, and points at which a user is
 * refused. */
#define PENALTY_ALONE  4
#define PENALTY_AMONG  3
#define PENALTY_REFUSE 12

struct suspect {
	uint64_t user;     /* number of the user (account.user) */
	bool now;          /* suspected of the current loss, for which penalties_count has not been called */
	uint32_t points;   /* points from losses so far */
	uint64_t at_ms;    /* time of the last loss of which the user was suspected (monotonic clock) */
	uint64_t until_ms; /* time until which the user is refused (monotonic clock); 0: never refused */
};

/* All suspects. A zeroed struct has none. */
struct penalties {
	struct suspect suspect[PENALTY_MOST];
	uint32_t n;
};

/* Makes the user a suspect of the current loss, because one of its transforms was running on the device. */
void penalties_suspect(struct penalties *penalties, uint64_t user, uint64_t now_ms);

/* Gives the suspects of the current loss their points. Must be called once all of them are known. */
void penalties_count(struct penalties *penalties, uint64_t now_ms);

/* Returns 0, or BUSY if the user is refused at now_ms; the message in err has the remaining time. */
int penalties_check(const struct penalties *penalties, uint64_t user, uint64_t now_ms, struct error *err);

/* penalties_take sets *ret to what the last life of the process passed on, or to no suspects.
 * penalties_pass_on passes the state on to the next life, and returns 0 or a negative errno. */
void penalties_take(struct penalties *ret);
int penalties_pass_on(const struct penalties *penalties);

/* penalties_write writes the value of the environment variable, and penalties_read parses it. Outside of
 * recovery.c only tests call them. penalties_read returns false and leaves *ret unchanged if the text is
 * malformed or belongs to another pid. */
#define PENALTY_TEXT (32 + PENALTY_MOST * 76)
void penalties_write(const struct penalties *penalties, pid_t pid, char text[PENALTY_TEXT]);
bool penalties_read(struct penalties *ret, pid_t pid, const char *text);

#endif
