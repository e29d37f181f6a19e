/* SPDX-License-Identifier: Apache-2.0 */
/* Starts, queries and stops the service and the client processes. */
#include "clients.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define START_SECONDS  60
#define CLIENT_SECONDS 150

uint64_t client_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void client_sleep_ms(unsigned ms)
{
	nanosleep(&(struct timespec){ ms / 1000, (long)(ms % 1000) * 1000000 }, NULL);
}

/* Forks a child that is killed when its parent ends. */
static pid_t begin(void)
{
	pid_t parent = getpid(), pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0) {
		perror("fork");
		exit(1);
	}
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
	}
	return pid;
}

/* ---- The service
 * ---------------------------------------------------------------------------------------- */

static void last_line(const struct service *service, char *ret, size_t size)
{
	FILE *log = fopen(service->log, "r");
	char line[512];

	snprintf(ret, size, "it says nothing");
	while (log && fgets(line, sizeof line, log)) {
		line[strcspn(line, "\n")] = '\0';
		snprintf(ret, size, "%s", line);
	}
	if (log)
		fclose(log);
}

static void serve(const struct service *service, const char *program)
{
	int log = open(service->log, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	if (log < 0 || dup2(log, STDERR_FILENO) < 0)
		_exit(127);
	close(log);
	execl(program, program, "--engine=cuda", "--device=0", "--log-level=warning", "--socket",
	      service->socket, (char *)NULL);
	fprintf(stderr, "%s cannot be run\n", program);
	_exit(127);
}

static bool ask_device(struct service *service)
{
	tma_client *client = tma_new();
	tma_document *info = NULL;
	bool answers = client && tma_connect(client, service->socket) == 0 && tma_info(client, &info) == 0;

	if (answers) {
		const char *device = tma_document_text(tma_document_find(info, "device"));

		service->is_stand_in = device && strncmp(device, "softgpu", 7) == 0;
	}
	tma_document_free(info);
	tma_free(client);
	return answers;
}

static void remove_files(const struct service *service)
{
	unlink(service->socket);
	unlink(service->log);
	rmdir(service->directory);
}

bool service_start(struct service *service, const char *program, char *why, size_t why_size)
{
	*service = (struct service){ 0 };
	snprintf(service->directory, sizeof service->directory, "/tmp/tmad-clients-XXXXXX");
	if (!mkdtemp(service->directory)) {
		snprintf(why, why_size, "no directory in /tmp");
		return false;
	}
	snprintf(service->socket, sizeof service->socket, "%s/s", service->directory);
	snprintf(service->log, sizeof service->log, "%s/log", service->directory);
	service->pid = begin();
	if (service->pid == 0)
		serve(service, program);
	for (int i = 0; i < START_SECONDS * 20 && service_lives(service); i++) {
		if (access(service->socket, F_OK) == 0 && ask_device(service))
			return true;
		client_sleep_ms(50);
	}
	last_line(service, why, why_size);
	if (service_lives(service)) {
		kill(service->pid, SIGKILL);
		waitpid(service->pid, NULL, 0);
	}
	remove_files(service);
	return false;
}

bool service_lives(const struct service *service)
{
	return client_lives(service->pid);
}

static void show_log(const struct service *service)
{
	FILE *log = fopen(service->log, "r");
	char line[512];

	while (log && fgets(line, sizeof line, log))
		printf("# %.*s\n", (int)strcspn(line, "\n"), line);
	if (log)
		fclose(log);
}

bool service_stop(struct service *service)
{
	int status = -1;

	kill(service->pid, SIGTERM);
	waitpid(service->pid, &status, 0);
	show_log(service);
	remove_files(service);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* ---- Client processes --------------------------------------------------------------------------------- */

pid_t client_start(client_run *run, const struct service *service, uint64_t seed)
{
	pid_t pid = begin();

	if (pid > 0)
		return pid;
	alarm(CLIENT_SECONDS);
	run(service, seed);
	fflush(stdout);
	_exit(0);
}

bool client_lives(pid_t pid)
{
	siginfo_t how = { 0 };

	return waitid(P_PID, (id_t)pid, &how, WEXITED | WNOHANG | WNOWAIT) == 0 && how.si_pid == 0;
}

bool client_wait(pid_t pid)
{
	int status;

	if (waitpid(pid, &status, 0) != pid)
		return false;
	if (WIFSIGNALED(status))
		printf("# a client ended by signal %d\n", WTERMSIG(status));
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void client_fail(const char *format, ...)
{
	char line[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof line, format, args);
	va_end(args);
	printf("# %s\n", line);
	fflush(stdout);
	_exit(1);
}

tma_client *client_connect(const struct service *service)
{
	tma_client *client = tma_new();

	require(client, "out of memory");
	must(client, tma_connect(client, service->socket));
	return client;
}

int64_t client_stat(tma_client *client, const char *name)
{
	size_t prefix = strcspn(name, ".");
	const tma_document *node;
	tma_document *stats;
	char first[32];
	int64_t value;

	must(client, tma_stats(client, &stats));
	snprintf(first, sizeof first, "%.*s", (int)prefix, name);
	node = tma_document_find(stats, first);
	if (node && name[prefix])
		node = tma_document_find(node, name + prefix + 1);
	require(node, "stats has no %s", name);
	value = tma_document_int(node);
	tma_document_free(stats);
	return value;
}
