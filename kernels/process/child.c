/* SPDX-License-Identifier: Apache-2.0 */
/* Starts children, makes calls to them, and waits for their end. */
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "proto/wire/socket.h"

/* Interval in milliseconds at which a waiting call checks whether its result is still wanted and whether it
 * may go on waiting. */
#define UNWANTED_MS 20

extern char **environ;

static int open_socket(struct child *child, uint32_t number, struct error *err);

/* ---- Start -------------------------------------------------------------------------------------------- */

static int no_start(struct error *err, const char *what)
{
	return error_set(err, STATUS_NO_MEMORY, "a process for the engine cannot be started: %s: %s", what,
	                 strerror(errno));
}

/* Creates the shared memory. The caller closes *ret_fd, also after a failure. */
static int make_shared(struct child *child, int *ret_fd, struct error *err)
{
	int fd = memfd_create("engine", MFD_CLOEXEC);
	void *words;

	if (fd < 0)
		return no_start(err, "memfd_create");
	*ret_fd = fd;
	if (ftruncate(fd, SHARED_FILE_BYTES) < 0)
		return no_start(err, "ftruncate");
	words = mmap(NULL, sizeof *child->shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (words == MAP_FAILED)
		return no_start(err, "mmap");
	child->shared = words;
	if (!ring_map(&child->to_child, &child->shared->to_child, fd, SHARED_TO_CHILD_AT) ||
	    !ring_map(&child->to_front, &child->shared->to_front, fd, SHARED_TO_FRONT_AT))
		return no_start(err, "mmap");
	return 0;
}

/* Starts the program again. posix_spawn copies none of this process's mappings, however many there are, and
 * none of this program's code runs before exec. */
static int spawn(struct child *child, int control, const struct wire_hello *hello, struct error *err)
{
	char *argv[] = { (char *)START_NAME, (char *)hello->engine,
		         (char *)(hello->has_device ? hello->device : NULL), NULL };
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none, all;
	int r;

	sigemptyset(&none);
	sigfillset(&all);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, control, START_FD);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setsigdefault(&attributes, &all);
	r = posix_spawn(&child->pid, "/proc/self/exe", &actions, &attributes, argv, environ);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	if (r) {
		errno = r;
		return no_start(err, "posix_spawn");
	}
	child->is_running = true;
	child->pidfd = (int)syscall(SYS_pidfd_open, child->pid, 0);
	if (child->pidfd >= 0)
		return 0;
	no_start(err, "pidfd_open");
	kill(child->pid, SIGKILL);
	return err->status;
}

/* Makes the control socket. ends[1], the child's end, is always above START_FD: if it were START_FD itself,
 * posix_spawn would leave it close-on-exec. */
static int make_sockets(int ends[2], struct error *err)
{
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return no_start(err, "socketpair");
	if (ends[1] <= START_FD) {
		int moved = fcntl(ends[1], F_DUPFD_CLOEXEC, START_FD + 1);

		close(ends[1]);
		ends[1] = moved;
		if (moved < 0) {
			close(ends[0]);
			return no_start(err, "socketpair");
		}
	}
	return 0;
}

static int start(struct child *child, const struct wire_hello *hello, int doorbell, int *memory, int ends[2],
                 struct error *err)
{
	ssize_t n;
	int r = make_shared(child, memory, err);

	if (r == 0)
		r = make_sockets(ends, err);
	if (r < 0)
		return r;
	child->control = ends[0];
	r = spawn(child, ends[1], hello, err);
	if (r < 0)
		return r;
	n = socket_send(child->control, hello, sizeof *hello, (int[]){ *memory, doorbell }, 2);
	if (n >= 0)
		return 0;
	errno = (int)-n;
	return no_start(err, "sendmsg");
}

int child_start(struct child **ret, uint64_t life, const struct wire_hello *hello, int doorbell,
                struct error *err)
{
	struct child *child = calloc(1, sizeof *child);
	int memory = -1, ends[2] = { -1, -1 };
	int r;

	if (!child)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	atomic_init(&child->refs, 1);
	child->life = life;
	child->pidfd = child->control = -1;
	memset(child->socket, -1, sizeof child->socket);
	pthread_mutex_init(&child->lock, NULL);
	pthread_cond_init(&child->is_free, NULL);
	r = start(child, hello, doorbell, &memory, ends, err);
	if (memory >= 0)
		close(memory);
	if (ends[1] >= 0)
		close(ends[1]);
	if (r < 0) {
		child_kill(child);
		child_wait(child, -1, NULL);
		child_unref(child);
		return r;
	}
	*ret = child;
	return 0;
}

