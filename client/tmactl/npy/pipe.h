/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes files without positions: pipes, FIFOs, sockets, terminals. A wait for the other side
 * checks now and then whether to stop. */
#ifndef CLIENT_TMACTL_NPY_PIPE_H
#define CLIENT_TMACTL_NPY_PIPE_H

#include <sys/types.h>

#include "client/tmactl/stop.h"

/* A descriptor of one's own for the open file fd, which does not block where that can be had: others that
 * share the file see nothing of it. flags: O_RDONLY or O_WRONLY. -1 with errno. */
int pipe_own(int fd, int flags);

/* Opens a FIFO or device to write, once somebody reads. -1 with errno; ECANCELED: it was asked to stop. */
int pipe_open_write(const char *path, const struct stop *stop);

/* At least one byte, up to len; 0 at the end. -errno; -ECANCELED: it was asked to stop. */
ssize_t pipe_read(int fd, void *data, size_t len, const struct stop *stop);

/* All of them: 0, or -errno as above. */
int pipe_write(int fd, const void *data, size_t len, const struct stop *stop);

#endif
