/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out before a file is written whether its file system has space for it and allows files so large. */
#ifndef CLIENT_TMACTL_NPY_ROOM_H
#define CLIENT_TMACTL_NPY_ROOM_H

#include <stdint.h>

#define ROOM_TEXT 160

/* Reserves space for `bytes` bytes in an empty file if the file system can do that without writing them, and
 * otherwise checks that it has the space. Returns 0, or ENOSPC, EDQUOT or EFBIG with the reason in why. */
int room_reserve(int fd, uint64_t bytes, char why[ROOM_TEXT]);

/* Checks that there is space for `bytes` bytes from the file's current position on, without reserving it.
 * Returns the same as room_reserve(), and 0 for anything but a regular file. */
int room_check(int fd, uint64_t bytes, char why[ROOM_TEXT]);

/* Writes the text of an errno value to why, and returns that value. */
int room_failed(int error, char why[ROOM_TEXT]);

#endif
