/* SPDX-License-Identifier: Apache-2.0 */
/* A request is a message with two descriptors: the file, and the writing end of a pipe. The scout forks for
 * each request; the child maps and unmaps the file, or seals it, and writes its answer into the pipe. */
#include "scout.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backing.h"
#include "kernels/thread.h"
#include "proto/clock.h"
#include "proto/wire/socket.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define FREE_NS   2000000 /* longest time that mapping and unmapping a free file takes */
#define TRIES     3       /* the first try may be slow, because code has to be loaded */
#define LIMIT_NS  UINT64_C(2000000000)
#define LOOK_MS   20 /* ms between checks whether a wait is still wanted */
#define MOST_LATE 4  /* maximum number of unfinished processes of a user that nobody waits for */

/* The struct has no padding, because it is sent as it is and padding would be uninitialized. */
struct request {
	uint64_t offset, size;
	uint64_t seals; /* 1: seal the file; 0: map it */
};

struct answer {
	uint64_t is_free; /* 1 if it was mapped and unmapped within FREE_NS */
	uint64_t seal;    /* an enum scout_seal */
};

enum { FILE_FD, PIPE_FD, N_FDS };

/* A process of the scout that nobody waits for any more. It lives for as long as the file keeps it
 * waiting. */
struct late {
	LIST_ENTRY(late) entry;
	uint64_t user;
	int from; /* reading end of the pipe: readable or hung up once the process has answered or ended */
};

static int scout = -1; /* socket to the scout; -1: there is none */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, late) lates = LIST_HEAD_INITIALIZER(lates); /* protected by lock */

/* ---- The scout's --------------------------------------------------------------------------------------- */

static uint64_t map_once(const struct request *request, int fd)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), start = request->offset & ~(page - 1);
	const size_t bytes = (size_t)(request->offset - start + request->size);
	const uint64_t since = clock_ns();
	void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, (off_t)start);

	if (map != MAP_FAILED)
		munmap(map, bytes);
	return clock_ns() - since;
}

static bool maps_at_once(const struct request *request, int fd)
{
	for (int i = 0; i < TRIES; i++)
		if (map_once(request, fd) <= FREE_NS)
			return true;
	return false;
}

static enum scout_seal seal(const struct request *request, int fd)
{
	const int wanted = F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE;
	const int seals = fcntl(fd, F_GET_SEALS);
	uint64_t ignored;

	/* A file to which no more seals can be added may have these already. */
	if (seals < 0 || ((seals & wanted) != wanted && fcntl(fd, F_ADD_SEALS, wanted) < 0))
		return SCOUT_REFUSED;
	return holes_find(fd, request->offset, request->offset + request->size, &ignored)
	           ? SCOUT_SEALED_WITH_HOLE
	           : SCOUT_SEALED;
}

static void answer(const struct request *request, const int fds[N_FDS])
{
	struct answer found = { 0 };

	if (request->seals)
		found.seal = seal(request, fds[FILE_FD]);
	else
		found.is_free = maps_at_once(request, fds[FILE_FD]);
	if (write(fds[PIPE_FD], &found, sizeof found) < 0)
		_exit(1);
}

/* Main function of the scout. It ends with the process that it works for, and ignores the signals that ask
 * that process to stop. */
static void run(int from, pid_t parent)
{
	const pid_t own = getpid();
	struct request request;
	int fds[SOCKET_MAX_FDS];
	size_t n_fds;

	process_end_with(parent);
	prctl(PR_SET_NAME, "tmad-scout");
	signal(SIGTERM, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGCHLD, SIG_IGN); /* the kernel reaps its children */
	dup2(from, STDIN_FILENO);
	syscall(SYS_close_range, STDIN_FILENO + 1, ~0U, 0);
	while (socket_receive(STDIN_FILENO, &request, sizeof request, fds, &n_fds) == sizeof request &&
	       n_fds == N_FDS) {
		if (fork() == 0) {
			process_end_with(own);
			answer(&request, fds);
			_exit(0);
		}
		close(fds[FILE_FD]);
		close(fds[PIPE_FD]);
	}
	_exit(0);
}

/* ---- This process's ------------------------------------------------------------------------------------ */