int child_await(struct child *child, int ms, int stop, struct wire_ready *ret, struct error *err)
{
	struct pollfd fds[] = { { child->control, POLLIN, 0 }, { stop, POLLIN, 0 } };
	int got[SOCKET_MAX_FDS];
	size_t n_got;
	ssize_t n;
	int r;

	while ((r = poll(fds, 2, ms)) < 0 && errno == EINTR)
		continue;
	if (r == 0)
		return error_set(err, STATUS_DEVICE_LOST,
		                 "process %d, which was to open the engine, has not done so within %d ms",
		                 (int)child->pid, ms);
	if (fds[1].revents)
		return error_set(err, STATUS_CANCELED, "nobody waits for the engine any longer");
	n = socket_receive(child->control, ret, sizeof *ret, got, &n_got);
	if (n != (ssize_t)sizeof *ret)
		return error_set(err, STATUS_DEVICE_LOST,
		                 "the process that was to open the engine has ended");
	if (ret->err.status < 0) {
		*err = ret->err;
		return ret->err.status;
	}
	return open_socket(child, 0, err); /* The lock is not needed, because no thread makes calls yet. */
}

/* ---- Calls -------------------------------------------------------------------------------------------- */

static int is_gone(struct error *err)
{
	return error_set(err, STATUS_DEVICE_LOST, "the process of the engine has ended");
}

static int open_socket(struct child *child, uint32_t number, struct error *err)
{
	const struct wire_socket message = { .number = number };
	int ends[2];
	ssize_t n;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return error_set(err, STATUS_NO_MEMORY, "no descriptors for a call of the engine: %s",
		                 strerror(errno));
	n = socket_send(child->control, &message, sizeof message, &ends[1], 1);
	close(ends[1]);
	if (n < 0) {
		close(ends[0]);
		return is_gone(err);
	}
	child->socket[number] = ends[0];
	return 0;
}

/* Returns the index of a socket that no call uses, an open one if possible; SHARED_CALLS: all are in use.
 * Caller holds child->lock. */
static uint32_t find_free(const struct child *child)
{
	uint32_t found = SHARED_CALLS;

	for (uint32_t i = 0; i < SHARED_CALLS; i++) {
		if (child->is_used[i])
			continue;
		if (child->socket[i] >= 0)
			return i;
		found = found < i ? found : i;
	}
	return found;
}

static int take_socket(struct child *child, uint32_t *ret, struct error *err)
{
	int r = 0;

	pthread_mutex_lock(&child->lock);
	while ((*ret = find_free(child)) == SHARED_CALLS)
		pthread_cond_wait(&child->is_free, &child->lock);
	if (child->socket[*ret] < 0)
		r = open_socket(child, *ret, err);
	child->is_used[*ret] = r == 0;
	pthread_mutex_unlock(&child->lock);
	return r;
}

static void give_socket(struct child *child, uint32_t number)
{
	uint32_t other;

	pthread_mutex_lock(&child->lock);
	other = find_free(child);
	child->is_used[number] = false;
	if (other < SHARED_CALLS && child->socket[other] >= 0) {
		close(child->socket[number]);
		child->socket[number] = -1;
	}
	pthread_cond_signal(&child->is_free);
	pthread_mutex_unlock(&child->lock);
}

static bool send_parts(int sock, const struct child_call *call)
{
	const int *fds = call->fds;

	for (uint32_t i = 0, n; i < call->call.n_parts; i += n) {
		size_t n_fds = 0;

		n = call->call.n_parts - i < WIRE_PARTS ? call->call.n_parts - i : WIRE_PARTS;
		for (uint32_t j = i; j < i + n; j++)
			n_fds += call->parts[j].memory == WIRE_NONE;
		if (socket_send(sock, call->parts + i, n * sizeof *call->parts, fds, n_fds) < 0)
			return false;
		fds += n_fds;
	}
	return true;
}

/* Waits for the answer, and tells the child when the result is no longer wanted. Returns false if the call is
 * given up. */
