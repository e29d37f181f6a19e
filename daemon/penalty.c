/* SPDX-License-Identifier: Apache-2.0 */
/* The variable is "PID N", then "USER POINTS AT UNTIL" for each suspect. */
#include "penalty.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Suspicion --------------------------------------------------------------------------------------- */

static struct suspect *find(const struct penalties *penalties, uint64_t user)
{
	for (uint32_t i = 0; i < penalties->n; i++)
		if (penalties->suspect[i].user == user)
			return (struct suspect *)&penalties->suspect[i];
	return NULL;
}

static struct suspect *make_room(struct penalties *penalties)
{
	struct suspect *oldest = &penalties->suspect[0];

	if (penalties->n < PENALTY_MOST)
		return &penalties->suspect[penalties->n++];
	for (uint32_t i = 1; i < penalties->n; i++)
		if (penalties->suspect[i].at_ms < oldest->at_ms)
			oldest = &penalties->suspect[i];
	return oldest;
}

void penalties_suspect(struct penalties *penalties, uint64_t user, uint64_t now_ms)
{
	struct suspect *suspect = find(penalties, user);

	if (!suspect) {
		suspect = make_room(penalties);
		*suspect = (struct suspect){ .user = user };
	} else if (now_ms - suspect->at_ms > PENALTY_FORGET_MS) {
		suspect->points = 0;
	}
	suspect->at_ms = now_ms;
	suspect->now = true;
}

void penalties_count(struct penalties *penalties, uint64_t now_ms)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < penalties->n; i++)
		n += penalties->suspect[i].now;
	for (uint32_t i = 0; i < penalties->n; i++) {
		struct suspect *suspect = &penalties->suspect[i];

		if (!suspect->now)
			continue;
		suspect->now = false;
		suspect->points += n == 1 ? PENALTY_ALONE : PENALTY_AMONG;
		if (suspect->points >= PENALTY_REFUSE)
			suspect->until_ms = now_ms + PENALTY_REFUSE_MS;
	}
}

int penalties_check(const struct penalties *penalties, uint64_t user, uint64_t now_ms, struct error *err)
{
	const struct suspect *suspect = penalties->n > 0 ? find(penalties, user) : NULL;
	char who[16];

	if (!suspect || now_ms >= suspect->until_ms)
		return 0;
	if (user <= UINT32_MAX)
		snprintf(who, sizeof who, "uid %" PRIu32, (uint32_t)user);
	else
		snprintf(who, sizeof who, "this cgroup");
	return error_set(
	    err, STATUS_BUSY,
	    "transforms of %s were under way each time the device was lost; it is served again in "
	    "%" PRIu64 " s",
	    who, (suspect->until_ms - now_ms + 999) / 1000);
}

/* ---- From life to life -------------------------------------------------------------------------------- */

void penalties_write(const struct penalties *penalties, pid_t pid, char text[PENALTY_TEXT])
{
	int n = snprintf(text, PENALTY_TEXT, "%d %" PRIu32, (int)pid, penalties->n);

	for (uint32_t i = 0; i < penalties->n; i++) {
		const struct suspect *suspect = &penalties->suspect[i];

		n += snprintf(text + n, (size_t)(PENALTY_TEXT - n),
		              " %" PRIu64 " %" PRIu32 " %" PRIu64 " %" PRIu64, suspect->user, suspect->points,
		              suspect->at_ms, suspect->until_ms);
	}
}

bool penalties_read(struct penalties *ret, pid_t pid, const char *text)
{
	struct penalties p = { 0 };
	int64_t of;
	int n = 0;

	if (sscanf(text, "%" SCNd64 " %" SCNu32 "%n", &of, &p.n, &n) != 2 || of != pid || p.n > PENALTY_MOST)
		return false;
	for (uint32_t i = 0; i < p.n; i++) {
		struct suspect *suspect = &p.suspect[i];

		text += n;
		if (sscanf(text, " %" SCNu64 " %" SCNu32 " %" SCNu64 " %" SCNu64 "%n", &suspect->user,
		           &suspect->points, &suspect->at_ms, &suspect->until_ms, &n) != 4)
			return false;
	}
	if (text[n])
		return false;
	*ret = p;
	return true;
}

void penalties_take(struct penalties *ret)
{
	const char *text = getenv(PENALTY_VARIABLE);

	*ret = (struct penalties){ 0 };
	if (text)
		penalties_read(ret, getpid(), text);
	unsetenv(PENALTY_VARIABLE);
}

int penalties_pass_on(const struct penalties *penalties)
{
	char text[PENALTY_TEXT];

	penalties_write(penalties, getpid(), text);
	return setenv(PENALTY_VARIABLE, text, 1) < 0 ? -errno : 0;
}