void scout_start(void)
{
	const pid_t own = getpid();
	int ends[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return;
	pid = fork();
	if (pid == 0)
		run(ends[1], own);
	close(ends[1]);
	if (pid < 0)
		close(ends[0]);
	else
		scout = ends[0];
}

static bool ask(const struct request *request, const int fds[N_FDS])
{
	return socket_send(scout, request, sizeof *request, fds, N_FDS) == sizeof *request;
}

static bool is_wanted(const atomic_bool *unwanted)
{
	return !unwanted || !atomic_load(unwanted);
}

/* ---- Those that are late ------------------------------------------------------------------------------- */

static void keep_late(uint64_t user, int from)
{
	struct late *late = malloc(sizeof *late);

	if (!late) {
		close(from);
		return;
	}
	*late = (struct late){ .user = user, .from = from };
	pthread_mutex_lock(&lock);
	LIST_INSERT_HEAD(&lates, late, entry);
	pthread_mutex_unlock(&lock);
}

static bool has_answered(const struct late *late)
{
	struct pollfd poll_fd = { .fd = late->from, .events = POLLIN };

	return poll(&poll_fd, 1, 0) > 0;
}

/* Returns the number of unfinished processes of the user that nobody waits for. Removes from the list all
 * processes, of any user, that have answered or ended. */
static uint32_t count_late(uint64_t user)
{
	struct late *late, *next;
	uint32_t n = 0;

	pthread_mutex_lock(&lock);
	for (late = LIST_FIRST(&lates); late; late = next) {
		next = LIST_NEXT(late, entry);
		if (has_answered(late)) {
			LIST_REMOVE(late, entry);
			close(late->from);
			free(late);
		} else {
			n += late->user == user;
		}
	}
	pthread_mutex_unlock(&lock);
	return n;
}

/* Waits until the user may have one more process. Returns false if that is not so by the time `until`, or
 * *unwanted is set. */
static bool may_ask(uint64_t user, uint64_t until, const atomic_bool *unwanted)
{
	while (count_late(user) >= MOST_LATE) {
		if (clock_ns() >= until || !is_wanted(unwanted))
			return false;
		poll(NULL, 0, LOOK_MS);
	}
	return true;
}

void scout_stop(void)
{
	struct late *late;

	pthread_mutex_lock(&lock);
	while ((late = LIST_FIRST(&lates))) {
		LIST_REMOVE(late, entry);
		close(late->from);
		free(late);
	}
	pthread_mutex_unlock(&lock);
	if (scout >= 0)
		close(scout);
	scout = -1;
}

/* ---- Asking -------------------------------------------------------------------------------------------- */

enum await { ANSWERED, LATE, GONE };

/* Waits for the answer. Returns LATE if there is none by the time `until` or it is not wanted any more, and
 * GONE if the scout, or its process for this request, has ended. */
static enum await await(int from, uint64_t until, const atomic_bool *unwanted, struct answer *ret)
{
	struct pollfd poll_fd = { .fd = from, .events = POLLIN };

	while (poll(&poll_fd, 1, LOOK_MS) <= 0)
		if (clock_ns() >= until || !is_wanted(unwanted))
			return LATE;
	return read(from, ret, sizeof *ret) == sizeof *ret ? ANSWERED : GONE;
}

static enum await look(const struct scout_part *part, bool seals, uint64_t until, const atomic_bool *unwanted,
                       struct answer *ret)
{
	const struct request request = { part->offset, part->size, seals };
	enum await r = GONE;
	int ends[2];

	if (!may_ask(part->user, until, unwanted))
		return LATE;
	if (pipe2(ends, O_CLOEXEC) < 0)
		return GONE;
	const int fds[N_FDS] = { part->fd, ends[1] };
	const bool asked = ask(&request, fds);
	close(ends[1]);
	if (asked)
		r = await(ends[0], until, unwanted, ret);
	if (r == LATE)
		keep_late(part->user, ends[0]);
	else
		close(ends[0]);
	return r;
}

/* If the scout is gone, every file counts as free. */
bool scout_finds_free(const struct scout_part *part, const atomic_bool *unwanted)
{
	const uint64_t until = clock_ns() + LIMIT_NS;
	struct answer found = { 0 };

	if (scout < 0)
		return true;
	for (;;) {
		const enum await r = look(part, false, until, unwanted, &found);

		if (r == GONE || (r == ANSWERED && found.is_free))
			return true;
		if (clock_ns() >= until || !is_wanted(unwanted))
			return false;
	}
}

enum scout_seal scout_seal(const struct scout_part *part, const atomic_bool *unwanted)
{
	struct answer found = { 0 };

	if (scout < 0)
		return seal(&(struct request){ part->offset, part->size, true }, part->fd);
	if (look(part, true, clock_ns() + LIMIT_NS, unwanted, &found) != ANSWERED)
		return SCOUT_LATE;
	return (enum scout_seal)found.seal;
}
