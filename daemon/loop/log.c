/* SPDX-License-Identifier: Apache-2.0 */
/* Formatting of lines, the journal's native protocol, and the thread that writes to stderr. Each line is
 * written by one call of write, so that lines of several processes do not mix. */
#include "log.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "proto/status.h"

#define LOST_VARIABLE  "TMAD_LOG_LOST" /* "PID LINES": lines lost before an execv */
#define LINE_BYTES     1024            /* maximum number of bytes of a text, subject included */
#define LINES_A_SECOND 20              /* maximum number of lines about one user in a second */
#define USERS          16              /* users counted separately in a second; others share the last row */

static enum log_level max_level = LOG_LEVEL_INFO;
static bool is_journal;                          /* stderr is the journal, whatever line_format says */
static enum log_format usual = LOG_FORMAT_PLAIN; /* what LOG_FORMAT_AUTO means if stderr is not the journal */
static atomic_int line_format; /* enum log_format; set by the loop, also read by the sink's thread */
static uint64_t lost;          /* lines lost since the start */
static uint64_t journal_lost;  /* lines that the journal did not take, not yet reported to it */

/* Lines about clients in the current second; used by log_allows. */
static struct {
	unsigned long long second; /* current second of the clock of log_allows */
	unsigned dropped;          /* lines dropped in that second */
	int n;                     /* number of rows in use */
	struct {
		uint64_t user;
		unsigned lines;
	} row[USERS];
} counted;

static uint64_t sink_close(unsigned ms);
static bool sink_write(const char *line, size_t len);
static void sink_open(int fd, sink_missing *tell, uint64_t missing);
static int journal_send(enum log_level level, const char *text, const struct log_about *about);
static bool journal_is(int fd);
static size_t tell_missing(uint64_t n, char *line);

static uint64_t take_lost(void)
{
	const char *text = getenv(LOST_VARIABLE);
	uint64_t n = 0;
	int64_t pid;

	if (text && (sscanf(text, "%" SCNd64 " %" SCNu64, &pid, &n) != 2 || pid != getpid()))
		n = 0;
	unsetenv(LOST_VARIABLE);
	return n;
}

void log_init(enum log_level level)
{
	max_level = level;
	is_journal = journal_is(STDERR_FILENO);
	usual = isatty(STDERR_FILENO) ? LOG_FORMAT_TIME : LOG_FORMAT_PLAIN;
	atomic_store(&line_format, LOG_FORMAT_AUTO);
	lost = take_lost();
	tzset(); /* now, because it reads a file and may block */
	sink_open(STDERR_FILENO, tell_missing, lost);
}

void log_close(void)
{
	sink_close(LOG_CLOSE_MS);
}

int log_pass_on(void)
{
	uint64_t n = sink_close(LOG_CLOSE_MS) + journal_lost;
	char text[48];

	if (n == 0)
		return 0;
	snprintf(text, sizeof text, "%d %" PRIu64, (int)getpid(), n);
	return setenv(LOST_VARIABLE, text, 1) < 0 ? -errno : 0;
}

uint64_t log_lost(void)
{
	return lost;
}

void log_set_level(enum log_level level)
{
	max_level = level;
}

void log_set_format(enum log_format format)
{
	atomic_store(&line_format, (int)format);
}

int log_wants(enum log_level level)
{
	return level <= max_level;
}

