/* SPDX-License-Identifier: Apache-2.0 */
/* The terminal as a full-screen page. Signals are blocked except in term_wait(), so that none interrupts an
 * output halfway. The handler only sets flags; term_wait() then suspends the program or reports that it is to
 * stop. */
#include "term.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define ENTER "\033[?1049h\033[?25l\033[H\033[2J"
#define LEAVE "\033[?25h\033[?1049l"

static const int watched[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH };

static struct {
	bool is_open;
	bool has_keys;
	struct termios before;
	sigset_t mask; /* signal mask before term_open() */
} term;

static volatile sig_atomic_t stop, suspend, redraw;

static void on_signal(int sig)
{
	if (sig == SIGWINCH || sig == SIGCONT)
		redraw = 1;
	else if (sig == SIGTSTP)
		suspend = 1;
	else
		stop = sig;
}

static void put(const char *text)
{
	size_t len = strlen(text), done = 0;

	while (done < len) {
		ssize_t n = write(STDOUT_FILENO, text + done, len - done);

		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return; /* The next term_wait() will find that the terminal is gone. */
		done += n > 0 ? (size_t)n : 0;
	}
}

static void enter(void)
{
	struct termios raw = term.before;

	raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	raw.c_cc[VMIN] = 1;
	raw.c_cc[VTIME] = 0;
	if (term.has_keys)
		tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
	put(ENTER);
}

static void leave(void)
{
	put(LEAVE);
	if (term.has_keys)
		tcsetattr(STDIN_FILENO, TCSADRAIN, &term.before);
}

int term_open(void)
{
	struct sigaction action = { .sa_handler = on_signal };
	const char *name = getenv("TERM");
	sigset_t mask;

	if (!isatty(STDOUT_FILENO) || !name || !*name || !strcmp(name, "dumb")) {
		errno = ENOTTY;
		return -1;
	}
	term.has_keys = tcgetattr(STDIN_FILENO, &term.before) == 0;
	sigemptyset(&mask);
	for (size_t i = 0; i < sizeof watched / sizeof *watched; i++) {
		struct sigaction old;

		if (sigaction(watched[i], NULL, &old) || old.sa_handler == SIG_IGN)
			continue;
		sigaction(watched[i], &action, NULL);
		sigaddset(&mask, watched[i]);
	}
	sigprocmask(SIG_BLOCK, &mask, &term.mask);
	term.is_open = true;
	enter();
	return 0;
}

void term_close(void)
{
	if (!term.is_open)
		return;
	leave();
	term.is_open = false;
	sigprocmask(SIG_SETMASK, &term.mask, NULL);
}

void term_size(int *ret_columns, int *ret_lines)
{
	struct winsize size = { 0 };

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col == 0 || size.ws_row == 0)
		size = (struct winsize){ .ws_col = 80, .ws_row = 24 };
	*ret_columns = size.ws_col;
	*ret_lines = size.ws_row;
}

void term_show(const char *frame)
{
	size_t size = strlen(frame) + 1, lines = 0;
	int columns, left;
	char *text, *at;

	for (const char *c = frame; *c; c++)
		lines += *c == '\n';
	term_size(&columns, &left);
	text = at = malloc(size + 4 * lines + 16);
	if (!text)
		return;
	at = stpcpy(at, "\033[H");
	for (const char *c = frame; *c && left > 0; c++) {
		if (*c == '\n')
			at = stpcpy(at, --left && c[1] ? "\033[K\r\n" : "\033[K");
		else
			*at++ = *c;
	}
	strcpy(at, "\033[J");
	put(text);
	free(text);
}

/* Suspends the process, and restores the terminal for the shell meanwhile. */
static void suspend_now(void)
{
	suspend = 0;
	leave();
	raise(SIGSTOP);
	enter();
	redraw = 1;
}

static enum term_key read_key(char *ret_char)
{
	char keys[8];
	ssize_t n = read(STDIN_FILENO, keys, sizeof keys);

	if (n <= 0) {
		term.has_keys = n < 0 && errno == EINTR;
		return TERM_TIMEOUT;
	}
	if (n >= 3 && keys[0] == '\033' && (keys[1] == '[' || keys[1] == 'O')) {
		if (keys[2] == 'C')
			return TERM_RIGHT;
		if (keys[2] == 'D')
			return TERM_LEFT;
	}
	*ret_char = keys[0];
	return TERM_CHAR;
}

enum term_key term_wait(int timeout_ms, char *ret_char)
{
	struct pollfd fds[] = { { .fd = term.has_keys ? STDIN_FILENO : -1, .events = POLLIN },
		                { .fd = STDOUT_FILENO, .events = 0 } };
	struct timespec timeout = { timeout_ms / 1000, timeout_ms % 1000 * 1000000L };
	int n = ppoll(fds, 2, &timeout, &term.mask);

	if (suspend)
		suspend_now();
	if (stop || (n > 0 && fds[1].revents & (POLLERR | POLLHUP | POLLNVAL)))
		return TERM_STOP;
	if (redraw) {
		redraw = 0;
		return TERM_REDRAW;
	}
	return n > 0 && fds[0].revents ? read_key(ret_char) : TERM_TIMEOUT;
}

int term_stopped(void)
{
	return stop;
}
