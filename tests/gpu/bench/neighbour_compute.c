/* SPDX-License-Identifier: Apache-2.0 */
/* Controls the neighbour's process by a pipe to its standard input and by a page that both map. */
#include "neighbour_compute.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compute_page.h"
#include "figures.h"
#include "tests/gpu/rig.h"

#define START_S 60
#define TOLD_S  20
#define END_S   5

static void become(const char *program, int commands, int page, unsigned percentage, bool tiny)
{
	char number[16], part[16];

	snprintf(number, sizeof number, "%d", page);
	snprintf(part, sizeof part, "%u", percentage);
	if (percentage > 0)
		setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", part, 1);
	if (dup2(commands, 0) == 0)
		execl(program, program, number, tiny ? "tiny" : NULL, NULL);
	fprintf(stderr, "%s: %s\n", program, strerror(errno));
	_exit(1);
}

/* Waits until a count of the page exceeds a value. */
static void await(const struct neighbour *neighbour, const _Atomic uint64_t *count, uint64_t above, double s)
{
	const double end = now_us() + s * 1e6;
	int status;

	while (atomic_load(count) <= above) {
		if (waitpid(neighbour->pid, &status, WNOHANG) != 0)
			rig_die("the process that computes has ended");
		if (now_us() > end)
			rig_die("the process that computes does not answer");
		nap_us(100);
	}
}

void neighbour_start(struct neighbour *neighbour, const char *program, unsigned percentage, bool tiny)
{
	const int fd = memfd_create("compute", 0);
	int ends[2];

	if (fd < 0 || ftruncate(fd, sizeof *neighbour->page) < 0 || pipe(ends) < 0)
		rig_die("no page: %s", strerror(errno));
	neighbour->page = mmap(NULL, sizeof *neighbour->page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (neighbour->page == MAP_FAILED)
		rig_die("no page: %s", strerror(errno));
	signal(SIGPIPE, SIG_IGN);
	fflush(NULL);
	neighbour->pid = fork();
	if (neighbour->pid < 0)
		rig_die("no process: %s", strerror(errno));
	if (neighbour->pid == 0) {
		close(ends[1]);
		become(program, ends[0], fd, percentage, tiny);
	}
	close(ends[0]);
	close(fd);
	neighbour->commands = ends[1];
	await(neighbour, &neighbour->page->pauses, 0, START_S);
}

/* Closes the pipe, which ends the process; MPS handles that better than a kill. */
void neighbour_stop(struct neighbour *neighbour)
{
	const double end = now_us() + END_S * 1e6;
	pid_t ended;

	close(neighbour->commands);
	while ((ended = waitpid(neighbour->pid, NULL, WNOHANG)) == 0 && now_us() < end)
		nap_us(1000);
	if (ended == 0) {
		kill(neighbour->pid, SIGKILL);
		waitpid(neighbour->pid, NULL, 0);
	}
	munmap(neighbour->page, sizeof *neighbour->page);
}

static void tell(const struct neighbour *neighbour, enum compute_command command)
{
	const char byte = (char)command;

	if (write(neighbour->commands, &byte, 1) != 1)
		rig_die("the process that computes has ended");
}

void neighbour_go(struct neighbour *neighbour)
{
	const uint64_t before = atomic_load(&neighbour->page->launches);

	tell(neighbour, COMPUTE_GO);
	await(neighbour, &neighbour->page->launches, before, TOLD_S);
}

void neighbour_pause(struct neighbour *neighbour)
{
	const uint64_t before = atomic_load(&neighbour->page->pauses);

	tell(neighbour, COMPUTE_PAUSE);
	await(neighbour, &neighbour->page->pauses, before, TOLD_S);
}

struct progress neighbour_progress(const struct neighbour *neighbour)
{
	return (struct progress){ .us = now_us(), .launches = atomic_load(&neighbour->page->launches) };
}

struct progress neighbour_progress_since(const struct neighbour *neighbour, const struct progress *from,
                                         double seconds)
{
	nap_us(seconds * 1e6);
	await(neighbour, &neighbour->page->launches, from->launches, TOLD_S);
	return neighbour_progress(neighbour);
}

double progress_tflops(const struct neighbour *neighbour, const struct progress *from,
                       const struct progress *to)
{
	return (double)(to->launches - from->launches) * neighbour->page->launch_flop / (to->us - from->us) /
	       1e6;
}