/* ---- A line ------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static void add(char *line, size_t size, const char *format, ...)
{
	size_t used = strlen(line);
	va_list args;

	va_start(args, format);
	vsnprintf(line + used, size - used, format, args);
	va_end(args);
}

static void add_about(char *line, size_t size, const struct log_about *about)
{
	if (about->has_uid)
		add(line, size, "uid %u", about->uid);
	if (about->cgroup && *about->cgroup)
		add(line, size, "%scgroup %s", about->has_uid ? " " : "", about->cgroup);
	if (about->pid)
		add(line, size, " pid %d", about->pid);
	if (about->session)
		add(line, size, " session %" PRIu64, about->session);
	if (about->has_request)
		add(line, size, " request %" PRIu32, about->request);
	if (*line)
		add(line, size, ": ");
}

static const char *level_name(enum log_level level)
{
	static const char *const names[] = { "error", "warning", "notice", "info", "debug" };

	return names[level - LOG_LEVEL_ERROR];
}

static bool is_for_journal(void)
{
	return is_journal && atomic_load(&line_format) == LOG_FORMAT_AUTO;
}

/* Formats a whole line with its line break into line[SINK_LINE_BYTES], and returns its length. If stderr is
 * the journal, the line begins with its priority as sd-daemon(3) defines. */
static size_t format_line(enum log_level level, const char *text, char *line)
{
	int format = atomic_load(&line_format);
	char clock[32];
	struct timespec now;
	struct tm tm;
	int n;

	if (format == LOG_FORMAT_AUTO && !is_journal)
		format = usual;
	if (format == LOG_FORMAT_AUTO) {
		n = snprintf(line, SINK_LINE_BYTES, "<%d>%s\n", level, text);
	} else if (format == LOG_FORMAT_TIME) {
		clock_gettime(CLOCK_REALTIME, &now);
		localtime_r(&now.tv_sec, &tm);
		strftime(clock, sizeof clock, "%F %T", &tm);
		n = snprintf(line, SINK_LINE_BYTES, "%s.%03ld %-7s tmad: %s\n", clock, now.tv_nsec / 1000000,
		             level_name(level), text);
	} else {
		n = snprintf(line, SINK_LINE_BYTES, "tmad: %s\n", text);
	}
	return (size_t)n;
}

static void missing_text(uint64_t n, char *text, size_t size)
{
	snprintf(text, size, "%" PRIu64 " %s lost here: nobody read the log", n,
	         n == 1 ? "line was" : "lines were");
}

static size_t tell_missing(uint64_t n, char *line)
{
	char text[96];

	missing_text(n, text, sizeof text);
	return format_line(LOG_LEVEL_WARNING, text, line);
}

/* Sends a line by the native protocol, and reports lost lines before it. Returns 0 or a negative errno, as
 * journal_send does. */
static int send_to_journal(enum log_level level, const char *text, const struct log_about *about)
{
	static const struct log_about nothing;
	char missing[96];
	int r = 0;

	if (journal_lost > 0) {
		missing_text(journal_lost, missing, sizeof missing);
		r = journal_send(LOG_LEVEL_WARNING, missing, &nothing);
		if (r == 0)
			journal_lost = 0;
	}
	if (r != -EAGAIN)
		r = journal_send(level, text, about);
	if (r == -EAGAIN) { /* stderr leads to the journal as well, and would block next */
		journal_lost++;
		lost++;
	}
	return r;
}

/* Sends a line to the journal, or writes it to stderr if stderr is not the journal or the native protocol
 * fails. */
static void write_line(enum log_level level, const char *text, const struct log_about *about)
{
	char line[SINK_LINE_BYTES];
	int r = is_for_journal() ? send_to_journal(level, text, about) : -ENOENT;

	if (r == 0 || r == -EAGAIN)
		return;
	if (!sink_write(line, format_line(level, text, line)))
		lost++;
}

_Static_assert(LINE_BYTES + 64 <= SINK_LINE_BYTES, "a line has room for what goes before it");

__attribute__((format(printf, 3, 0))) static void
log_args(enum log_level level, const struct log_about *about, const char *format, va_list args)
{
	char text[LINE_BYTES] = "";
	size_t used;

	if (!log_wants(level))
		return;
	add_about(text, sizeof text, about);
	used = strlen(text);
	vsnprintf(text + used, sizeof text - used, format, args);
	text_clean(text, strlen(text), text, sizeof text);
	write_line(level, text, about);
}

