/* Users whose requests bring the device down are refused for a while.
 *
 * When the device is lost, every uid that had a transform under way on it is under suspicion; one that still
 * waited did nothing. Who was alone in that three times, or among others four times, gets nothing more of the
 * device for a while: its requests for it are refused as BUSY, the rest of the service is open to it. What a
 * uid is suspected of is forgotten when nothing happened for long. All of it goes from one life of the
 * process to the next in an environment variable, which is taken out of the environment when it is read.
 */
#ifndef DAEMON_PENALTY_H
#define DAEMON_PENALTY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/status.h"

#define PENALTY_VARIABLE "TMAD_PENALTIES"

#define PENALTY_MOST      64     /* uids that are remembered; the one seen longest ago makes room */
#define PENALTY_REFUSE_MS 60000  /* how long */
#define PENALTY_FORGET_MS 600000 /* after the last loss that it was seen in */

/* Points for one loss, and how many are too many. */
#define PENALTY_ALONE  4
#define PENALTY_AMONG  3
#define PENALTY_REFUSE 12

struct suspect {
	uid_t uid;
	bool now; /* in the loss that is happening */
	uint32_t points;
	uint64_t at_ms;    /* of the last loss; monotonic */
	uint64_t until_ms; /* refused; 0: not */
};

/* Zero-initialised: nobody is under suspicion. */
struct penalties {
	struct suspect suspect[PENALTY_MOST];
	uint32_t n;
};

/* A transform of the uid's was under way when the device was lost. */
void penalties_suspect(struct penalties *penalties, uid_t uid, uint64_t now_ms);

/* The loss is over: counts it for those that were suspected. */
void penalties_count(struct penalties *penalties, uint64_t now_ms);

/* 0, or BUSY with the time that is left while the uid is refused. */
int penalties_check(const struct penalties *penalties, uid_t uid, uint64_t now_ms, struct error *err);

/* From the last life of this process, or nothing; and to the next. Negative errno. */
void penalties_take(struct penalties *ret);
int penalties_pass_on(const struct penalties *penalties);

/* As it stands in the variable; for penalty.c and its tests. Reading gives false, and *ret untouched, when
 * the text is not one of this pid's. */
#define PENALTY_TEXT (32 + PENALTY_MOST * 64)
void penalties_write(const struct penalties *penalties, pid_t pid, char text[PENALTY_TEXT]);
bool penalties_read(struct penalties *ret, pid_t pid, const char *text);

#endif
