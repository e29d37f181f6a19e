/* One line a decision. Under systemd it goes to the journal, with fields that say whom and what it is about
 * (journal.c); else to stderr, the same words behind the program's name, on a terminal with time and severity
 * before them. Of the loop's thread alone, which never waits for a reader (sink.h).
 */
#ifndef DAEMON_OBSERVE_LOG_H
#define DAEMON_OBSERVE_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level {
	LOG_LEVEL_ERROR = 3, /* numbers are syslog's */
	LOG_LEVEL_WARNING = 4,
	LOG_LEVEL_NOTICE = 5,
	LOG_LEVEL_INFO = 6,
	LOG_LEVEL_DEBUG = 7,
};

/* Whom and what a line is about; zeroed: nothing in particular. */
struct log_about {
	bool has_uid;
	unsigned uid;
	int pid;          /* 0: not known */
	uint64_t session; /* 0: none */
	bool has_request;
	uint32_t request; /* msgid */
	const char *method;
	const char *status;   /* its name */
	uint64_t duration_us; /* since the request was taken up; 0: not known */
};

/* Lines above the level are dropped. Looks once what stderr is: the journal's, a terminal, something else. */
void log_init(enum log_level level);

/* Before the process ends: what nobody has read yet has LOG_CLOSE_MS more. */
void log_close(void);

/* The same before execv; what was lost by then is said in the next life. Negative errno. */
int log_pass_on(void);

#define LOG_CLOSE_MS 500

/* Lines lost since the start, because the journal or the reader of stderr took no more. */
uint64_t log_lost(void);

/* Another level from now on. */
void log_set_level(enum log_level level);

/* Whether a line of this level would be written. */
int log_wants(enum log_level level);

/* One line: what a peer may have put into it that is no character, or would begin another line, is '?'. */
void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same, and before it whom it is about: "uid 1000 pid 17 session 3 request 12: ...". */
void log_about(enum log_level level, const struct log_about *about, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* What clients can cause is bounded: of each uid a few lines a second, of all a few times as many. Whether
 * one more of uid's may be written at now_ms; what was dropped is said with the first that may again. */
int log_allows(unsigned uid, unsigned long long now_ms);

/* For log_allows, of what no one uid has caused. */
#define LOG_NOBODY ((unsigned)-1)

#endif
