/* SPDX-License-Identifier: Apache-2.0 */
/* A progress line on standard error: only on a terminal, only for work that takes longer than a moment,
 * never wider than the terminal, and erased before any other message. */
#ifndef CLIENT_TMACTL_TERMINAL_PROGRESS_H
#define CLIENT_TMACTL_TERMINAL_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
	bool is_wanted;
	bool is_drawn;
	double start; /* when the work began, in seconds of the monotonic clock */
	double due;   /* when the line is to be drawn next, by the same clock */
};

/* Starts measuring the time of the work. If is_quiet is set, the line is never drawn. */
void progress_init(struct progress *progress, bool is_quiet);

/* Draws the line if it is due: the name of the work, the part that is done (0 to 1), the speed as text, such
 * as "1.2 GB/s", and the time that the rest will take. The name is escaped. */
void progress_show(struct progress *progress, const char *what, double done, const char *rate);

/* Returns whether progress_show() would draw, so that its arguments need not be computed in vain. */
bool progress_is_due(const struct progress *progress);

/* Erases the line. */
void progress_clear(struct progress *progress);

/* Returns the seconds since progress_init(). */
double progress_seconds(const struct progress *progress);

#endif
