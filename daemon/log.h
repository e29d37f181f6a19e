/* One line a decision, to stderr: plain for a person, with journal priorities under systemd. */
#ifndef DAEMON_LOG_H
#define DAEMON_LOG_H

enum log_level {
	LOG_LEVEL_ERROR = 3, /* numbers are syslog's */
	LOG_LEVEL_WARNING = 4,
	LOG_LEVEL_NOTICE = 5,
	LOG_LEVEL_INFO = 6,
	LOG_LEVEL_DEBUG = 7,
};

/* Lines above the level are dropped. Looks at $JOURNAL_STREAM once. */
void log_init(enum log_level level);

/* Another level from now on. */
void log_set_level(enum log_level level);

/* Whether a line of this level would be written. */
int log_wants(enum log_level level);

void log_line(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What clients can cause is bounded: of each uid a few lines a second, of all a few times as many. Whether
 * one more of uid's may be written at now_ms; what was dropped is said with the first that may again. */
int log_allows(unsigned uid, unsigned long long now_ms);

#endif
