/* SPDX-License-Identifier: Apache-2.0 */
/* Starts and stops a tmad for a test. */
#include "process.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Checks the pid of who accepts: the listener of a killed process may live for a moment in a thread that is
 * still exiting, and accept. */
static bool accepts(const char *path, pid_t pid)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct ucred peer = { 0 };
	socklen_t len = sizeof peer;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), r;

	snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	r = connect(fd, (struct sockaddr *)&address, sizeof address);
	if (r == 0)
		r = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len);
	close(fd);
	return r == 0 && peer.pid == pid;
}

const char *process_engine(void)
{
	const char *engine = getenv("TEST_ENGINE");

	return engine && *engine ? engine : "cpu";
}

static void run(const struct process *process, const char *program, const char *argument)
{
	const char *engine = process->engine ? process->engine : process_engine();
	const char *build = getenv("TEST_BUILDDIR");
	char softgpu[4096];

	snprintf(softgpu, sizeof softgpu, "%s/tests/softgpu/lib", build ? build : ".");
	if (strcmp(engine, "cuda") == 0)
		setenv("LD_LIBRARY_PATH", softgpu, 1);
	execl(program, "tmad", "--engine", engine, "--log-level=warning", "--socket", process->socket,
	      argument, NULL);
	_exit(127);
}

void process_start(struct process *process, const char *argument)
{
	snprintf(process->directory, sizeof process->directory, "/tmp/tmad-test-XXXXXX");
	cr_assert(mkdtemp(process->directory));
	snprintf(process->socket, sizeof process->socket, "%s/s", process->directory);
	process_start_again(process, argument);
}

void process_start_again(struct process *process, const char *argument)
{
	const char *program = process->program ? process->program : getenv("TEST_TMAD");

	cr_assert(program, "TEST_TMAD does not name the tmad to test");
	process->pid = fork();
	cr_assert_geq(process->pid, 0);
	if (process->pid == 0)
		run(process, program, argument);
	for (int i = 0; !accepts(process->socket, process->pid); i++) {
		cr_assert_lt(i, 1000, "tmad does not accept on %s", process->socket);
		cr_assert_eq(waitpid(process->pid, NULL, WNOHANG), 0, "tmad ended at its start");
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	}
}

void process_kill(struct process *process)
{
	kill(process->pid, SIGKILL);
	cr_assert_eq(waitpid(process->pid, NULL, 0), process->pid);
}

void process_stop(struct process *process, int signal)
{
	int status;

	kill(process->pid, signal);
	cr_assert_eq(waitpid(process->pid, &status, 0), process->pid);
	if (signal == SIGTERM)
		cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "tmad ended with %x", status);
	unlink(process->socket);
	rmdir(process->directory);
}
