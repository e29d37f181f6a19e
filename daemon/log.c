/* Each line is one write, so that lines of several processes do not mix. */
#include "log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "journal.h"
#include "proto/text.h"

#define LINE_BYTES     1024
#define LINES_A_SECOND 20 /* of one uid */
#define UIDS           16 /* counted at a time; further ones share the last row */

static enum log_level max_level = LOG_LEVEL_INFO;
static bool is_journal;

/* Lines of the second that runs. */
static struct {
	unsigned long long second;
	unsigned dropped;
	int n;
	struct {
		unsigned uid;
		unsigned lines;
	} row[UIDS];
} counted;

void log_init(enum log_level level)
{
	max_level = level;
	is_journal = journal_is(STDERR_FILENO);
}

void log_set_level(enum log_level level)
{
	max_level = level;
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
	if (about->pid)
		add(line, size, " pid %d", about->pid);
	if (about->session)
		add(line, size, " session %" PRIu64, about->session);
	if (about->has_request)
		add(line, size, " request %" PRIu32, about->request);
	if (*line)
		add(line, size, ": ");
}

/* What the journal does not take by its own way it takes as stderr, with the priority in front. */
static void write_line(enum log_level level, const char *text, const struct log_about *about)
{
	char line[LINE_BYTES + 16];
	int r = is_journal ? journal_send(level, text, about) : 0, n;

	if (r == -EAGAIN) /* its stderr would be full next */
		counted.dropped++;
	if (is_journal && (r == 0 || r == -EAGAIN))
		return;
	n = is_journal ? snprintf(line, sizeof line, "<%d>%s\n", level, text)
	               : snprintf(line, sizeof line, "tmad: %s\n", text);
	if (write(STDERR_FILENO, line, (size_t)n) < 0)
		return; /* nobody to tell */
}

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

int log_allows(unsigned uid, unsigned long long now_ms)
{
	int i = 0;

	if (counted.second != now_ms / 1000) {
		if (counted.dropped > 0)
			log_line(LOG_LEVEL_NOTICE, "%u lines about clients dropped", counted.dropped);
		counted.second = now_ms / 1000;
		counted.dropped = 0;
		counted.n = 0;
	}
	while (i < counted.n && counted.row[i].uid != uid)
		i++;
	if (i == UIDS)
		i--;
	if (i == counted.n) {
		counted.row[i].uid = uid;
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
