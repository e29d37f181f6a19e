/* SPDX-License-Identifier: Apache-2.0 */
/* Finds arrays in .npz archives, which are ZIP files whose members are .npy files. */
#ifndef CLIENT_TMACTL_NPY_ARCHIVE_H
#define CLIENT_TMACTL_NPY_ARCHIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/tmactl/tmactl.h"

/* A member of an archive, that is, an .npy file. */
struct archive_member {
	uint64_t offset;  /* byte of the archive at which its data begins */
	uint64_t packed;  /* bytes of the data in the archive */
	uint64_t bytes;   /* size of the .npy file */
	uint32_t crc;     /* CRC-32 of the .npy file */
	bool is_deflated; /* the data is compressed; false: it is stored as it is */
};

/* Returns whether the file begins like a ZIP archive. */
bool archive_is_one(int fd);

/* Returns whether a path names an archive or an array in one: it ends in .npz, or what precedes a colon ends
 * in .npz or is an existing archive. Colons in the name of an existing directory do not count. */
bool archive_is_named(const char *path);

/* Finds the array `name` in the open archive at path, which has file_bytes bytes. ".npy", which numpy.savez
 * appends to names, may be left out. As in numpy.load, the last of several members of the same name is taken,
 * and a member of exactly this name is preferred to one that has ".npy" appended. Fails if name is NULL or
 * empty, or there is no such array; the message then lists the arrays that exist. */
int archive_find(struct archive_member *ret, int fd, uint64_t file_bytes, const char *path, const char *name,
                 struct failure *f);

#endif
