/* SPDX-License-Identifier: Apache-2.0 */
/* A spool stores the bytes of a pipe that are read or written in a different order from that of the pipe. It
 * is in memory if there is enough, otherwise in a file without a name in $TMPDIR, or in /tmp. */
#ifndef CLIENT_TMACTL_NPY_SPOOL_H
#define CLIENT_TMACTL_NPY_SPOOL_H

#include <stdint.h>

#include "client/tmactl/tmactl.h"

/* Makes a spool for `bytes` bytes. Returns its descriptor, which the caller closes, or -1 with f set. The
 * spool is in memory if it takes at most half of *memory, from which its size is then subtracted. what names
 * the pipe in messages. */
int spool_open(uint64_t bytes, uint64_t *memory, const char *what, struct failure *f);

/* Writes all of data at offset. */
int spool_write(int fd, const void *data, size_t len, uint64_t offset, const char *what, struct failure *f);

#endif
