/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out before a file is written whether its file system has room for it and allows files so large. */
#ifndef CLIENT_TMACTL_NPY_ROOM_H
#define CLIENT_TMACTL_NPY_ROOM_H

#include <stdint.h>

#define ROOM_TEXT 160

/* Reserves room for so many bytes of an empty file, where the file system can do that without writing them,
 * and checks that it has room where it cannot. Returns 0, or ENOSPC, EDQUOT or EFBIG with
 * the reason in why. */
int room_reserve(int fd, uint64_t bytes, char why[ROOM_TEXT]);

/* Makes the same check for so many bytes from the file's position on, which it does not reserve. */
int room_check(int fd, uint64_t bytes, char why[ROOM_TEXT]);

/* Puts the text of an errno into why, and returns it. */
int room_failed(int error, char why[ROOM_TEXT]);

#endif
