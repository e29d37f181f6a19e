/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes files that cannot seek: pipes, FIFOs, sockets, devices. While a call waits for the other
 * side, it checks about 20 times a second whether to stop. */
#ifndef CLIENT_TMACTL_NPY_PIPE_H
#define CLIENT_TMACTL_NPY_PIPE_H

#include <sys/types.h>

#include "client/tmactl/stop.h"

/* Returns another descriptor for the open file fd. A pipe is opened anew, so that it is non-blocking only for
 * this descriptor and not for the processes that share fd; anything else is duplicated. flags is O_RDONLY or
 * O_WRONLY. Returns -1 with errno set if it fails. */
int pipe_own(int fd, int flags);

/* Opens a FIFO or device for writing, and waits until a FIFO has a reader. Returns its descriptor, or -1 with
 * errno set, to ECANCELED if it was asked to stop. */
int pipe_open_write(const char *path, const struct stop *stop);

/* Reads at least one byte and at most len. Returns the number of bytes, 0 at the end, or -errno, which is
 * -ECANCELED if it was asked to stop. */
ssize_t pipe_read(int fd, void *data, size_t len, const struct stop *stop);

/* Writes all bytes. Returns 0, or -errno like pipe_read(). */
int pipe_write(int fd, const void *data, size_t len, const struct stop *stop);

#endif
