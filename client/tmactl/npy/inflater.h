/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a deflated member of an archive, once, from its first byte to its last. An inflater is for one thread
 * at a time. */
#ifndef CLIENT_TMACTL_NPY_INFLATER_H
#define CLIENT_TMACTL_NPY_INFLATER_H

#include <stddef.h>

#include "archive.h"

struct inflater;

/* Returns a new inflater, or NULL if it runs out of memory. fd stays the caller's, and must stay open. */
struct inflater *inflater_new(int fd, const struct archive_member *member);
void inflater_free(struct inflater *inflater);

/* Reads the next bytes, up to len. Returns their number, 0 at the end of the member, or -1 with f set. At the
 * end, size and checksum of all bytes are compared with those of the archive's directory. path is for
 * messages. */
long inflater_read(struct inflater *inflater, void *data, size_t len, const char *path, struct failure *f);

#endif
