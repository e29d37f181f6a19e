/* SPDX-License-Identifier: Apache-2.0 */
/* A mutex guards the queue; the thread does not hold it while it writes. Lines are queued as they will be
 * written; each ends with its only line break. */
#include "sink.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static struct {
	int fd;
	bool may_wait; /* whether a write may block */
	sink_missing *tell;
	pthread_mutex_t lock;
	pthread_cond_t filled; /* or the thread is to end */
	pthread_cond_t emptied;
	pthread_t thread;
	bool has_thread;
	bool is_writing; /* the thread is writing a line */
	bool is_ending;
	uint64_t missing; /* not reported yet */
	size_t start, used;
	char queue[SINK_BYTES];
} sink = { .fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER };

static void *write_lines(void *arg);

static bool makes_wait(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && !S_ISREG(st.st_mode) && (!S_ISCHR(st.st_mode) || isatty(fd));
}

void sink_open(int fd, sink_missing *tell, uint64_t missing)
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
	/* Blocks SIGTTOU too: a terminal must not stop the process because this thread writes. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&sink.thread, NULL, write_lines, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return r == 0;
}

/* The length of the first line in the queue; 0: it is empty. */
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

/* For a descriptor that another process made non-blocking. */
static void write_whole(const char *line, size_t len)
{
	struct pollfd writable = { .fd = sink.fd, .events = POLLOUT };
	ssize_t n;

	for (size_t done = 0; done<len; done += n> 0 ? (size_t)n : 0) {
		n = write(sink.fd, line + done, len - done);
		if (n < 0 && errno == EAGAIN)
			poll(&writable, 1, -1);
		else if (n < 0 && errno != EINTR)
			return; /* there is no reader */
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

/* Reports missing lines first. */
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

/* Without a thread, writes from here. Another process may take the room first; then this waits. */
static bool write_if_ready(const char *line, size_t len)
{
	struct pollfd writable = { .fd = sink.fd, .events = POLLOUT };

	if (poll(&writable, 1, 0) <= 0 || !(writable.revents & POLLOUT))
		return false;
	write_whole(line, len);
	return true;
}

bool sink_write(const char *line, size_t len)
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

static uint64_t count_lines(void)
{
	uint64_t n = sink.is_writing;

	for (size_t i = 0; i < sink.used; i++)
		n += sink.queue[(sink.start + i) % SINK_BYTES] == '\n';
	return n;
}

uint64_t sink_close(unsigned ms)
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
