/* SPDX-License-Identifier: Apache-2.0 */
/* The programs tmad and tmactl both need this, and no library has it: the daemon and programs that only link
 * the library have no object in common, so these functions are inline.
 */
#ifndef PROTO_PROGRAM_H
#define PROTO_PROGRAM_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Descriptors 0 to 2 -------------------------------------------------------------------------------- */

/* Occupies those that the program's caller has closed, before the program opens anything: else the first file
 * or socket would get such a number, what is printed would be sent to a peer, and libuv would abort when it
 * closes one of them. They stay unusable: each is /dev/null, opened for the direction that nobody uses, so
 * that reading or writing fails with EBADF, as it does for a closed one. */
static inline void standard_fds_hold(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		const int held =
		    fcntl(fd, F_GETFD) < 0 ? open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) : fd;

		if (held > fd) /* it was open after all */
			close(held);
	}
}

/* ---- A socket of the user's own ------------------------------------------------------------------------ */

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

/* Writes a path at which this user may make a socket, for messages that suggest one, and returns it. */
static inline const char *own_socket_path(char path[OWN_SOCKET_BYTES])
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	int len = runtime && *runtime == '/' ? snprintf(path, OWN_SOCKET_BYTES, "%s/tmad.sock", runtime) : -1;

	if (len < 0 || len >= OWN_SOCKET_BYTES || !own_socket_is_possible(path))
		snprintf(path, OWN_SOCKET_BYTES, "/tmp/tmad-%u.sock", (unsigned)getuid());
	return path;
}

/* ---- Names that are nearly right ----------------------------------------------------------------------- */

#define NEAREST_BYTES 64 /* of the second name, with its end; what is longer is cut */
#define NEAREST_LIMIT 4  /* names this far apart mean different things */

/* Returns how many bytes of a would have to be changed, added or taken away to make it b; _ is taken for -.
 * This is to suggest the name that the user may have meant. */
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
