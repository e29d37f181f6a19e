/* SPDX-License-Identifier: Apache-2.0 */
/* Uses the terminal as a full-screen page: the alternate screen, no cursor, single key presses. While a
 * signal suspends the program, the terminal is restored. term_wait() reports a signal that asks the program
 * to stop, and the caller must then call term_close(). There is one page in the process, and only one thread
 * may use it. */
#ifndef CLIENT_TMACTL_TERMINAL_TERM_H
#define CLIENT_TMACTL_TERMINAL_TERM_H

#include <stddef.h>

enum term_key {
	TERM_TIMEOUT,
	TERM_CHAR,
	TERM_LEFT,
	TERM_RIGHT,
	TERM_REDRAW, /* the size has changed, or the program has been resumed */
	TERM_STOP,   /* a signal asks to stop (term_stopped), or the terminal is gone */
};

/* Opens the page. Returns 0, or -1 with errno set if standard output is not a terminal that can show it. Keys
 * are read from standard input if that is a terminal too. term_close() restores the terminal, and does
 * nothing if no page is open. */
int term_open(void);
void term_close(void);

/* Sets the terminal's columns and lines; 80 and 24 if they are unknown. */
void term_size(int *ret_columns, int *ret_lines);

/* Replaces the contents of the page. The lines of frame end with "\n" and must not be longer than the
 * terminal is wide. Lines below the bottom of the terminal are left out. */
void term_show(const char *frame);

/* Waits for a key or a signal, for at most timeout_ms milliseconds. Sets *ret_char if it returns
 * TERM_CHAR. */
enum term_key term_wait(int timeout_ms, char *ret_char);

/* Returns the signal that asked to stop, or 0 if there was none. */
int term_stopped(void);

#endif
