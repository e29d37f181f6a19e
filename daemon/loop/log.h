/* SPDX-License-Identifier: Apache-2.0 */
/* The log has one line for each decision.
 *
 * Under systemd a line goes to the journal, with fields for its subject (the journal's native protocol);
 * otherwise to stderr, with the program's name in front, and on a terminal also with time and severity,
 * unless another format was asked for. Only the loop's thread logs, and never waits for a reader.
 */
#ifndef DAEMON_LOOP_LOG_H
#define DAEMON_LOOP_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum log_level {
	LOG_LEVEL_ERROR = 3, /* the numbers of syslog */
	LOG_LEVEL_WARNING = 4,
	LOG_LEVEL_NOTICE = 5,
	LOG_LEVEL_INFO = 6,
	LOG_LEVEL_DEBUG = 7,
};

enum log_format {
	LOG_FORMAT_AUTO,  /* depends on what stderr is */
	LOG_FORMAT_PLAIN, /* the program's name in front */
	LOG_FORMAT_TIME,  /* time and severity, then the program's name */
};

/* A line may have this subject. A zeroed one is about nothing in particular. */
struct log_about {
	bool has_uid;
	unsigned uid;
	const char *cgroup; /* the cgroup that is charged, or is the subject itself; NULL or "": none */
	int pid;            /* 0: not known */
	uint64_t session;   /* 0: none */
	bool has_request;
	uint32_t request; /* msgid */
	const char *method;
	const char *status;   /* name of the status */
	uint64_t duration_us; /* time since handling of the request began; 0: unknown */
};

/* Drops lines above the level from now on. Determines once what stderr is: the journal, a terminal, something
 * else. */
void log_init(enum log_level level);

/* Gives the reader LOG_CLOSE_MS for unread lines. To be called before the process ends. */
void log_close(void);

/* Does the same before execv; the next life reports lines lost by then. Returns 0 or a negative errno. */
int log_pass_on(void);

#define LOG_CLOSE_MS 500

/* Returns the number of lines lost since the start, because the journal or the reader of stderr took no more.
 */
uint64_t log_lost(void);

/* These set another level or format, from the next line on. log_init sets LOG_FORMAT_AUTO. */
void log_set_level(enum log_level level);
void log_set_format(enum log_format format);

/* Tells whether a line of this level would be written. */
int log_wants(enum log_level level);

/* Writes one line. Bytes from a peer that are not characters, or would start another line, become "?". */
void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Writes one line with its subject in front: "uid 1000 pid 17 session 3 request 12: ...". */
void log_about(enum log_level level, const struct log_about *about, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Limits lines that clients can cause: a few a second for each user (account.h), and a few times as many in
 * total. Returns whether another line for user may be written at now_ms; the next line that may be written
 * reports those that were dropped. */
int log_allows(uint64_t user, unsigned long long now_ms);

/* log_allows takes this for lines that no single user has caused. */
#define LOG_NOBODY ((unsigned)-1)

/* Standard error is written to without waiting for its reader.
 *
 * A pipe that is not read, a stopped terminal and a socket block their writer, and the descriptor cannot be
 * made non-blocking, because the parent shares it. A thread writes to them from a queue of SINK_BYTES. Lines
 * that find no room are counted; the count is written in their place when there is room again. Files and
 * devices such as /dev/null are written to directly.
 */

#define SINK_BYTES      65536
#define SINK_LINE_BYTES 1280 /* most bytes of a line; a pipe takes it as a whole */

/* Formats the line "n lines are missing" into line[SINK_LINE_BYTES]; returns its length. Called by both
 * threads, one at a time. */
typedef size_t sink_missing(uint64_t n, char *line);

#endif
