/* SPDX-License-Identifier: Apache-2.0 */
/* Unix stream sockets: addresses, peers, and bytes with file descriptors (SCM_RIGHTS).
 * All sockets made here are close-on-exec; send never raises SIGPIPE. Errors are negative errno, because
 * callers tell EAGAIN from ECONNRESET. */
#ifndef PROTO_WIRE_SOCKET_H
#define PROTO_WIRE_SOCKET_H

#include <stddef.h>
#include <sys/types.h>

/* The kernel's most in one message (SCM_MAX_FD). */
#define SOCKET_MAX_FDS 253

struct socket_peer {
	pid_t pid;
	uid_t uid;
	gid_t gid;
};

/* Bytes read (0: the peer is done), or negative errno; *ret_n_fds fds in fds[SOCKET_MAX_FDS], the
 * caller's to close, close-on-exec. -EMSGSIZE: the control data was cut (MSG_CTRUNC); the fds that
 * came are the caller's to close here too, at a place where that may block. */
ssize_t socket_receive(int sock, void *data, size_t len, int *fds, size_t *ret_n_fds);

/* Bytes sent, or negative errno. The fds go with the first byte and stay the caller's. */
ssize_t socket_send(int sock, const void *data, size_t len, const int *fds, size_t n_fds);

/* A non-blocking listening socket at path, its file's mode and group set (SOCKET_ANY_GROUP: the process's
 * own) before anybody can connect; -EPERM: the process may not give it to the group. A socket file that
 * nobody listens on is replaced; one in use is -EADDRINUSE; a file of another type is -EEXIST. */
int socket_listen(const char *path, int backlog, mode_t mode);
int socket_listen_group(const char *path, int backlog, mode_t mode, gid_t group);

#define SOCKET_ANY_GROUP ((gid_t)-1)

/* A connected blocking socket. -EAGAIN: the listener's queue stayed full for timeout_ms (0: never blocks; -1:
 * no limit). */
int socket_connect(const char *path, int timeout_ms);

int socket_peer(int sock, struct socket_peer *ret);

/* The supplementary groups that the peer's process had when it connected: at most room of them are written;
 * returns how many there are, which may be more. */
int socket_peer_groups(int sock, gid_t *groups, size_t room);

/* The contract's search: explicit (may be NULL), else $TMAD_SOCKET, else /run/tmad/tmad.sock if it can be
 * reached, else $XDG_RUNTIME_DIR/tmad/tmad.sock. Writes to path and returns it; NULL when it is too long. */
char *socket_default_path(const char *explicit_path, char *path, size_t path_size);

#endif
