/* SPDX-License-Identifier: Apache-2.0 */
/* Users whose requests bring the device down are refused for a while.
 *
 * When the device is lost, every uid that had a transform under way on it becomes a suspect; a uid whose
 * transforms still waited does not. A uid that was the only suspect three times, or one of several four
 * times, may not use the device for a while: requests for it are refused as BUSY; the rest of the service
 * stays open. Suspicions are forgotten after a long time without a loss. Everything is passed from one life
 * of the process to the next in an environment variable, which is removed from the environment when it is
 * read.
 */
#ifndef DAEMON_PENALTY_H
#define DAEMON_PENALTY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/status.h"

#define PENALTY_VARIABLE "TMAD_PENALTIES"

#define PENALTY_MOST      64 /* users that are remembered; the one seen longest ago makes room for a new one */
#define PENALTY_REFUSE_MS 60000  /* of a refusal */
#define PENALTY_FORGET_MS 600000 /* after the last loss in which it was a suspect */

/* Points for one loss as the only suspect or as one of several, and the points at which a user is refused. */
#define PENALTY_ALONE  4
#define PENALTY_AMONG  3
#define PENALTY_REFUSE 12

struct suspect {
	uint64_t user; /* as in struct account */
	bool now;      /* a suspect of the loss under way */
	uint32_t points;
	uint64_t at_ms;    /* of the last loss; monotonic */
	uint64_t until_ms; /* end of the refusal; 0: none */
};

/* Zero-initialised: nobody is under suspicion. */
struct penalties {
	struct suspect suspect[PENALTY_MOST];
	uint32_t n;
};

/* A transform of the user's was under way when the device was lost. */
void penalties_suspect(struct penalties *penalties, uint64_t user, uint64_t now_ms);

/* The loss is complete: gives its suspects their points. */
void penalties_count(struct penalties *penalties, uint64_t now_ms);

/* Returns 0, or BUSY with the time left while the user is refused. */
int penalties_check(const struct penalties *penalties, uint64_t user, uint64_t now_ms, struct error *err);

/* Reads what the last life of this process passed on, if anything; passes it to the next. Negative errno. */
void penalties_take(struct penalties *ret);
int penalties_pass_on(const struct penalties *penalties);

/* The text in the variable; for penalty.c and its tests. penalties_read returns false, and leaves *ret alone,
 * if the text is malformed or of another pid. */
#define PENALTY_TEXT (32 + PENALTY_MOST * 76)
void penalties_write(const struct penalties *penalties, pid_t pid, char text[PENALTY_TEXT]);
bool penalties_read(struct penalties *ret, pid_t pid, const char *text);

#endif
