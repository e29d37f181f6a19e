/* SPDX-License-Identifier: Apache-2.0 */
/* Escape sequences for coloured text on standard output, if colours are wanted. */
#ifndef CLIENT_TMACTL_TERMINAL_COLOUR_H
#define CLIENT_TMACTL_TERMINAL_COLOUR_H

enum colour {
	COLOUR_NONE, /* ends any other colour or style */
	COLOUR_BOLD,
	COLOUR_DIM,
	COLOUR_GOOD,
	COLOUR_BAD,
	COLOUR_HINT,
	COLOUR_REVERSE,
	COLOUR_COUNT
};

/* The values of --color, in the order of WORDS(WHEN) in commands.def. COLOURS_AUTO uses colours if standard
 * output is a terminal, $TERM is set and not "dumb", and $NO_COLOR is unset or empty. */
enum colour_when { COLOURS_AUTO, COLOURS_ALWAYS, COLOURS_NEVER };

void colour_set(enum colour_when when);

/* Returns the escape sequence that begins a colour, or "" if no colours are used. */
const char *colour(enum colour which);

#endif
