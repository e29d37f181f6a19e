/* SPDX-License-Identifier: Apache-2.0 */
/* The variable is "PID LISTENER METRICS COUNT AT...". It starts with the pid, so that it means nothing to
 * another process. */
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

#include "daemon/net/passed.h"

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
		prctl(PR_SET_NAME, "tmad"); /* otherwise it would be "exe" */
		fcntl(ret->listener, F_SETFD, FD_CLOEXEC);
		fcntl(ret->metrics, F_SETFD, FD_CLOEXEC);
		ret->settings = getenv(RECOVERY_SETTINGS); /* stays valid: nothing sets it in this life */
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

/* Libraries open descriptors too, and not all of them set FD_CLOEXEC. */
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
