/* SPDX-License-Identifier: Apache-2.0 */
/* LISTEN_PID is the process that the sockets are for, LISTEN_FDS their number, counted from descriptor 3 on,
 * and LISTEN_FDNAMES their names. */
#include "passed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <systemd/sd-daemon.h>

enum kind { CLIENTS, METRICS, KINDS };

static struct {
	int n;         /* number of sockets passed */
	int fd[KINDS]; /* socket of each kind; -1: none */
	char *names;   /* value of LISTEN_FDNAMES, for passed_pass_on */
} passed = { .fd = { -1, -1 } };

static enum kind kind_of(const char *name)
{
	return name && !strcmp(name, PASSED_METRICS) ? METRICS : CLIENTS;
}

static int take_socket(int fd, const char *name, struct error *err)
{
	enum kind kind = kind_of(name);

	if (sd_is_socket(fd, AF_UNSPEC, SOCK_STREAM, 1) <= 0)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "LISTEN_FDS: descriptor %d (%s) is not a listening stream socket", fd, name);
	if (passed.fd[kind] >= 0)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "LISTEN_FDS: descriptor %d (%s): tmad takes one socket for clients, and one "
		                 "named " PASSED_METRICS,
		                 fd, name);
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	passed.fd[kind] = fd;
	return 0;
}

static int take_sockets(char **names, struct error *err)
{
	FILE *joined;
	size_t size;
	int r = 0;

	for (int i = 0; i < passed.n && r == 0; i++)
		r = take_socket(SD_LISTEN_FDS_START + i, names[i], err);
	if (r < 0)
		return r;
	free(passed.names);
	passed.names = NULL;
	joined = open_memstream(&passed.names, &size);
	for (int i = 0; joined && i < passed.n; i++)
		fprintf(joined, "%s%s", i ? ":" : "", names[i]);
	if (!joined || fclose(joined) < 0)
		return error_set(err, STATUS_NO_MEMORY, "no memory to start");
	return 0;
}

int passed_init(struct error *err)
{
	char **names = NULL;
	int n = sd_listen_fds_with_names(1, &names), r = 0;

	passed.n = n < 0 ? 0 : n;
	passed.fd[CLIENTS] = passed.fd[METRICS] = -1;
	if (n < 0)
		return error_set(err, STATUS_INVALID_ARGUMENT, "LISTEN_FDS: %s", strerror(-n));
	if (n > 0)
		r = take_sockets(names, err);
	for (int i = 0; i < n; i++)
		free(names[i]);
	free(names);
	return r;
}

int passed_socket(const char *name)
{
	return passed.fd[kind_of(name)];
}

int passed_pass_on(void)
{
	char number[16], pid[16];

	if (passed.n == 0)
		return 0;
	for (int i = 0; i < passed.n; i++)
		if (fcntl(SD_LISTEN_FDS_START + i, F_SETFD, 0) < 0)
			return -errno;
	snprintf(number, sizeof number, "%d", passed.n);
	snprintf(pid, sizeof pid, "%d", (int)getpid());
	if (setenv("LISTEN_FDS", number, 1) < 0 || setenv("LISTEN_PID", pid, 1) < 0 ||
	    setenv("LISTEN_FDNAMES", passed.names, 1) < 0)
		return -errno;
	return 0;
}
