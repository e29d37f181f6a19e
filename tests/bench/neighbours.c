/* SPDX-License-Identifier: Apache-2.0 */
/* The neighbours are children of this process, which end with it and count their copies in shared memory. */
#include "neighbours.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS 1000000 /* ns between two checks whether they have begun */

/* A child's count, in shared memory on a cache line of its own. */
struct counter {
	_Alignas(64) atomic_ullong copies;
};

struct neighbours {
	struct counter *counter;
	size_t size; /* bytes of all counters */
	unsigned n;  /* children started */
	pid_t pid[];
};

/* Copies until it is killed. It first writes both stretches, because pages that were never written would not
 * be real memory. */
static _Noreturn void copy_memory(struct counter *counter, size_t bytes, pid_t parent)
{
	char *memory = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setsid();
	if (memory == MAP_FAILED || getppid() != parent)
		_exit(1);
	memset(memory, 1, 2 * bytes);
	for (unsigned turn = 0;; turn ^= 1) {
		memcpy(memory + turn * bytes, memory + (turn ^ 1) * bytes, bytes);
		atomic_fetch_add_explicit(&counter->copies, 1, memory_order_relaxed);
	}
}

static int start(struct neighbours *neighbours, size_t bytes, struct error *err)
{
	pid_t parent = getpid(), pid = fork();

	if (pid == 0)
		copy_memory(&neighbours->counter[neighbours->n], bytes, parent);
	if (pid < 0)
		return error_set(err, STATUS_NO_MEMORY, "no process beside this one: %s", strerror(errno));
	neighbours->pid[neighbours->n++] = pid;
	return 0;
}

/* Waits until each child has copied once. Fails if one has ended, since it never will. */
static int wait_for_all(const struct neighbours *neighbours, struct error *err)
{
	for (unsigned i = 0; i < neighbours->n;) {
		siginfo_t info = { 0 };

		if (neighbours_copies(neighbours, i) > 0) {
			i++;
			continue;
		}
		waitid(P_PID, (id_t)neighbours->pid[i], &info, WEXITED | WNOHANG | WNOWAIT);
		if (info.si_pid)
			return error_set(err, STATUS_NO_MEMORY, "a process beside this one has ended");
		nanosleep(&(struct timespec){ .tv_nsec = LOOK_NS }, NULL);
	}
	return 0;
}

int neighbours_new(struct neighbours **ret, unsigned n, size_t bytes, struct error *err)
{
	struct neighbours *neighbours = calloc(1, sizeof(*neighbours) + n * sizeof(pid_t));
	int r = 0;

	if (!neighbours)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	neighbours->size = n * sizeof(struct counter);
	neighbours->counter =
	    mmap(NULL, neighbours->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (neighbours->counter == MAP_FAILED)
		r = error_set(err, STATUS_NO_MEMORY, "out of memory");
	while (r == 0 && neighbours->n < n)
		r = start(neighbours, bytes, err);
	if (r == 0)
		r = wait_for_all(neighbours, err);
	if (r < 0) {
		neighbours_free(neighbours);
		return r;
	}
	*ret = neighbours;
	return 0;
}

void neighbours_free(struct neighbours *neighbours)
{
	if (!neighbours)
		return;
	for (unsigned i = 0; i < neighbours->n; i++) {
		kill(neighbours->pid[i], SIGKILL);
		while (waitpid(neighbours->pid[i], NULL, 0) < 0 && errno == EINTR)
			;
	}
	if (neighbours->counter != MAP_FAILED)
		munmap(neighbours->counter, neighbours->size);
	free(neighbours);
}

uint64_t neighbours_copies(const struct neighbours *neighbours, unsigned i)
{
	return atomic_load_explicit(&neighbours->counter[i].copies, memory_order_relaxed);
}
