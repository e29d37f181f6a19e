/* SPDX-License-Identifier: Apache-2.0 */
/* A spool is a memfd, or a file without a name that no other process can open. */
#include "spool.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "room.h"

static const char *directory(void)
{
	const char *named = getenv("TMPDIR");

	return named && *named ? named : "/tmp";
}

static int open_nameless(void)
{
	int fd = open(directory(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	char *name;

	if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
		return fd;
	if (asprintf(&name, "%s/tmactl-XXXXXX", directory()) < 0)
		return -1;
	fd = mkostemp(name, O_CLOEXEC);
	if (fd >= 0)
		unlink(name);
	free(name);
	return fd;
}

static int no_room(const char *what, int error, const char *why, struct failure *f)
{
	if (error == EFBIG)
		return fail(f, EXIT_FAILED, "%s: too large to buffer it in a file of %s (%s)", what,
		            directory(), why);
	return fail(f, EXIT_FAILED,
	            "%s: no space to buffer it: %s has too little (%s); set $TMPDIR to another directory",
	            what, directory(), why);
}

/* Returns fd if there is space for `bytes` bytes in its file. Otherwise closes it and returns -1 with f
 * set. */
static int with_room(int fd, uint64_t bytes, const char *what, struct failure *f)
{
	char why[ROOM_TEXT];
	int error = room_reserve(fd, bytes, why);

	if (!error)
		return fd;
	close(fd);
	return no_room(what, error, why, f);
}

int spool_open(uint64_t bytes, uint64_t *memory, const char *what, struct failure *f)
{
	int fd;

	if (bytes <= *memory / 2) {
		fd = memfd_create("tmactl", MFD_CLOEXEC);
		if (fd >= 0) {
			*memory -= bytes;
			return with_room(fd, bytes, what, f);
		}
	}
	fd = open_nameless();
	if (fd < 0)
		return fail(f, EXIT_FAILED, "%s: no file can be created in %s to buffer it (%s)", what,
		            directory(), strerror(errno));
	return with_room(fd, bytes, what, f);
}

int spool_write(int fd, const void *data, size_t len, uint64_t offset, const char *what, struct failure *f)
{
	char why[ROOM_TEXT];
	ssize_t n;

	for (size_t at = 0; at < len; at += (size_t)n) {
		n = pwrite(fd, (const char *)data + at, len - at, (off_t)(offset + at));
		if (n < 0 && errno == EINTR)
			n = 0;
		else if (n < 0)
			return no_room(what, room_failed(errno, why), why, f);
	}
	return 0;
}