void log_line(enum log_level level, const char *format, ...)
{
	static const struct log_about nothing;
	va_list args;

	va_start(args, format);
	log_args(level, &nothing, format, args);
	va_end(args);
}

void log_about(enum log_level level, const struct log_about *about, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	log_args(level, about, format, args);
	va_end(args);
}

/* ---- How many ------------------------------------------------------------------------------------------ */

int log_allows(uint64_t user, unsigned long long now_ms)
{
	int i = 0;

	if (counted.second != now_ms / 1000) {
		if (counted.dropped > 0)
			log_line(LOG_LEVEL_NOTICE, "%u line%s about clients dropped", counted.dropped,
			         text_plural(counted.dropped));
		counted.second = now_ms / 1000;
		counted.dropped = 0;
		counted.n = 0;
	}
	while (i < counted.n && counted.row[i].user != user)
		i++;
	if (i == USERS)
		i--;
	if (i == counted.n) {
		counted.row[i].user = user;
		counted.row[i].lines = 0;
		counted.n++;
	}
	if (counted.row[i].lines < LINES_A_SECOND) {
		counted.row[i].lines++;
		return 1;
	}
	counted.dropped++;
	return 0;
}

/* ==== The journal ==================================================================================== */

/* A log line is sent as one datagram of NAME=VALUE lines (systemd's Native Journal Protocol), which is built
 * on the stack. sd_journal_sendv is not used, because it waits for a journal that does not read, and the loop
 * must not wait. */

#define JOURNAL "/run/systemd/journal/socket"

/* The datagram. No value contains a line break: the text has been cleaned (text_clean), and the other values
 * are numbers and names. */
struct fields {
	char room[2048];
	size_t used;
};

/* Returns whether fd leads to the journal: $JOURNAL_STREAM has the device and inode of the journal's stream.
 * They are compared with those of fd, because stderr may have been redirected since the variable was set. */
static bool journal_is(int fd)
{
	const char *stream = getenv("JOURNAL_STREAM");
	uint64_t device, inode;
	struct stat st;

	return stream && sscanf(stream, "%" SCNu64 ":%" SCNu64, &device, &inode) == 2 &&
	       fstat(fd, &st) == 0 && st.st_dev == device && st.st_ino == inode;
}

__attribute__((format(printf, 2, 3))) static void add_field(struct fields *f, const char *format, ...)
{
	size_t room = sizeof f->room - f->used;
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(f->room + f->used, room, format, args);
	va_end(args);
	if (n < 0 || (size_t)n + 1 >= room)
		return;
	f->used += (size_t)n;
	f->room[f->used++] = '\n';
}

static void add_fields(struct fields *f, const struct log_about *about)
{
	if (about->has_uid)
		add_field(f, "TMAD_UID=%u", about->uid);
	if (about->cgroup && *about->cgroup)
		add_field(f, "TMAD_CGROUP=%s", about->cgroup);
	if (about->pid)
		add_field(f, "TMAD_PID=%d", about->pid);
	if (about->session)
		add_field(f, "TMAD_SESSION=%" PRIu64, about->session);
	if (about->has_request)
		add_field(f, "TMAD_REQUEST=%" PRIu32, about->request);
	if (about->method)
		add_field(f, "TMAD_METHOD=%s", about->method);
	if (about->status)
		add_field(f, "TMAD_STATUS=%s", about->status);
	if (about->duration_us)
		add_field(f, "TMAD_DURATION_US=%" PRIu64, about->duration_us);
}

/* Sends a line with its priority and the known fields of its subject (TMAD_UID, TMAD_PID and so on). Never
 * blocks. Returns 0, or a negative errno if the journal did not take the line: -EAGAIN if it has no room. */
