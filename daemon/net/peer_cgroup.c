/* SPDX-License-Identifier: Apache-2.0 */
#include "peer_cgroup.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

#define UNIFIED "0::" /* begins the line of version 2 */

static int refuse(int number, struct error *err)
{
	if (number == EMFILE || number == ENFILE || number == ENOMEM || number == ENOBUFS)
		return error_set(err, STATUS_NO_MEMORY,
		                 "the cgroup of the process that connected cannot be read: %s",
		                 strerror(number));
	return error_set(err, STATUS_PERMISSION, "the cgroup of the process that connected is not known: %s",
	                 strerror(number));
}

static int read_path(FILE *file, struct peer_cgroup *ret, struct error *err)
{
	char *line = NULL;
	size_t room = 0;
	int r = 0;

	ret->unknown = "there are no cgroups of version 2";
	while (ret->unknown && getline(&line, &room, file) > 0)
		if (!strncmp(line, UNIFIED, strlen(UNIFIED))) {
			line[strcspn(line, "\n")] = '\0';
			snprintf(ret->path, sizeof ret->path, "%s", line + strlen(UNIFIED));
			ret->unknown = NULL;
		}
	if (ret->unknown && !feof(file)) /* ENAMETOOLONG, for example */
		r = refuse(errno, err);
	free(line);
	return r;
}

static int find_path(pid_t pid, struct peer_cgroup *ret, struct error *err)
{
	char name[32];
	FILE *file;
	int r;

	snprintf(name, sizeof name, "/proc/%d/cgroup", (int)pid);
	file = fopen(name, "re");
	if (!file && (errno == ENOENT || errno == EACCES || errno == EPERM)) {
		ret->unknown = "/proc hides processes of other users (ProtectProc= of the unit)";
		return 0;
	}
	if (!file)
		return refuse(errno, err);
	r = read_path(file, ret, err);
	fclose(file);
	return r;
}

int peer_cgroup_find(int sock, pid_t pid, struct peer_cgroup *ret, struct error *err)
{
	struct pollfd process = { .events = POLLIN };
	socklen_t len = sizeof process.fd;
	int r;

	*ret = (struct peer_cgroup){ 0 };
	if (pid == 0) {
		ret->unknown = "the process is in another PID namespace";
	} else if (getsockopt(sock, SOL_SOCKET, SO_PEERPIDFD, &process.fd, &len) < 0) {
		if (errno != ENOPROTOOPT)
			return refuse(errno == EINVAL || errno == ENODATA ? ESRCH : errno, err);
		ret->unknown = "the kernel is older than 6.5 (SO_PEERPIDFD)";
	}
	if (ret->unknown)
		return 0;
	r = find_path(pid, ret, err);
	if (poll(&process, 1, 0) != 0) /* it has ended */
		r = refuse(ESRCH, err);
	close(process.fd);
	return r;
}
