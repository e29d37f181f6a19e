/* SPDX-License-Identifier: Apache-2.0 */
/* .npz archives: ZIP files whose members are .npy files. */
#ifndef CLIENT_TMACTL_NPY_ARCHIVE_H
#define CLIENT_TMACTL_NPY_ARCHIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/tmactl/tmactl.h"

struct archive_member {
	uint64_t offset; /* of its first byte in the archive */
	uint64_t packed; /* bytes there */
	uint64_t bytes;  /* of the .npy file that they are */
	uint32_t crc;    /* of that */
	bool is_deflated;
};

/* Whether the file begins as archives do. */
bool archive_is_one(int fd);

/* Returns whether a path names an archive, or an array in one, by its end (.npz) or by what precedes a colon.
 * The colon of a folder that exists does not count. */
bool archive_is_named(const char *path);

/* Finds an array by its name, with or without the .npy that numpy.savez puts behind it, in the open archive
 * of file_bytes at path. As numpy.load does, it takes the last of several members of one name, and one that
 * has exactly this name before one with .npy. Without a name, or with a wrong one, the error lists those
 * there are. */
int archive_find(struct archive_member *ret, int fd, uint64_t file_bytes, const char *path, const char *name,
                 struct failure *f);

#endif
