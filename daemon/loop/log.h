/* SPDX-License-Identifier: Apache-2.0 */
/* The log of the service.
 *
 * If stderr is the systemd journal, a line is sent by the journal's native protocol, with fields for its
 * subject. Otherwise it is written to stderr after the program's name, and on a terminal also after the time
 * and the severity. An option selects another format. Only the loop's thread may log, and it never waits for
 * a reader.
 */
#ifndef DAEMON_LOOP_LOG_H
#define DAEMON_LOOP_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum log_level {
	LOG_LEVEL_ERROR = 3, /* values are the severities of syslog(3) */
	LOG_LEVEL_WARNING = 4,
	LOG_LEVEL_NOTICE = 5,
	LOG_LEVEL_INFO = 6,
	LOG_LEVEL_DEBUG = 7,
};

enum log_format {
	LOG_FORMAT_AUTO,  /* depends on whether stderr is the journal, a terminal or something else */
	LOG_FORMAT_PLAIN, /* the line begins with the program's name */
	LOG_FORMAT_TIME,  /* the line begins with time, severity and the program's name */
};

/* The subject of a line. A zeroed struct stands for no particular subject. */
struct log_about {
	bool has_uid;
	unsigned uid;       /* valid if has_uid */
	const char *cgroup; /* path of the cgroup that is the user; NULL or "": none */
	int pid;            /* 0: unknown */
	uint64_t session;   /* id of the session; 0: none */
	bool has_request;
	uint32_t request;     /* msgid of the request; valid if has_request */
	const char *method;   /* name of the method; NULL: none */
	const char *status;   /* name of the status; NULL: none */
	uint64_t duration_us; /* time since handling of the request began; 0: unknown */
};

/* Opens the log. Lines less severe than level are dropped. Determines whether stderr is the journal, a
 * terminal or something else, so it must be called before any line is logged. */
void log_init(enum log_level level);

/* Waits for at most LOG_CLOSE_MS until all lines are written. Must be called before the process ends. */
void log_close(void);

/* Does the same before execv. The number of lines that could not be written is passed on in an environment
 * variable, so that the program reports them after the execv. Returns 0 or a negative errno. */
int log_pass_on(void);

#define LOG_CLOSE_MS 500 /* longest wait of log_close and log_pass_on */

/* Returns the number of lines lost since the process started, because the journal or the reader of stderr was
 * too slow. */
uint64_t log_lost(void);

/* Set the level and the format of later lines. log_init sets LOG_FORMAT_AUTO. */
void log_set_level(enum log_level level);
void log_set_format(enum log_format format);

/* Returns 1 if a line of this level would be written, otherwise 0. */
int log_wants(enum log_level level);

/* Writes one line. Invalid or unprintable characters and line breaks in the text become "?", so that no peer
 * can forge a line. */
void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Writes one line that begins with its subject: "uid 1000 pid 17 session 3 request 12: ...". */
void log_about(enum log_level level, const struct log_about *about, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Limits the lines that clients can cause to a fixed number per second for each user (account.user), and to a
 * multiple of that for all users together. Returns 1 if another line about user may be written at now_ms,
 * otherwise 0, and counts the line as dropped. The number of dropped lines is logged at the first call in a
 * later second. */
int log_allows(uint64_t user, unsigned long long now_ms);

/* The user to pass to log_allows for lines that no single user has caused. */
#define LOG_NOBODY ((unsigned)-1)

/* The sink: writing to stderr without waiting for its reader.
 *
 * A pipe that is not read, a stopped terminal and a socket block their writer. The descriptor cannot be made
 * non-blocking, because the parent process shares it. So a thread writes to them from a queue of SINK_BYTES.
 * Lines that find no room in the queue are counted, and when there is room again a line with the count is
 * written in their place. Regular files and devices such as /dev/null are written to directly.
 */

#define SINK_BYTES      65536 /* size of the queue */
#define SINK_LINE_BYTES 1280  /* maximum size of a line; below PIPE_BUF, so that a pipe takes it whole */

/* Writes to line[SINK_LINE_BYTES] a line that says that n lines were lost, and returns its length. Called by
 * the loop's thread and by the writer, which hold the lock of the sink. */
typedef size_t sink_missing(uint64_t n, char *line);

#endif