static int journal_send(enum log_level level, const char *text, const struct log_about *about)
{
	static const struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = JOURNAL };
	static int fd = -1;
	struct fields f;

	if (fd < 0)
		fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	f.used = 0;
	add_field(&f, "MESSAGE=%s", text);
	add_field(&f, "PRIORITY=%d", level);
	add_field(&f, "SYSLOG_IDENTIFIER=tmad");
	add_fields(&f, about);
	return sendto(fd, f.room, f.used, MSG_NOSIGNAL, (const struct sockaddr *)&address, sizeof address) < 0
	           ? -errno
	           : 0;
}

/* ==== The writer ===================================================================================== */

/* The queue is a ring of bytes, guarded by a mutex that the thread releases while it writes. Lines are queued
 * as they will be written; each contains exactly one line break, at its end. */

static struct {
	int fd;
	bool may_wait;          /* a write to fd may block, so the thread does it */
	sink_missing *tell;     /* formats the line about lost lines */
	pthread_mutex_t lock;   /* guards the fields below `has_thread` */
	pthread_cond_t filled;  /* signalled when there is something to write, or the thread has to end */
	pthread_cond_t emptied; /* signalled when the thread has written a line */
	pthread_t thread;
	bool has_thread;    /* the thread runs; used by the loop's thread only */
	bool is_writing;    /* the thread is writing a line that is no longer in the queue */
	bool is_ending;     /* the thread has to end */
	uint64_t missing;   /* lost lines that have not been reported yet */
	size_t start, used; /* index of the first queued byte, and number of queued bytes */
	char queue[SINK_BYTES];
} sink = { .fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER };

static void *write_lines(void *arg);

/* Returns whether a write to fd may block: it is neither a regular file nor a character device other than a
 * terminal. */
static bool makes_wait(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && !S_ISREG(st.st_mode) && (!S_ISCHR(st.st_mode) || isatty(fd));
}

/* Opens the sink on fd. missing is the number of lines lost before an execv. Must be called once. */
static void sink_open(int fd, sink_missing *tell, uint64_t missing)
{
	sink.fd = fd;
	sink.may_wait = makes_wait(fd);
	sink.tell = tell;
	sink.missing = missing;
}

/* ---- The thread --------------------------------------------------------------------------------------- */

static bool start_thread(void)
{
	pthread_condattr_t monotonic;
	sigset_t all, before;
	int r;

	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&sink.filled, NULL);
	pthread_cond_init(&sink.emptied, &monotonic);
	pthread_condattr_destroy(&monotonic);
	/* The thread blocks all signals, among them SIGTTOU: a terminal must not stop the process because the
	 * thread writes to it. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&sink.thread, NULL, write_lines, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return r == 0;
}

/* Moves the first line from the queue to line, and returns its length, or 0 if the queue is empty. The caller
 * must hold sink.lock. */
static size_t take(char *line)
{
	size_t n = 0;

	while (sink.used > 0 && (n == 0 || line[n - 1] != '\n')) {
		line[n++] = sink.queue[sink.start];
		sink.start = (sink.start + 1) % SINK_BYTES;
		sink.used--;
	}
	return n;
}

/* Writes the whole line, waiting for room if another process has made the descriptor non-blocking. */
static void write_whole(const char *line, size_t len)
{
	struct pollfd writable = { .fd = sink.fd, .events = POLLOUT };
	ssize_t n;

	for (size_t done = 0; done<len; done += n> 0 ? (size_t)n : 0) {
		n = write(sink.fd, line + done, len - done);
		if (n < 0 && errno == EAGAIN)
			poll(&writable, 1, -1);
		else if (n < 0 && errno != EINTR)
			return; /* the reader is gone */
	}
}

