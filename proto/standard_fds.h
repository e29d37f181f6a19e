/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors 0 to 2 of a program. If its caller closed one, the first file or socket that the program opens
 * would get its number: what is printed would be sent to a peer, and libuv aborts when it closes one of them.
 */
#ifndef PROTO_STANDARD_FDS_H
#define PROTO_STANDARD_FDS_H

#include <fcntl.h>
#include <unistd.h>

/* Occupies those that are closed, before the program opens anything. They stay unusable: each is /dev/null,
 * opened for the direction that nobody uses, so that reading or writing fails with EBADF, as it does for a
 * closed one. */
static inline void standard_fds_hold(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		const int held =
		    fcntl(fd, F_GETFD) < 0 ? open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) : fd;

		if (held > fd) /* it was open after all */
			close(held);
	}
}

#endif
