/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a path as a file, an array of an archive or a pipe, and reads it at any position or in order. */
#include "source.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zlib.h>

#include "archive.h"
#include "inflater.h"
#include "pipe.h"
#include "spool.h"

#define SKIP_BYTES  (64 * 1024)
#define SPOOL_BYTES (256 * 1024)
#define CHECK_BYTES (256 * 1024)

static int open_file(struct source *s, const char *path, struct failure *f);
static int open_input(struct source *s, struct failure *f);
static int open_member(struct source *s, const char *path, const char *colon, struct failure *f);
static const char *member_of(const char *path);

int source_open(struct source *ret, const char *path, const struct stop *stop, struct failure *f)
{
	const char *colon;

	*ret = (struct source){ .path = path, .fd = -1, .stop = stop };
	if (!strcmp(path, "-") || !strcmp(path, "/dev/stdin"))
		return open_input(ret, f);
	colon = member_of(path);
	return colon ? open_member(ret, path, colon, f) : open_file(ret, path, f);
}

/* Returns the colon of ARCHIVE:NAME, or NULL if the path as a whole exists or no part before a colon is a
 * file. */
static const char *member_of(const char *path)
{
	const char *colon = strchr(path, ':');
	struct stat st;

	if (!colon || !lstat(path, &st))
		return NULL;
	for (; colon; colon = strchr(colon + 1, ':')) {
		char *archive = strndup(path, (size_t)(colon - path));
		bool is_file = archive && !stat(archive, &st) && S_ISREG(st.st_mode);

		free(archive);
		if (is_file)
			return colon;
	}
	return NULL;
}

/* Sets where the .npy file begins and ends if the open file is a regular one. Marks the source as sequential
 * if it is not. */
static int source_begin(struct source *s, struct failure *f)
{
	struct stat st;
	off_t at;

	if (fstat(s->fd, &st) < 0)
		return fail(f, EXIT_FAILED, "%s: cannot be examined (%s)", s->path, strerror(errno));
	if (S_ISREG(st.st_mode)) {
		at = lseek(s->fd, 0, SEEK_CUR);
		s->base = at > 0 ? at : 0;
		s->bytes = st.st_size > s->base ? (uint64_t)(st.st_size - s->base) : 0;
		return 0;
	}
	if (S_ISDIR(st.st_mode) || S_ISBLK(st.st_mode))
		return fail(f, EXIT_FAILED, "%s: is %s; a file or a pipe is needed", s->path,
		            S_ISDIR(st.st_mode) ? "a directory" : "a block device");
	if (isatty(s->fd))
		return fail(f, EXIT_FAILED, "%s: is a terminal; a file or a pipe is needed", s->path);
	s->is_sequential = true;
	s->bytes = SOURCE_UNKNOWN;
	return 0;
}

static int open_file(struct source *s, const char *path, struct failure *f)
{
	/* With O_NONBLOCK, open() does not wait until a FIFO has a writer. The first read does, and it
	 * notices a request to stop. */
	s->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (s->fd < 0)
		return fail(f, EXIT_FAILED, "%s: cannot be opened (%s)", path, strerror(errno));
	if (source_begin(s, f) < 0)
		return -1;
	if (!s->is_sequential && archive_is_one(s->fd))
		return archive_find(&(struct archive_member){ 0 }, s->fd, s->bytes, path, NULL, f);
	return 0;
}

static int open_input(struct source *s, struct failure *f)
{
	s->path = "standard input";
	s->is_input = true;
	s->fd = pipe_own(STDIN_FILENO, O_RDONLY);
	if (s->fd < 0)
		return fail(f, EXIT_FAILED, "%s: cannot be opened (%s)", s->path, strerror(errno));
	return source_begin(s, f);
}

static int open_member(struct source *s, const char *path, const char *colon, struct failure *f)
{
	struct archive_member member;
	char *archive = strndup(path, (size_t)(colon - path));
	int rc;

	if (!archive)
		return fail(f, EXIT_FAILED, "out of memory");
	s->fd = open(archive, O_RDONLY | O_CLOEXEC);
	if (s->fd < 0)
		rc = fail(f, EXIT_FAILED, "%s: cannot be opened (%s)", archive, strerror(errno));
	else if ((rc = source_begin(s, f)) == 0 && !archive_is_one(s->fd))
		rc = fail(f, EXIT_FAILED, "%s: no such file, and %s is not an .npz archive", path, archive);
	else if (!rc)
		rc = archive_find(&member, s->fd, s->bytes, archive, colon + 1, f);
	free(archive);
	if (rc < 0)
		return rc;
	s->base = (int64_t)member.offset;
	s->bytes = member.bytes;
	s->crc = member.crc;
	s->has_crc = !member.is_deflated;
	if (!member.is_deflated)
		return 0;
	s->is_sequential = true;
	s->inflater = inflater_new(s->fd, &member);
	return s->inflater ? 0 : fail(f, EXIT_FAILED, "out of memory");
}

void source_close(struct source *s)
{
	inflater_free(s->inflater);
	if (s->fd >= 0)
		close(s->fd);
	*s = (struct source){ .fd = -1 };
}

