/* SPDX-License-Identifier: Apache-2.0 */
/* Colours, if the terminal shows them. */
#ifndef CLIENT_TMACTL_TERMINAL_COLOUR_H
#define CLIENT_TMACTL_TERMINAL_COLOUR_H

enum colour {
	COLOUR_NONE, /* the end of any other */
	COLOUR_BOLD,
	COLOUR_DIM,
	COLOUR_GOOD,
	COLOUR_BAD,
	COLOUR_HINT,
	COLOUR_REVERSE,
	COLOUR_COUNT
};

/* In the order of commands.def's words. */
enum colour_when { COLOURS_AUTO, COLOURS_ALWAYS, COLOURS_NEVER };

void colour_set(enum colour_when when);

/* What standard output is to be sent: "" without colours. auto: it is a terminal other than "dumb", and
 * $NO_COLOR is not set, or empty. */
const char *colour(enum colour which);

#endif
