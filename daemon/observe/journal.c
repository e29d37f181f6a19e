/* SPDX-License-Identifier: Apache-2.0 */
/* A line is a datagram of NAME=VALUE lines, built on the stack (systemd's Native Journal Protocol).
 * sd_journal_sendv is not used: it waits for a journal that does not read, and all clients would wait with
 * it. */
#include "journal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define JOURNAL "/run/systemd/journal/socket"

/* No value contains a line break: log.c has cleaned the text, the others are numbers and names. */
struct fields {
	char room[2048];
	size_t used;
};

bool journal_is(int fd)
{
	const char *stream = getenv("JOURNAL_STREAM");
	uint64_t device, inode;
	struct stat st;

	return stream && sscanf(stream, "%" SCNu64 ":%" SCNu64, &device, &inode) == 2 &&
	       fstat(fd, &st) == 0 && st.st_dev == device && st.st_ino == inode;
}

__attribute__((format(printf, 2, 3))) static void add(struct fields *f, const char *format, ...)
{
	size_t room = sizeof f->room - f->used;
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(f->room + f->used, room, format, args);
	va_end(args);
	if (n < 0 || (size_t)n + 1 >= room)
		return;
	f->used += (size_t)n;
	f->room[f->used++] = '\n';
}

static void add_about(struct fields *f, const struct log_about *about)
{
	if (about->has_uid)
		add(f, "TMAD_UID=%u", about->uid);
	if (about->cgroup && *about->cgroup)
		add(f, "TMAD_CGROUP=%s", about->cgroup);
	if (about->pid)
		add(f, "TMAD_PID=%d", about->pid);
	if (about->session)
		add(f, "TMAD_SESSION=%" PRIu64, about->session);
	if (about->has_request)
		add(f, "TMAD_REQUEST=%" PRIu32, about->request);
	if (about->method)
		add(f, "TMAD_METHOD=%s", about->method);
	if (about->status)
		add(f, "TMAD_STATUS=%s", about->status);
	if (about->duration_us)
		add(f, "TMAD_DURATION_US=%" PRIu64, about->duration_us);
}

int journal_send(enum log_level level, const char *text, const struct log_about *about)
{
	static const struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = JOURNAL };
	static int fd = -1;
	struct fields f;

	if (fd < 0)
		fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	f.used = 0;
	add(&f, "MESSAGE=%s", text);
	add(&f, "PRIORITY=%d", level);
	add(&f, "SYSLOG_IDENTIFIER=tmad");
	add_about(&f, about);
	return sendto(fd, f.room, f.used, MSG_NOSIGNAL, (const struct sockaddr *)&address, sizeof address) < 0
	           ? -errno
	           : 0;
}
