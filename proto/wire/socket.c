/* SPDX-License-Identifier: Apache-2.0 */
/* Unix stream sockets. Every descriptor that a message brings is handed to the caller, even if others were
 * cut off. */
#include "socket.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "proto/clock.h"

#define SYSTEM_SOCKET "/run/tmad/tmad.sock"
#define USER_SOCKET   "tmad/tmad.sock" /* within $XDG_RUNTIME_DIR */

/* Room for the control data of SOCKET_MAX_FDS descriptors, aligned as the CMSG macros require. */
union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(SOCKET_MAX_FDS * sizeof(int))];
};

static size_t take_fds(struct msghdr *message, int *fds);
static int clear_stale(const char *path);
static int probe(const char *path);

/* ---- Bytes and fds ---- */

ssize_t socket_receive(int sock, void *data, size_t len, int *fds, size_t *ret_n_fds)
{
	union control control;
	struct iovec iov = { .iov_base = data, .iov_len = len };
	struct msghdr message = { .msg_iov = &iov,
		                  .msg_iovlen = 1,
		                  .msg_control = control.bytes,
		                  .msg_controllen = sizeof control.bytes };
	ssize_t n;

	do
		n = recvmsg(sock, &message, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	*ret_n_fds = message.msg_controllen ? take_fds(&message, fds) : 0;
	return message.msg_flags & MSG_CTRUNC ? -EMSGSIZE : n;
}

/* The control data contains at most SOCKET_MAX_FDS descriptors, and fds must have room for as many. */
static size_t take_fds(struct msghdr *message, int *fds)
{
	size_t n_fds = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
			size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

			memcpy(fds + n_fds, CMSG_DATA(c), n * sizeof(int));
			n_fds += n;
		}
	}
	return n_fds;
}

