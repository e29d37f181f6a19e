/* SPDX-License-Identifier: Apache-2.0 */
/* The terminal as a full-screen page: alternate screen, no cursor, single key presses. The terminal is
 * restored however the page ends: by close, or by a signal that stops or suspends the program. There is
 * one page at a time. */
#ifndef CLIENT_TMACTL_TERMINAL_TERM_H
#define CLIENT_TMACTL_TERMINAL_TERM_H

#include <stddef.h>

enum term_key {
	TERM_TIMEOUT,
	TERM_CHAR,
	TERM_LEFT,
	TERM_RIGHT,
	TERM_REDRAW, /* the size has changed, or the program goes on after it was suspended */
	TERM_STOP,   /* a signal, which term_stopped names; or the terminal is gone */
};

/* 0, or -1 with errno when standard output is no terminal that can do this. Keys come from standard input, if
 * that is a terminal too. */
int term_open(void);
void term_close(void);

/* Columns and lines. */
void term_size(int *ret_columns, int *ret_lines);

/* Replaces what is shown. Lines end with "\n", and none is longer than the terminal is wide; those below its
 * end are left out. */
void term_show(const char *frame);

/* Waits for a key until so many milliseconds have gone; *ret_char is that of TERM_CHAR. */
enum term_key term_wait(int timeout_ms, char *ret_char);

/* The signal that asked to stop; 0: none. */
int term_stopped(void);

#endif
