/* SPDX-License-Identifier: Apache-2.0 */
/* Unix stream sockets: addresses, peers, and bytes with file descriptors (SCM_RIGHTS). All sockets made here
 * are close-on-exec, and sending never raises SIGPIPE. Errors are negative errno values, because callers
 * distinguish EAGAIN from ECONNRESET. */
#ifndef PROTO_WIRE_SOCKET_H
#define PROTO_WIRE_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

/* maximum number of descriptors that the kernel passes in one message (SCM_MAX_FD) */
#define SOCKET_MAX_FDS 253

struct socket_peer {
	pid_t pid;
	uid_t uid;
	gid_t gid;
};

/* Receives at most len bytes, and the descriptors that come with them. Returns the number of bytes (0: the
 * peer has closed), or a negative errno. Sets *ret_n_fds to the number of descriptors in fds[SOCKET_MAX_FDS],
 * which are close-on-exec and which the caller closes. -EMSGSIZE: the control data was truncated
 * (MSG_CTRUNC). In that case, too, the caller must close the descriptors that arrived, at a place where
 * closing may block. */
ssize_t socket_receive(int sock, void *data, size_t len, int *fds, size_t *ret_n_fds);

/* Sends data[len] and n_fds descriptors, which go with the first byte; the caller keeps its own. Returns the
 * number of bytes sent, or a negative errno. */
ssize_t socket_send(int sock, const void *data, size_t len, const int *fds, size_t n_fds);

/* Size of a path with its terminator. A path is the name of a socket's file, or "@NAME" for the abstract
 * socket NAME, which has no file and belongs to the network namespace (unix(7)). A file whose name begins
 * with @ is written with its directory. */
#define SOCKET_PATH_BYTES sizeof((struct sockaddr_un *)0)->sun_path

bool socket_is_abstract(const char *path);

/* Sets the address of a path, for bind and connect. Returns 0, -ENOENT if the name is empty, or
 * -ENAMETOOLONG. */
int socket_address(const char *path, struct sockaddr_un *ret, socklen_t *ret_len);

/* Writes the path that a socket is bound to, and returns path; "" if it is not bound, or not a Unix
 * socket. */
char *socket_path(int sock, char path[SOCKET_PATH_BYTES]);

/* Removes the socket's file. Does nothing for an abstract socket and for "". */
void socket_unlink(const char *path);

/* Return a non-blocking socket that listens at path, or a negative errno. The mode and group of its file are
 * set before anybody can connect; SOCKET_ANY_GROUP leaves the process's own group. An abstract socket has
 * neither, and everybody may connect to it. A socket file on which nobody listens is replaced. -EADDRINUSE:
 * the socket is in use. -EEXIST: there is a file of another type. -EPERM: the process may not give the file
 * to the group. */
int socket_listen(const char *path, int backlog, mode_t mode);
int socket_listen_group(const char *path, int backlog, mode_t mode, gid_t group);

#define SOCKET_ANY_GROUP ((gid_t)-1)

/* Returns a connected blocking socket, or a negative errno. -EAGAIN: the listener's queue was full for
 * timeout_ms milliseconds (0: does not block; -1: no limit). */
int socket_connect(const char *path, int timeout_ms);

int socket_peer(int sock, struct socket_peer *ret);

/* Writes the supplementary groups that the peer's process had when it connected, at most `room` of them.
 * Returns their number, which may be larger, or a negative errno. */
int socket_peer_groups(int sock, gid_t *groups, size_t room);

/* Writes the path of the service's socket to path and returns path, or NULL if it is too long: explicit_path
 * unless it is NULL, otherwise $TMAD_SOCKET, otherwise /run/tmad/tmad.sock if it can be reached, otherwise
 * $XDG_RUNTIME_DIR/tmad/tmad.sock. */
char *socket_default_path(const char *explicit_path, char *path, size_t path_size);

#endif
