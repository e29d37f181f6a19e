/* SPDX-License-Identifier: Apache-2.0 */
/* Passes sockets, times of restarts and suspects on to the program that execv starts in this process. */
#include "recovery.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "passed.h"

/* ==== The restart ==================================================================================== */

/* The value of the variable is "PID LISTENER METRICS COUNT AT...". The pid makes it invalid in any other
 * process, such as a child that inherits it. */

/* ---- From the last life ------------------------------------------------------------------------------- */

static bool is_fd(int64_t number)
{
	return number >= -1 && number <= INT32_MAX;
}

bool recovery_read(struct recovery *ret, pid_t pid, const char *text)
{
	struct recovery r = { 0 };
	int64_t of, listener, metrics;
	int n = 0;

	if (sscanf(text, "%" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNu64 "%n", &of, &listener, &metrics,
	           &r.count, &n) != 4 ||
	    of != pid || !is_fd(listener) || !is_fd(metrics))
		return false;
	r.listener = (int)listener;
	r.metrics = (int)metrics;
	for (int i = 0; i < RECOVERY_MOST; i++) {
		text += n;
		if (sscanf(text, " %" SCNu64 "%n", &r.at_ms[i], &n) != 1)
			return false;
	}
	if (text[n])
		return false;
	*ret = r;
	return true;
}

void recovery_take(struct recovery *ret)
{
	const char *text = getenv(RECOVERY_VARIABLE);

	*ret = (struct recovery){ .listener = -1, .metrics = -1 };
	if (!text)
		return;
	if (recovery_read(ret, getpid(), text)) {
		prctl(PR_SET_NAME, "tmad"); /* execv of /proc/self/exe has set it to "exe" */
		fcntl(ret->listener, F_SETFD, FD_CLOEXEC);
		fcntl(ret->metrics, F_SETFD, FD_CLOEXEC);
		ret->settings = getenv(RECOVERY_SETTINGS); /* unsetenv does not free it */
	}
	unsetenv(RECOVERY_VARIABLE);
	unsetenv(RECOVERY_SETTINGS);
}

/* ---- To the next -------------------------------------------------------------------------------------- */

bool recovery_count(struct recovery *recovery, uint64_t now_ms)
{
	uint64_t oldest = recovery->at_ms[RECOVERY_MOST - 1];

	if (oldest && now_ms - oldest < RECOVERY_WITHIN_MS)
		return false;
	memmove(recovery->at_ms + 1, recovery->at_ms, (RECOVERY_MOST - 1) * sizeof recovery->at_ms[0]);
	recovery->at_ms[0] = now_ms;
	recovery->count++;
	return true;
}

void recovery_write(const struct recovery *recovery, pid_t pid, char text[RECOVERY_TEXT])
{
	int n = snprintf(text, RECOVERY_TEXT, "%d %d %d %" PRIu64, (int)pid, recovery->listener,
	                 recovery->metrics, recovery->count);

	for (int i = 0; i < RECOVERY_MOST; i++)
		n += snprintf(text + n, (size_t)(RECOVERY_TEXT - n), " %" PRIu64, recovery->at_ms[i]);
}

/* Sets FD_CLOEXEC on all descriptors above 2: libraries open some without it. Returns 0 or -errno. */
static int close_all_on_exec(void)
{
	DIR *directory = opendir("/proc/self/fd");
	struct dirent *entry;
	int fd;

	if (!directory)
		return -errno;
	while ((entry = readdir(directory))) {
		fd = atoi(entry->d_name);
		if (fd > STDERR_FILENO)
			fcntl(fd, F_SETFD, FD_CLOEXEC);
	}
	closedir(directory);
	return 0;
}

static int keep_open(int fd)
{
	return fd < 0 ? 0 : fcntl(fd, F_SETFD, 0);
}

static int pass_on(const struct recovery *recovery, int listener, int metrics, const char *settings)
{
	struct recovery next = *recovery;
	char text[RECOVERY_TEXT];

	next.listener = listener;
	next.metrics = metrics;
	recovery_write(&next, getpid(), text);
	if (setenv(RECOVERY_VARIABLE, text, 1) < 0 || keep_open(listener) < 0 || keep_open(metrics) < 0)
		return -errno;
	if (settings && setenv(RECOVERY_SETTINGS, settings, 1) < 0)
		return -errno;
	return passed_pass_on();
}

int recovery_exec(const struct recovery *recovery, int listener, int metrics, const char *settings,
                  char **argv, struct error *err)
{
	int r = close_all_on_exec();

	if (r == 0)
		r = pass_on(recovery, listener, metrics, settings);
	if (r == 0) {
		execv("/proc/self/exe", argv);
		r = -errno;
	}
	return error_set(err, STATUS_INTERNAL, "execv: %s", strerror(-r));
}

/* ==== Penalties ====================================================================================== */

/* The value of the variable is "PID N", followed by "USER POINTS AT UNTIL" for each of N suspects. */

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
