/* A line is a list of NAME=VALUE, built on the stack. */
#include "journal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>

/* Where in the program a line comes from means nothing to its readers. */
#define SD_JOURNAL_SUPPRESS_LOCATION
#include <systemd/sd-journal.h>

#define MOST_FIELDS 10

struct fields {
	char room[2048];
	size_t used;
	struct iovec field[MOST_FIELDS];
	int n;
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
	if (n < 0 || (size_t)n >= room || f->n == MOST_FIELDS)
		return;
	f->field[f->n++] = (struct iovec){ f->room + f->used, (size_t)n };
	f->used += (size_t)n;
}

static void add_about(struct fields *f, const struct log_about *about)
{
	if (about->has_uid)
		add(f, "TMAD_UID=%u", about->uid);
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
	struct fields f;

	f.used = 0;
	f.n = 0;
	add(&f, "MESSAGE=%s", text);
	add(&f, "PRIORITY=%d", level);
	add(&f, "SYSLOG_IDENTIFIER=tmad");
	add_about(&f, about);
	return sd_journal_sendv(f.field, f.n);
}
