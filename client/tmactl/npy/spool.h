/* SPDX-License-Identifier: Apache-2.0 */
/* Holds bytes that arrive or leave in another order than they are used: in memory while there is some to
 * spare, otherwise in a file without a name in $TMPDIR. */
#ifndef CLIENT_TMACTL_NPY_SPOOL_H
#define CLIENT_TMACTL_NPY_SPOOL_H

#include <stdint.h>

#include "client/tmactl/tmactl.h"

/* A descriptor with room for bytes, to be closed. Memory is taken from *memory, of which at least half stays.
 * what is for the errors: whose bytes. -1 with f set. */
int spool_open(uint64_t bytes, uint64_t *memory, const char *what, struct failure *f);

/* Writes all of data at offset. */
int spool_write(int fd, const void *data, size_t len, uint64_t offset, const char *what, struct failure *f);

#endif
