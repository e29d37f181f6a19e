/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out where a user may make a socket, for messages that suggest a path. */
#ifndef PROTO_OWN_SOCKET_H
#define PROTO_OWN_SOCKET_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OWN_SOCKET_BYTES 108 /* of a socket's path, with its terminator */

/* Returns whether this process may create a file of that path, which is shorter than OWN_SOCKET_BYTES. An
 * abstract socket needs no directory. */
static inline bool own_socket_is_possible(const char *path)
{
	const char *slash = strrchr(path, '/');
	char directory[OWN_SOCKET_BYTES];

	if (*path == '@')
		return true;
	snprintf(directory, sizeof directory, "%.*s", slash ? (int)(slash - path) : 0, path);
	return access(*directory ? directory : slash ? "/" : ".", W_OK | X_OK) == 0;
}

/* A path at which this user may make a socket. */
static inline const char *own_socket_path(char path[OWN_SOCKET_BYTES])
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	int len = runtime && *runtime == '/' ? snprintf(path, OWN_SOCKET_BYTES, "%s/tmad.sock", runtime) : -1;

	if (len < 0 || len >= OWN_SOCKET_BYTES || !own_socket_is_possible(path))
		snprintf(path, OWN_SOCKET_BYTES, "/tmp/tmad-%u.sock", (unsigned)getuid());
	return path;
}

#endif
