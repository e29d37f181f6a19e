/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the limit of the process (RLIMIT_FSIZE) and then the file system: by fallocate() or, where that is
 * not supported, by the space that it reports as free. */
#include "room.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#define CIFS_MAGIC 0xff534d42
#ifndef SMB2_SUPER_MAGIC
#define SMB2_SUPER_MAGIC 0xfe534d42
#endif
#ifndef FUSE_SUPER_MAGIC
#define FUSE_SUPER_MAGIC 0x65735546
#endif

int room_failed(int error, char why[ROOM_TEXT])
{
	snprintf(why, ROOM_TEXT, "%s", strerror(error));
	return error;
}

static int check_limit(uint64_t end, char why[ROOM_TEXT])
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_FSIZE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY || end <= limit.rlim_cur)
		return 0;
	snprintf(why, ROOM_TEXT, "%s: ulimit -f allows %" PRIu64 " bytes; raise it", strerror(EFBIG),
	         (uint64_t)limit.rlim_cur);
	return EFBIG;
}

/* Compares bytes with the free space of the file system, of which root may also use the reserved blocks. A
 * file system that reports no blocks at all passes. */
static int check_free(int fd, uint64_t bytes, char why[ROOM_TEXT])
{
	struct statvfs fs;
	uint64_t blocks;

	if (fstatvfs(fd, &fs) < 0 || !fs.f_blocks || !fs.f_frsize)
		return 0;
	blocks = geteuid() ? fs.f_bavail : fs.f_bfree;
	if (bytes / fs.f_frsize + (bytes % fs.f_frsize != 0) <= blocks)
		return 0;
	snprintf(why, ROOM_TEXT, "%s: the file system has %" PRIu64 " bytes free", strerror(ENOSPC),
	         blocks * fs.f_frsize);
	return ENOSPC;
}

/* Returns whether this type of file system extends a file by a hole, without writing zeros. */
static bool extends_by_holes(long type)
{
	static const unsigned types[] = { EXT4_SUPER_MAGIC, NFS_SUPER_MAGIC, FUSE_SUPER_MAGIC, CIFS_MAGIC,
		                          SMB2_SUPER_MAGIC };

	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
		if ((unsigned)type == types[i])
			return true;
	return false;
}

/* Checks that the file system allows files of this size, by setting the file's length and resetting it. For
 * file systems that cannot reserve space. */
static int check_length(int fd, uint64_t bytes, long type, char why[ROOM_TEXT])
{
	int error = 0;

	if (!extends_by_holes(type))
		return 0;
	if (ftruncate(fd, (off_t)bytes) < 0)
		error = errno;
	else if (ftruncate(fd, 0) < 0)
		error = errno;
	return error == EFBIG ? room_failed(error, why) : 0;
}

int room_reserve(int fd, uint64_t bytes, char why[ROOM_TEXT])
{
	struct statfs fs;
	int error = check_limit(bytes, why);

	if (error || !bytes)
		return error;
	if (fstatfs(fd, &fs) < 0)
		fs.f_type = 0;
	/* On tmpfs, fallocate() would allocate all pages now, which takes longer than during the writes,
	 * where it overlaps with other work. */
	if (fs.f_type == TMPFS_MAGIC)
		return check_free(fd, bytes, why);
	if (!fallocate(fd, 0, 0, (off_t)bytes))
		return 0;
	error = errno;
	if (error == ENOSPC || error == EDQUOT || error == EFBIG)
		return room_failed(error, why);
	error = check_free(fd, bytes, why);
	return error ? error : check_length(fd, bytes, fs.f_type, why);
}

int room_check(int fd, uint64_t bytes, char why[ROOM_TEXT])
{
	const int flags = fcntl(fd, F_GETFL);
	struct stat st;
	uint64_t at, end;
	off_t position;
	int error;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return 0;
	position = flags >= 0 && flags & O_APPEND ? st.st_size : lseek(fd, 0, SEEK_CUR);
	at = position > 0 ? (uint64_t)position : 0;
	if (__builtin_add_overflow(at, bytes, &end))
		return room_failed(EFBIG, why);
	error = check_limit(end, why);
	if (error || end <= (uint64_t)st.st_size)
		return error;
	return check_free(fd, end - (uint64_t)st.st_size, why);
}