ssize_t socket_send(int sock, const void *data, size_t len, const int *fds, size_t n_fds)
{
	union control control;
	struct iovec iov = { .iov_base = (void *)data, .iov_len = len };
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	if (n_fds > SOCKET_MAX_FDS)
		return -EINVAL;
	if (n_fds) {
		memset(&control, 0, sizeof control);
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&message);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
	}
	do
		n = n_fds ? sendmsg(sock, &message, MSG_NOSIGNAL) : send(sock, data, len, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

/* ---- Addresses ---- */

bool socket_is_abstract(const char *path)
{
	return *path == '@';
}

/* The name of an abstract socket consists of all bytes after the first, which is 0. It has no terminator. */
int socket_address(const char *path, struct sockaddr_un *ret, socklen_t *ret_len)
{
	size_t len = strlen(path);

	if (len <= socket_is_abstract(path))
		return -ENOENT;
	if (len >= sizeof ret->sun_path)
		return -ENAMETOOLONG;
	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	memcpy(ret->sun_path, path, len);
	*ret_len = sizeof *ret;
	if (socket_is_abstract(path)) {
		ret->sun_path[0] = '\0';
		*ret_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
	}
	return 0;
}

char *socket_path(int sock, char path[SOCKET_PATH_BYTES])
{
	struct sockaddr_un address = { 0 };
	socklen_t len = sizeof address;
	int n;

	*path = '\0';
	if (getsockname(sock, (struct sockaddr *)&address, &len) < 0 || address.sun_family != AF_UNIX ||
	    len <= offsetof(struct sockaddr_un, sun_path))
		return path;
	if (!address.sun_path[0])
		address.sun_path[0] = '@';
	if (len > sizeof address)
		len = sizeof address;
	n = (int)(len - offsetof(struct sockaddr_un, sun_path));
	snprintf(path, SOCKET_PATH_BYTES, "%.*s", n, address.sun_path);
	return path;
}

void socket_unlink(const char *path)
{
	if (*path && !socket_is_abstract(path))
		unlink(path);
}

/* Sets group and mode between bind and listen. Nobody can connect before listen, whatever mode the umask has
 * left on the file, so at no time can the wrong user connect. */
int socket_listen_group(const char *path, int backlog, mode_t mode, gid_t group)
{
	bool has_file = !socket_is_abstract(path);
	struct sockaddr_un address;
	socklen_t len;
	int sock, r;

	r = socket_address(path, &address, &len);
	if (r < 0)
		return r;
	r = has_file ? clear_stale(path) : 0;
	if (r < 0)
		return r;
	sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (sock < 0)
		return -errno;
	if (bind(sock, (struct sockaddr *)&address, len) < 0) {
		r = -errno;
		goto err_socket;
	}
	if ((has_file && group != SOCKET_ANY_GROUP && chown(path, (uid_t)-1, group) < 0) ||
	    (has_file && chmod(path, mode) < 0) || listen(sock, backlog) < 0) {
		r = -errno;
		goto err_bind;
	}
	return sock;

err_bind:
	socket_unlink(path);
err_socket:
	close(sock);
	return r;
}

int socket_listen(const char *path, int backlog, mode_t mode)
{
	return socket_listen_group(path, backlog, mode, SOCKET_ANY_GROUP);
}

/* Makes way for a bind: removes a socket file on which nobody listens. Two services that start at the same
 * path at the same time may take each other's file for a stale one; whoever starts services must prevent
 * that. */
static int clear_stale(const char *path)
{
	struct stat st;
	int r;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return -EEXIST;
	r = probe(path);
	if (r == 0)
		return -EADDRINUSE;
	if (r != -ECONNREFUSED)
		return r;
	return unlink(path) < 0 && errno != ENOENT ? -errno : 0;
}

/* Returns whether the process that listens has exited although its socket still exists. Threads outside its
 * thread group (thread_start_apart) may keep the socket open for a while. Returns false if the process cannot
 * be seen, as in another PID namespace. */
static bool listener_has_ended(int sock)
{
	struct socket_peer peer;

	return socket_peer(sock, &peer) == 0 && peer.pid > 0 && kill(peer.pid, 0) < 0 && errno == ESRCH;
}

/* Returns 0 if somebody listens at path, otherwise a negative errno. Never blocks. A full backlog and a
 * socket of another type count as somebody. */
static int probe(const char *path)
{
	struct sockaddr_un address;
	socklen_t len;
	int r = socket_address(path, &address, &len);
	int sock;

	if (r < 0)
		return r;
	sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (sock < 0)
		return -errno;
	r = connect(sock, (struct sockaddr *)&address, len) < 0 ? -errno : 0;
	if (r == 0 && listener_has_ended(sock))
		r = -ECONNREFUSED;
	close(sock);
	return r == -EAGAIN || r == -EPROTOTYPE ? 0 : r;
}

static void limit_connect(int sock, int64_t left_ms)
{
	struct timeval limit = { .tv_sec = left_ms / 1000, .tv_usec = left_ms % 1000 * 1000 };

	if (left_ms <= 0)
		limit = (struct timeval){ .tv_usec = 1 }; /* 0 would mean no limit. */
	setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

/* Continues after signals, without exceeding the timeout. */
int socket_connect(const char *path, int timeout_ms)
{
	int64_t end = timeout_ms < 0 ? -1 : clock_ms() + timeout_ms;
	struct sockaddr_un address;
	socklen_t len;
	int r = socket_address(path, &address, &len);
	int sock;

	if (r < 0)
		return r;
	sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | (timeout_ms == 0 ? SOCK_NONBLOCK : 0), 0);
	if (sock < 0)
		return -errno;
	do {
		if (end >= 0)
			limit_connect(sock, end - clock_ms());
		r = connect(sock, (struct sockaddr *)&address, len) < 0 ? -errno : 0;
	} while (r == -EINTR && (end < 0 || clock_ms() < end));
	if (r == -EINTR)
		r = -EAGAIN;
	if (r == 0 && timeout_ms == 0 && fcntl(sock, F_SETFL, 0) < 0)
		r = -errno;
	if (r < 0) {
		close(sock);
		return r;
	}
	return sock;
}

int socket_peer(int sock, struct socket_peer *ret)
{
	struct ucred credentials;
	socklen_t len = sizeof credentials;

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &credentials, &len) < 0)
		return -errno;
	*ret = (struct socket_peer){ credentials.pid, credentials.uid, credentials.gid };
	return 0;
}

int socket_peer_groups(int sock, gid_t *groups, size_t room)
{
	socklen_t len = (socklen_t)(room * sizeof *groups);

	if (getsockopt(sock, SOL_SOCKET, SO_PEERGROUPS, groups, &len) < 0 && errno != ERANGE)
		return -errno;
	return (int)(len / sizeof *groups);
}

/* The system's path is also the default if there is neither a service nor a runtime directory. */
char *socket_default_path(const char *explicit_path, char *path, size_t path_size)
{
	const char *environment = getenv("TMAD_SOCKET");
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	int len;

	if (explicit_path)
		len = snprintf(path, path_size, "%s", explicit_path);
	else if (environment && *environment)
		len = snprintf(path, path_size, "%s", environment);
	else if (!runtime || !*runtime || probe(SYSTEM_SOCKET) == 0)
		len = snprintf(path, path_size, "%s", SYSTEM_SOCKET);
	else
		len = snprintf(path, path_size, "%s/%s", runtime, USER_SOCKET);
	return len < 0 || (size_t)len >= path_size ? NULL : path;
}