static void *write_lines(void *arg)
{
	char line[SINK_LINE_BYTES];
	size_t n;

	(void)arg;
	pthread_mutex_lock(&sink.lock);
	for (;;) {
		while (sink.used == 0 && !sink.missing && !sink.is_ending)
			pthread_cond_wait(&sink.filled, &sink.lock);
		n = take(line);
		if (n == 0 && sink.missing) {
			n = sink.tell(sink.missing, line);
			sink.missing = 0;
		}
		if (n == 0)
			break;
		sink.is_writing = true;
		pthread_mutex_unlock(&sink.lock);
		write_whole(line, n);
		pthread_mutex_lock(&sink.lock);
		sink.is_writing = false;
		pthread_cond_signal(&sink.emptied);
	}
	pthread_mutex_unlock(&sink.lock);
	return NULL;
}

/* ---- A line ------------------------------------------------------------------------------------------- */

static bool put(const char *line, size_t len)
{
	if (len > SINK_BYTES - sink.used)
		return false;
	for (size_t i = 0; i < len; i++)
		sink.queue[(sink.start + sink.used + i) % SINK_BYTES] = line[i];
	sink.used += len;
	return true;
}

/* Queues a line after a report of lost lines, if there are any. Returns false, with nothing queued, if there
 * is no room for both. The caller must hold sink.lock. */
static bool put_in_order(const char *line, size_t len)
{
	char told[SINK_LINE_BYTES];
	size_t n = sink.missing ? sink.tell(sink.missing, told) : 0;

	if (n + len > SINK_BYTES - sink.used)
		return false;
	put(told, n);
	sink.missing = 0;
	return put(line, len);
}

/* Writes a line from the calling thread, because the writer could not be started. Returns false if fd has no
 * room. If another process takes the room between poll and write, this waits. */
static bool write_if_ready(const char *line, size_t len)
{
	struct pollfd writable = { .fd = sink.fd, .events = POLLOUT };

	if (poll(&writable, 1, 0) <= 0 || !(writable.revents & POLLOUT))
		return false;
	write_whole(line, len);
	return true;
}

/* Writes or queues a whole line, including its line break, without waiting for a reader. Returns false if
 * there was no room and the line is lost. Only the loop's thread may call this. */
static bool sink_write(const char *line, size_t len)
{
	bool taken;

	if (!sink.may_wait) {
		write_whole(line, len);
		return true;
	}
	pthread_mutex_lock(&sink.lock);
	if (!sink.has_thread)
		sink.has_thread = start_thread();
	taken = sink.has_thread ? put_in_order(line, len) : write_if_ready(line, len);
	if (!taken)
		sink.missing++;
	else if (sink.has_thread)
		pthread_cond_signal(&sink.filled);
	pthread_mutex_unlock(&sink.lock);
	return taken;
}

/* ---- The end ------------------------------------------------------------------------------------------ */

/* Returns the number of lines that are queued or being written. The caller must hold sink.lock. */
static uint64_t count_lines(void)
{
	uint64_t n = sink.is_writing;

	for (size_t i = 0; i < sink.used; i++)
		n += sink.queue[(sink.start + i) % SINK_BYTES] == '\n';
	return n;
}

/* Waits for at most ms until all lines are written, and returns the number of lines that are not, including
 * lost lines that have not been reported. Ends the thread if there are none. */
static uint64_t sink_close(unsigned ms)
{
	struct timespec end;
	uint64_t left;
	int r = 0;

	if (!sink.has_thread)
		return sink.missing;
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += ms / 1000;
	end.tv_nsec += (long)(ms % 1000) * 1000000;
	if (end.tv_nsec >= 1000000000) {
		end.tv_sec++;
		end.tv_nsec -= 1000000000;
	}
	pthread_mutex_lock(&sink.lock);
	while (r == 0 && (sink.used > 0 || sink.missing || sink.is_writing))
		r = pthread_cond_timedwait(&sink.emptied, &sink.lock, &end);
	left = count_lines() + sink.missing;
	sink.is_ending = left == 0;
	pthread_cond_signal(&sink.filled);
	pthread_mutex_unlock(&sink.lock);
	if (left == 0) {
		pthread_join(sink.thread, NULL);
		sink.has_thread = sink.is_ending = false;
	}
	return left;
}
