/* SPDX-License-Identifier: Apache-2.0 */
/* A deflated member of an archive, read from its first byte to its last. */
#ifndef CLIENT_TMACTL_NPY_INFLATER_H
#define CLIENT_TMACTL_NPY_INFLATER_H

#include <stddef.h>

#include "archive.h"

struct inflater;

/* NULL: out of memory. fd stays the caller's. */
struct inflater *inflater_new(int fd, const struct archive_member *member);
void inflater_free(struct inflater *inflater);

/* The next bytes, up to len; 0 at the end, where they are held to the member's checksum. path is for the
 * errors; -1 with f set. */
long inflater_read(struct inflater *inflater, void *data, size_t len, const char *path, struct failure *f);

#endif