static bool wait_for_answer(struct child *child, const struct child_call *call, uint32_t number)
{
	struct pollfd fd = { child->socket[number], POLLIN, 0 };
	bool is_told = !call->unwanted;

	while (!is_told || call->may_wait) {
		int n = poll(&fd, 1, UNWANTED_MS);

		if (n > 0 || (n < 0 && errno != EINTR))
			return true;
		if (call->may_wait && !call->may_wait(call->arg))
			return false;
		if (is_told || !atomic_load(call->unwanted))
			continue;
		atomic_store(&child->shared->unwanted[number], true);
		is_told = true;
	}
	return true;
}

static bool send_layout(int sock, const struct child_call *call)
{
	return !call->layout || socket_send(sock, call->layout, sizeof *call->layout, NULL, 0) >= 0;
}

static bool receive_explanation(int sock, const struct child_call *call)
{
	const size_t size = sizeof *call->explanation;
	int fds[SOCKET_MAX_FDS];
	size_t n_fds = 0;

	return !call->explanation ||
	       socket_receive(sock, call->explanation, size, fds, &n_fds) == (ssize_t)size;
}

static bool converse(struct child *child, struct child_call *call, uint32_t number, struct wire_answer *ret,
                     int *ret_fd)
{
	const int sock = child->socket[number];
	int fds[SOCKET_MAX_FDS];
	size_t n_fds = 0;
	ssize_t n;

	atomic_store(&child->shared->unwanted[number], call->unwanted && atomic_load(call->unwanted));
	if (socket_send(sock, &call->call, sizeof call->call, &call->fd, call->fd >= 0) < 0 ||
	    !send_parts(sock, call) || !send_layout(sock, call) || !wait_for_answer(child, call, number))
		return false;
	n = socket_receive(sock, ret, sizeof *ret, fds, &n_fds);
	if (n_fds > 0 && ret_fd)
		*ret_fd = fds[0];
	return n == (ssize_t)sizeof *ret && receive_explanation(sock, call);
}

int child_do(struct child *child, struct child_call *call, struct wire_answer *ret, int *ret_fd,
             struct error *err)
{
	uint32_t number = 0;
	int r = take_socket(child, &number, err);
	bool is_answered;

	if (ret_fd)
		*ret_fd = -1;
	if (r < 0)
		return r;
	call->call.has_fd = call->fd >= 0;
	call->call.may_be_unwanted = call->unwanted != NULL;
	is_answered = converse(child, call, number, ret, ret_fd);
	give_socket(child, number);
	if (!is_answered)
		return is_gone(err);
	if (ret->err.status < 0)
		*err = ret->err;
	return ret->err.status;
}

/* ---- The end ------------------------------------------------------------------------------------------ */

void child_close(struct child *child)
{
	shutdown(child->control, SHUT_WR);
}

bool child_wait(struct child *child, int ms, int *ret_status)
{
	struct pollfd fd = { child->pidfd, POLLIN, 0 };
	int status = 0;

	if (!child->is_running)
		return true;
	if (child->pidfd >= 0 && ms >= 0 && poll(&fd, 1, ms) <= 0)
		return false;
	while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
		continue;
	child->is_running = false;
	if (ret_status)
		*ret_status = status;
	return true;
}

void child_kill(struct child *child)
{
	if (child->pidfd >= 0)
		syscall(SYS_pidfd_send_signal, child->pidfd, SIGKILL, NULL, 0);
}

void child_cut(struct child *child)
{
	pthread_mutex_lock(&child->lock);
	for (uint32_t i = 0; i < SHARED_CALLS; i++)
		if (child->socket[i] >= 0)
			shutdown(child->socket[i], SHUT_RDWR);
	shutdown(child->control, SHUT_RDWR);
	pthread_mutex_unlock(&child->lock);
}

void child_unref(struct child *child)
{
	if (!child || atomic_fetch_sub(&child->refs, 1) > 1)
		return;
	for (uint32_t i = 0; i < SHARED_CALLS; i++)
		if (child->socket[i] >= 0)
			close(child->socket[i]);
	if (child->pidfd >= 0)
		close(child->pidfd);
	if (child->control >= 0)
		close(child->control);
	ring_unmap(&child->to_child);
	ring_unmap(&child->to_front);
	if (child->shared)
		munmap(child->shared, sizeof *child->shared);
	pthread_cond_destroy(&child->is_free);
	pthread_mutex_destroy(&child->lock);
	free(child);
}
