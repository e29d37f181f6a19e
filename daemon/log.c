/* Each line is one write, so that lines of several processes do not mix. */
#include "log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum log_level max_level = LOG_LEVEL_INFO;
static int journal;

void log_init(enum log_level level)
{
	max_level = level;
	journal = getenv("JOURNAL_STREAM") != NULL;
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
