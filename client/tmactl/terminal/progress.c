/* SPDX-License-Identifier: Apache-2.0 */
/* Draws what fits on one line. The percentage has priority, followed by the speed and the time left, the
 * name, and then a bar. */
#include "progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "print.h"
#include "proto/clock.h"

#define AFTER_S    1.0 /* work that takes less time has no progress line */
#define EVERY_S    0.1 /* time between two drawings */
#define BAR_MOST   30
#define BAR_LEAST  8
#define NAME_LEAST 8
#define SPARE      3 /* columns left free at the end of the line */

void progress_init(struct progress *progress, bool is_quiet)
{
	const char *term = getenv("TERM");

	*progress = (struct progress){ .start = clock_s() };
	progress->is_wanted = !is_quiet && isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
	progress->due = progress->start + AFTER_S;
}

double progress_seconds(const struct progress *progress)
{
	return clock_s() - progress->start;
}

bool progress_is_due(const struct progress *progress)
{
	return progress->is_wanted && clock_s() >= progress->due;
}

static int columns(void)
{
	struct winsize size = { 0 };

	return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
}

/* Draws the name. If it is too long, its end is shown, which says more than its start. */
static void draw_name(const char *name, int room)
{
	int len = (int)strlen(name);

	if (len <= room)
		fprintf(stderr, "%s  ", name);
	else if (room >= NAME_LEAST)
		fprintf(stderr, "...%s  ", name + len - room + 3);
}

static void draw_bar(int room, double done)
{
	int cells = (room < BAR_MOST + 4 ? room : BAR_MOST + 4) - 4, full;

	if (cells < BAR_LEAST)
		return;
	full = (int)(done * cells);
	fprintf(stderr, "[%.*s%.*s]  ", full, "##############################", cells - full,
	        "..............................");
}

void progress_show(struct progress *progress, const char *what, double done, const char *rate)
{
	char name[512], left[40], tail[128];
	double seconds;
	int room;

	if (!progress_is_due(progress))
		return;
	seconds = progress_seconds(progress);
	done = done < 0 ? 0 : done > 1 ? 1 : done;
	print_age(done > 0 ? (uint64_t)(seconds * (1 - done) / done * 1000) : 0, left, sizeof left);
	snprintf(tail, sizeof tail, "%3.0f %%  %s  %s%s", 100 * done, rate, done > 0 ? left : "",
	         done > 0 ? " left" : "");
	print_escaped(what, strlen(what), name, sizeof name);
	/* The spare columns leave room for the ^C that a terminal echoes, which would begin another line. */
	room = columns() - SPARE - (int)strlen(tail);
	fputs("\r\033[K", stderr);
	if (room < 0)
		fprintf(stderr, "%.*s", columns() > SPARE ? columns() - SPARE : 1, tail);
	else {
		draw_name(name, room - 2);
		if ((int)strlen(name) <= room - 2)
			draw_bar(room - 2 - (int)strlen(name), done);
		fputs(tail, stderr);
	}
	fflush(stderr);
	progress->is_drawn = true;
	progress->due = clock_s() + EVERY_S;
}

void progress_clear(struct progress *progress)
{
	if (progress->is_drawn)
		fputs("\r\033[K", stderr);
	progress->is_drawn = false;
}
