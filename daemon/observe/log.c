/* SPDX-License-Identifier: Apache-2.0 */
/* Each line is one write, so that lines of several processes do not mix. */
#include "log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "journal.h"
#include "proto/text.h"
#include "sink.h"

#define LOST_VARIABLE  "TMAD_LOG_LOST" /* "PID LINES", from one life to the next */
#define LINE_BYTES     1024
#define LINES_A_SECOND 20 /* for one user */
#define USERS          16 /* counted separately; further users share the last row */

static enum log_level max_level = LOG_LEVEL_INFO;
static bool is_journal; /* stderr is; the format that is asked for may be another one */
static enum log_format usual = LOG_FORMAT_PLAIN; /* of LOG_FORMAT_AUTO, where stderr is not the journal */
static atomic_int line_format;                   /* an enum log_format; the sink's thread reads it */
static uint64_t lost;                            /* lines, since the start */
static uint64_t journal_lost; /* lines among them that the journal did not take and has not been told about */

/* Lines of the current second. */
static struct {
	unsigned long long second;
	unsigned dropped;
	int n;
	struct {
		uint64_t user;
		unsigned lines;
	} row[USERS];
} counted;

static size_t tell_missing(uint64_t n, char *line);

static uint64_t take_lost(void)
{
	const char *text = getenv(LOST_VARIABLE);
	uint64_t n = 0;
	int64_t pid;

	if (text && (sscanf(text, "%" SCNd64 " %" SCNu64, &pid, &n) != 2 || pid != getpid()))
		n = 0;
	unsetenv(LOST_VARIABLE);
	return n;
}

void log_init(enum log_level level)
{
	max_level = level;
	is_journal = journal_is(STDERR_FILENO);
	usual = isatty(STDERR_FILENO) ? LOG_FORMAT_TIME : LOG_FORMAT_PLAIN;
	atomic_store(&line_format, LOG_FORMAT_AUTO);
	lost = take_lost();
	tzset(); /* reads a file */
	sink_open(STDERR_FILENO, tell_missing, lost);
}

void log_close(void)
{
	sink_close(LOG_CLOSE_MS);
}

int log_pass_on(void)
{
	uint64_t n = sink_close(LOG_CLOSE_MS) + journal_lost;
	char text[48];

	if (n == 0)
		return 0;
	snprintf(text, sizeof text, "%d %" PRIu64, (int)getpid(), n);
	return setenv(LOST_VARIABLE, text, 1) < 0 ? -errno : 0;
}

uint64_t log_lost(void)
{
	return lost;
}

void log_set_level(enum log_level level)
{
	max_level = level;
}

void log_set_format(enum log_format format)
{
	atomic_store(&line_format, (int)format);
}

int log_wants(enum log_level level)
{
	return level <= max_level;
}

/* ---- A line ------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static void add(char *line, size_t size, const char *format, ...)
{
	size_t used = strlen(line);
	va_list args;

	va_start(args, format);
	vsnprintf(line + used, size - used, format, args);
	va_end(args);
}

static void add_about(char *line, size_t size, const struct log_about *about)
{
	if (about->has_uid)
		add(line, size, "uid %u", about->uid);
	if (about->cgroup && *about->cgroup)
		add(line, size, "%scgroup %s", about->has_uid ? " " : "", about->cgroup);
	if (about->pid)
		add(line, size, " pid %d", about->pid);
	if (about->session)
		add(line, size, " session %" PRIu64, about->session);
	if (about->has_request)
		add(line, size, " request %" PRIu32, about->request);
	if (*line)
		add(line, size, ": ");
}

static const char *level_name(enum log_level level)
{
	static const char *const names[] = { "error", "warning", "notice", "info", "debug" };

	return names[level - LOG_LEVEL_ERROR];
}

static bool is_for_journal(void)
{
	return is_journal && atomic_load(&line_format) == LOG_FORMAT_AUTO;
}

/* Lines for the journal have their priority in front. */
static size_t format_line(enum log_level level, const char *text, char *line)
{
	int format = atomic_load(&line_format);
	char clock[32];
	struct timespec now;
	struct tm tm;
	int n;

	if (format == LOG_FORMAT_AUTO && !is_journal)
		format = usual;
	if (format == LOG_FORMAT_AUTO) {
		n = snprintf(line, SINK_LINE_BYTES, "<%d>%s\n", level, text);
	} else if (format == LOG_FORMAT_TIME) {
		clock_gettime(CLOCK_REALTIME, &now);
		localtime_r(&now.tv_sec, &tm);
		strftime(clock, sizeof clock, "%F %T", &tm);
		n = snprintf(line, SINK_LINE_BYTES, "%s.%03ld %-7s tmad: %s\n", clock, now.tv_nsec / 1000000,
		             level_name(level), text);
	} else {
		n = snprintf(line, SINK_LINE_BYTES, "tmad: %s\n", text);
	}
	return (size_t)n;
}

