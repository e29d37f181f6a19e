/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that both programs, tmad and tmactl, need and that no library contains. The functions are inline
 * because the daemon shares no object file with programs that only link the library. */
#ifndef PROTO_PROGRAM_H
#define PROTO_PROGRAM_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Descriptors 0 to 2 -------------------------------------------------------------------------------- */

/* Occupies those of the descriptors 0 to 2 that the program's caller has closed, before the program opens
 * anything. Otherwise the first file or socket would get such a number: printed text would be sent to a peer,
 * and libuv would abort when it closes one of them. They remain unusable: each is /dev/null, opened for the
 * direction that nobody uses, so that reading or writing fails with EBADF, as with a closed descriptor. */
static inline void standard_fds_hold(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		const int held =
		    fcntl(fd, F_GETFD) < 0 ? open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) : fd;

		if (held > fd) /* fd was open: open() returned another number. */
			close(held);
	}
}

/* ---- A socket of the user's own ------------------------------------------------------------------------ */

#define OWN_SOCKET_BYTES 108 /* size of a buffer for a socket's path and its terminator */

/* Returns whether this process may create a socket at the path, which is shorter than OWN_SOCKET_BYTES. An
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

/* Writes a path at which this user may create a socket, for messages that suggest one, and returns it. */
static inline const char *own_socket_path(char path[OWN_SOCKET_BYTES])
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	int len = runtime && *runtime == '/' ? snprintf(path, OWN_SOCKET_BYTES, "%s/tmad.sock", runtime) : -1;

	if (len < 0 || len >= OWN_SOCKET_BYTES || !own_socket_is_possible(path))
		snprintf(path, OWN_SOCKET_BYTES, "/tmp/tmad-%u.sock", (unsigned)getuid());
	return path;
}

/* ---- Names that are nearly right ----------------------------------------------------------------------- */

/* maximum number of bytes of the second name that are compared, with its terminator */
#define NEAREST_BYTES 64
#define NEAREST_LIMIT 4 /* Names that are this far apart mean different things. */

/* Returns the number of bytes to change, insert or delete in order to turn a into b, where _ in a counts as
 * -. Used to suggest the name that the user may have meant. */
static inline unsigned nearest_distance(const char *a, const char *b)
{
	unsigned row[NEAREST_BYTES];
	size_t n = strnlen(b, NEAREST_BYTES - 1);

	for (unsigned j = 0; j <= n; j++)
		row[j] = j;
	for (unsigned i = 1; *a; i++, a++) {
		unsigned corner = row[0];

		row[0] = i;
		for (size_t j = 1; j <= n; j++) {
			unsigned change = corner + ((*a == '_' ? '-' : *a) != b[j - 1]);

			corner = row[j];
			row[j] = 1 + (row[j] < row[j - 1] ? row[j] : row[j - 1]);
			if (change < row[j])
				row[j] = change;
		}
	}
	return row[n];
}

#endif
