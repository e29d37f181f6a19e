/* Each line is one write, so that lines of several processes do not mix. */
#include "log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum log_level max_level = LOG_LEVEL_INFO;
static int journal;

#define LINES_A_SECOND 20 /* of one uid */
#define UIDS           16 /* counted at a time; further ones share the last row */

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
	journal = getenv("JOURNAL_STREAM") != NULL;
}

void log_set_level(enum log_level level)
{
	max_level = level;
}

int log_wants(enum log_level level)
{
	return level <= max_level;
}

void log_line(enum log_level level, const char *format, ...)
{
	char line[1024];
	size_t used;
	va_list args;
	int n;

	if (!log_wants(level))
		return;

	used = (size_t)(journal ? snprintf(line, sizeof line, "<%d>", level)
	                        : snprintf(line, sizeof line, "tmad: "));
	va_start(args, format);
	n = vsnprintf(line + used, sizeof line - used - 1, format, args);
	va_end(args);
	if (n < 0)
		return;
	used = strlen(line);
	line[used++] = '\n';
	if (write(STDERR_FILENO, line, used) < 0)
		return; /* nobody to tell */
}

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
