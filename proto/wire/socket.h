/* SPDX-License-Identifier: Apache-2.0 */
/* Unix stream sockets: addresses, peers, and bytes with file descriptors (SCM_RIGHTS).
 * All sockets made here are close-on-exec; send never raises SIGPIPE. Errors are negative errno, because
 * callers tell EAGAIN from ECONNRESET. */
#ifndef PROTO_WIRE_SOCKET_H
#define PROTO_WIRE_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

/* The kernel takes no more in one message (SCM_MAX_FD). */
#define SOCKET_MAX_FDS 253

struct socket_peer {
	pid_t pid;
	uid_t uid;
	gid_t gid;
};

/* Returns the bytes read (0: the peer is done), or a negative errno, and sets *ret_n_fds fds in
 * fds[SOCKET_MAX_FDS], the caller's to close, close-on-exec. -EMSGSIZE says that the control data was cut
 * (MSG_CTRUNC); the fds that came are the caller's to close here too, at a place where that may block. */
ssize_t socket_receive(int sock, void *data, size_t len, int *fds, size_t *ret_n_fds);

/* Returns the bytes sent, or a negative errno. The fds go with the first byte and stay the caller's. */
ssize_t socket_send(int sock, const void *data, size_t len, const int *fds, size_t n_fds);

/* A path is that of a socket's file, or "@NAME" for the abstract socket NAME, which has no file and belongs
 * to the network namespace (unix(7)). A file whose name begins with @ is written with its directory. */
#define SOCKET_PATH_BYTES sizeof((struct sockaddr_un *)0)->sun_path

bool socket_is_abstract(const char *path);

/* Sets the address of a path, for bind and connect. Returns 0, -ENOENT for an empty name, or -ENAMETOOLONG.
 */
int socket_address(const char *path, struct sockaddr_un *ret, socklen_t *ret_len);

/* Returns the path that a socket is bound to; "" if there is none, or it is not a Unix socket. */
char *socket_path(int sock, char path[SOCKET_PATH_BYTES]);

/* Removes the socket's file. An abstract socket and "" have none. */
void socket_unlink(const char *path);

/* Returns a non-blocking socket that listens at path. The mode and the group of its file (SOCKET_ANY_GROUP:
 * the process's own) are set before anybody can connect; an abstract socket has neither, and everybody may
 * connect to it. -EPERM: the process may not give the file to the group. A socket file that nobody listens on
 * is replaced; a socket in use is -EADDRINUSE; a file of another type is -EEXIST. */
int socket_listen(const char *path, int backlog, mode_t mode);
int socket_listen_group(const char *path, int backlog, mode_t mode, gid_t group);

#define SOCKET_ANY_GROUP ((gid_t)-1)

/* Returns a connected blocking socket. -EAGAIN says that the listener's queue stayed full for timeout_ms (0:
 * never blocks; -1: no limit). */
int socket_connect(const char *path, int timeout_ms);

int socket_peer(int sock, struct socket_peer *ret);

/* Sets the supplementary groups that the peer's process had when it connected, at most room of them. Returns
 * how many there are, which may be more. */
int socket_peer_groups(int sock, gid_t *groups, size_t room);

/* Searches as the contract says: explicit (may be NULL), else $TMAD_SOCKET, else /run/tmad/tmad.sock if it
 * can be reached, else $XDG_RUNTIME_DIR/tmad/tmad.sock. Writes to path and returns it; NULL when it is too
 * long. */
char *socket_default_path(const char *explicit_path, char *path, size_t path_size);

#endif