/* ---- Reading ---------------------------------------------------------------------------------------- */

static int read_file(const struct source *s, void *data, size_t len, uint64_t offset, struct failure *f)
{
	ssize_t n;

	for (size_t at = 0; at < len; at += (size_t)n) {
		n = pread(s->fd, (char *)data + at, len - at, (off_t)((int64_t)(offset + at) + s->base));
		if (n < 0 && errno == EINTR)
			n = 0;
		else if (n < 0)
			return fail(f, EXIT_FAILED, "%s: cannot be read (%s)", s->path, strerror(errno));
		else if (n == 0)
			return fail(f, EXIT_FAILED,
			            "%s: truncated while it was read: it ends at byte %" PRIu64, s->path,
			            offset + at);
	}
	return 0;
}

int source_check(const struct source *s, struct failure *f)
{
	uLong crc = crc32_z(0, NULL, 0);
	uint8_t *data = s->has_crc ? malloc(CHECK_BYTES) : NULL;
	int rc = 0;

	if (!s->has_crc)
		return 0;
	if (!data)
		return fail(f, EXIT_FAILED, "out of memory");
	for (uint64_t at = 0; !rc && at < s->bytes;) {
		size_t len = s->bytes - at < CHECK_BYTES ? (size_t)(s->bytes - at) : CHECK_BYTES;

		rc =
		    stop_is_asked(s->stop) ? fail(f, EXIT_FAILED, "stopped") : read_file(s, data, len, at, f);
		if (!rc)
			crc = crc32_z(crc, data, len);
		at += len;
	}
	free(data);
	if (!rc && crc != s->crc)
		rc = fail(f, EXIT_FAILED, "%s: damaged archive: the array does not match its checksum",
		          s->path);
	return rc;
}

/* Reads at least one and at most len bytes of a sequential source. Returns their number, 0 at the end, or -1
 * with f set. */
static long read_next(struct source *s, void *data, size_t len, struct failure *f)
{
	ssize_t n;

	if (stop_is_asked(s->stop))
		return fail(f, EXIT_FAILED, "stopped");
	if (s->inflater)
		return inflater_read(s->inflater, data, len, s->path, f);
	n = pipe_read(s->fd, data, len, s->stop);
	if (n == -ECANCELED)
		return fail(f, EXIT_FAILED, "stopped");
	if (n < 0)
		return fail(f, EXIT_FAILED, "%s: cannot be read (%s)", s->path, strerror((int)-n));
	return n;
}

static int read_on(struct source *s, void *data, size_t len, struct failure *f)
{
	long n;

	for (size_t at = 0; at < len; at += (size_t)n) {
		n = read_next(s, (char *)data + at, len - at, f);
		if (n < 0)
			return -1;
		if (n == 0)
			return fail(f, EXIT_FAILED, "%s: truncated: it ends at byte %" PRIu64, s->path,
			            s->at);
		s->at += (uint64_t)n;
	}
	return 0;
}

static int skip_to(struct source *s, uint64_t offset, struct failure *f)
{
	char data[SKIP_BYTES];
	uint64_t left;

	while ((left = offset > s->at ? offset - s->at : 0) > 0)
		if (read_on(s, data, left < sizeof data ? (size_t)left : sizeof data, f) < 0)
			return -1;
	return 0;
}

int source_read(struct source *s, void *data, size_t len, uint64_t offset, struct failure *f)
{
	if (!s->is_sequential)
		return read_file(s, data, len, offset, f);
	return skip_to(s, offset, f) < 0 ? -1 : read_on(s, data, len, f);
}

int source_spool(struct source *s, uint64_t end, uint64_t *memory, struct failure *f)
{
	uint64_t from = s->at;
	char *data = malloc(SPOOL_BYTES);
	int fd = data ? spool_open(end - from, memory, s->path, f) : fail(f, EXIT_FAILED, "out of memory");
	int rc = fd < 0 ? -1 : 0;

	while (!rc && s->at < end) {
		uint64_t at = s->at;
		size_t len = end - at < SPOOL_BYTES ? (size_t)(end - at) : SPOOL_BYTES;

		rc = read_on(s, data, len, f);
		if (!rc)
			rc = spool_write(fd, data, len, at - from, s->path, f);
	}
	if (!rc)
		rc = source_finish(s, end, f);
	free(data);
	if (rc < 0) {
		if (fd >= 0)
			close(fd);
		return rc;
	}
	inflater_free(s->inflater);
	close(s->fd);
	s->inflater = NULL;
	s->fd = fd;
	s->base = -(int64_t)from;
	s->is_sequential = false;
	s->is_input = false;
	return 0;
}

/* A deflated member is read to its end, because its checksum covers all of it. */
int source_finish(struct source *s, uint64_t end, struct failure *f)
{
	char byte;

	if (!s->is_sequential) {
		if (s->is_input)
			(void)lseek(s->fd, s->base + (int64_t)end, SEEK_SET);
		return 0;
	}
	if (skip_to(s, s->inflater ? s->bytes : end, f) < 0)
		return -1;
	return s->inflater && read_next(s, &byte, 1, f) < 0 ? -1 : 0;
}