static void missing_text(uint64_t n, char *text, size_t size)
{
	snprintf(text, size, "%" PRIu64 " %s lost here: nobody read the log", n,
	         n == 1 ? "line was" : "lines were");
}

static size_t tell_missing(uint64_t n, char *line)
{
	char text[96];

	missing_text(n, text, sizeof text);
	return format_line(LOG_LEVEL_WARNING, text, line);
}

/* Returns 0, or a negative errno as journal_send. Reports missing lines first. */
static int send_to_journal(enum log_level level, const char *text, const struct log_about *about)
{
	static const struct log_about nothing;
	char missing[96];
	int r = 0;

	if (journal_lost > 0) {
		missing_text(journal_lost, missing, sizeof missing);
		r = journal_send(LOG_LEVEL_WARNING, missing, &nothing);
		if (r == 0)
			journal_lost = 0;
	}
	if (r != -EAGAIN)
		r = journal_send(level, text, about);
	if (r == -EAGAIN) { /* stderr is the journal too, and would be full next */
		journal_lost++;
		lost++;
	}
	return r;
}

/* Lines that the journal does not take natively go to stderr. */
static void write_line(enum log_level level, const char *text, const struct log_about *about)
{
	char line[SINK_LINE_BYTES];
	int r = is_for_journal() ? send_to_journal(level, text, about) : -ENOENT;

	if (r == 0 || r == -EAGAIN)
		return;
	if (!sink_write(line, format_line(level, text, line)))
		lost++;
}

_Static_assert(LINE_BYTES + 64 <= SINK_LINE_BYTES, "a line has room for what goes before it");

__attribute__((format(printf, 3, 0))) static void
log_args(enum log_level level, const struct log_about *about, const char *format, va_list args)
{
	char text[LINE_BYTES] = "";
	size_t used;

	if (!log_wants(level))
		return;
	add_about(text, sizeof text, about);
	used = strlen(text);
	vsnprintf(text + used, sizeof text - used, format, args);
	text_clean(text, strlen(text), text, sizeof text);
	write_line(level, text, about);
}

void log_line(enum log_level level, const char *format, ...)
{
	static const struct log_about nothing;
	va_list args;

	va_start(args, format);
	log_args(level, &nothing, format, args);
	va_end(args);
}

void log_about(enum log_level level, const struct log_about *about, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	log_args(level, about, format, args);
	va_end(args);
}

/* ---- How many ------------------------------------------------------------------------------------------ */

int log_allows(uint64_t user, unsigned long long now_ms)
{
	int i = 0;

	if (counted.second != now_ms / 1000) {
		if (counted.dropped > 0)
			log_line(LOG_LEVEL_NOTICE, "%u line%s about clients dropped", counted.dropped,
			         text_plural(counted.dropped));
		counted.second = now_ms / 1000;
		counted.dropped = 0;
		counted.n = 0;
	}
	while (i < counted.n && counted.row[i].user != user)
		i++;
	if (i == USERS)
		i--;
	if (i == counted.n) {
		counted.row[i].user = user;
		counted.row[i].lines = 0;
		counted.n++;
	}
	if (counted.row[i].lines < LINES_A_SECOND) {
		counted.row[i].lines++;
		return 1;
	}
	counted.dropped++;
	return 0;
}
