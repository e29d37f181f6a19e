/* SPDX-License-Identifier: Apache-2.0 */
/* Polls before each read and write. A call on a blocking descriptor then finds data or space and does not
 * block, and a request to stop is noticed while nothing else happens. */
#include "pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOOK_MS    50            /* time after which a wait looks again at whether to stop */
#define PIPE_BYTES (1024 * 1024) /* size of a pipe's buffer: Linux's default limit, except for root */

int pipe_own(int fd, int flags)
{
	char path[64];
	struct stat st;
	int own = -1;

	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (!fstat(fd, &st) && S_ISFIFO(st.st_mode)) {
		own = open(path, flags | O_NONBLOCK | O_CLOEXEC);
		if (own >= 0)
			(void)fcntl(own, F_SETPIPE_SZ, PIPE_BYTES);
	}
	return own >= 0 ? own : fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

int pipe_open_write(const char *path, const struct stop *stop)
{
	int fd;

	while ((fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)) < 0 &&
	       (errno == ENXIO || errno == EINTR)) {
		if (stop_is_asked(stop)) {
			errno = ECANCELED;
			return -1;
		}
		poll(NULL, 0, LOOK_MS);
	}
	return fd;
}

static int wait_for(int fd, short events, const struct stop *stop)
{
	struct pollfd wait = { .fd = fd, .events = events };
	int n;

	for (;;) {
		if (stop_is_asked(stop))
			return -ECANCELED;
		n = poll(&wait, 1, LOOK_MS);
		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
	}
}

static bool is_worth_another(ssize_t n)
{
	return n < 0 && (errno == EINTR || errno == EAGAIN);
}

ssize_t pipe_read(int fd, void *data, size_t len, const struct stop *stop)
{
	ssize_t n;
	int rc;

	do {
		rc = wait_for(fd, POLLIN, stop);
		if (rc < 0)
			return rc;
		n = read(fd, data, len);
	} while (is_worth_another(n));
	return n < 0 ? -errno : n;
}

/* Writes without blocking if fd is a socket. pipe_own() cannot open a socket anew, so O_NONBLOCK would affect
 * all processes that share it. A flag of the call does not. */
static ssize_t write_some(int fd, const void *data, size_t len)
{
	ssize_t n = send(fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);

	return n < 0 && errno == ENOTSOCK ? write(fd, data, len) : n;
}

int pipe_write(int fd, const void *data, size_t len, const struct stop *stop)
{
	ssize_t n;
	int rc;

	for (size_t at = 0; at < len;) {
		rc = wait_for(fd, POLLOUT, stop);
		if (rc < 0)
			return rc;
		n = write_some(fd, (const char *)data + at, len - at);
		if (n >= 0)
			at += (size_t)n;
		else if (!is_worth_another(n))
			return -errno;
	}
	return 0;
}
