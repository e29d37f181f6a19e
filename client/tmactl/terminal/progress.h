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
	double start; /* seconds, by the monotonic clock */
	double due;   /* when it is to be drawn next */
};

/* is_quiet: never. The time counts from here. */
void progress_init(struct progress *progress, bool is_quiet);

/* Draws it, when it is time to: what, how much of it is done (0 to 1), how fast ("1.2 GB/s"), and how long it
 * will take at that speed. what may be anything: control bytes are escaped. */
void progress_show(struct progress *progress, const char *what, double done, const char *rate);

/* Whether progress_show would draw: to spare what making its arguments costs. */
bool progress_is_due(const struct progress *progress);

/* Takes it away. */
void progress_clear(struct progress *progress);

/* Since progress_init. */
double progress_seconds(const struct progress *progress);

#endif
