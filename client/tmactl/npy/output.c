/* SPDX-License-Identifier: Apache-2.0 */
/* Creates the file without a name (O_TMPFILE) if the file system supports that, otherwise with a temporary
 * name. Once the file is complete, it gets a temporary name if it has none, and is renamed to its
 * destination. */
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "output_stream.h"
#include "room.h"

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif
#ifndef RENAME_EXCHANGE
#define RENAME_EXCHANGE 2
#endif

#define MAX_LINKS 40
/* Maximum number of bytes that one call writes. The page cache allocates folios as large as a write. Large
 * folios are scarce, and a virtual machine may have given their memory back to its host, which then has to
 * provide it again. (1 GiB of float32 transposed, first command after a pause: 0.36 s, 1.4 s without a limit,
 * 0.50 s at 32 KiB.) */
#define WRITE_BYTES (512 * 1024)

static int follow_links(char *target, const char *path, struct failure *f);
static char *directory_of(const char *target);
static int open_nameless(const char *directory);
static int look_at_target(struct output *output, struct failure *f);
static int open_file(struct output *output, struct failure *f);
static int output_reserve(const struct output *output, struct failure *f);
static int link_name(struct output *output);

int output_open(struct output *ret, const char *path, uint64_t bytes, enum output_clobber clobber,
                const struct stop *stop, struct failure *f)
{
	*ret =
	    (struct output){ .fd = -1, .path = path, .clobber = clobber, .uid = (uid_t)-1, .gid = (gid_t)-1 };
	ret->bytes = bytes;
	ret->stream = -1;
	ret->stop = stop;
	if (output_is_stream(path))
		return output_open_stream(ret, f);
	return look_at_target(ret, f) < 0 || open_file(ret, f) < 0 ? -1 : output_reserve(ret, f);
}

static int exists(const struct output *output, struct failure *f)
{
	return fail(f, EXIT_FAILED, "%s: already exists, and --no-clobber protects it", output->path);
}

/* Finds the file to replace, and its mode and owner, which the new file will have. */
static int look_at_target(struct output *output, struct failure *f)
{
	char target[PATH_MAX];
	struct stat st;
	mode_t mask;

	if (follow_links(target, output->path, f) < 0)
		return -1;
	mask = umask(0);
	umask(mask);
	output->mode = 0666 & ~mask;
	if (!stat(target, &st)) {
		if (!S_ISREG(st.st_mode))
			return fail(f, EXIT_FAILED, "%s: is %s; only a regular file is replaced",
			            output->path, S_ISDIR(st.st_mode) ? "a directory" : "not a regular file");
		if (output->clobber == OUTPUT_NO_CLOBBER)
			return exists(output, f);
		output->mode = st.st_mode & 07777;
		output->uid = st.st_uid;
		output->gid = st.st_gid;
	}
	output->target = strdup(target);
	return output->target ? 0 : fail(f, EXIT_FAILED, "out of memory");
}

static int open_file(struct output *output, struct failure *f)
{
	char *directory = directory_of(output->target);

	if (!directory)
		return fail(f, EXIT_FAILED, "out of memory");
	output->fd = open_nameless(directory);
	if (output->fd < 0) {
		if (asprintf(&output->temporary, "%s/.tmactl-XXXXXX", directory) < 0)
			output->temporary = NULL;
		output->fd = output->temporary ? mkostemp(output->temporary, O_CLOEXEC) : -1;
		if (output->fd < 0) {
			fail(f, EXIT_FAILED, "%s: cannot be created (%s)", output->path, strerror(errno));
			free(output->temporary);
			output->temporary = NULL;
		}
	}
	free(directory);
	return output->fd < 0 ? -1 : 0;
}

/* Reserves disk space for the whole file at once. This is faster than to allocate it write by write, and it
 * shows a lack of space before any work is done. */
static int output_reserve(const struct output *output, struct failure *f)
{
	char why[ROOM_TEXT];
	int error = room_reserve(output->fd, output->bytes, why);

	return error ? output_no_room(output, error, why, f) : 0;
}

int output_no_room(const struct output *output, int error, const char *why, struct failure *f)
{
	return fail(f, EXIT_FAILED, "%s: %s: it needs %" PRIu64 " bytes (%s)", output->path,
	            error == EFBIG ? "too large" : "no space", output->bytes, why);
}

/* Sets target to the file that path leads to. Symbolic links are followed and thus kept; what the last one
 * points to need not exist. */
static int follow_links(char *target, const char *path, struct failure *f)
{
	char link[PATH_MAX];
	struct stat st;
	char *slash;
	ssize_t n;
	size_t base;

	if (strlen(path) >= PATH_MAX)
		return fail(f, EXIT_FAILED, "%.40s...: the path is longer than %d bytes", path, PATH_MAX - 1);
	strcpy(target, path);
	for (int i = 0; i < MAX_LINKS; i++) {
		if (lstat(target, &st) || !S_ISLNK(st.st_mode))
			return 0;
		n = readlink(target, link, sizeof link - 1);
		if (n < 0)
			return fail(f, EXIT_FAILED, "%s: the link cannot be read (%s)", path,
			            strerror(errno));
		link[n] = '\0';
		slash = strrchr(target, '/');
		base = link[0] == '/' || !slash ? 0 : (size_t)(slash - target) + 1;
		if (base + (size_t)n >= PATH_MAX)
			return fail(f, EXIT_FAILED, "%s: points to a path longer than %d bytes", path,
			            PATH_MAX - 1);
		strcpy(target + base, link);
	}
	return fail(f, EXIT_FAILED, "%s: a chain of more than %d symbolic links", path, MAX_LINKS);
}

static char *directory_of(const char *target)
{
	const char *slash = strrchr(target, '/');

	if (!slash)
		return strdup(".");
	return slash == target ? strdup("/") : strndup(target, (size_t)(slash - target));
}

/* Returns a descriptor of a file without a name, or -1 if the file system has none or /proc, which is needed
 * to name it later, is missing. */
static int open_nameless(const char *directory)
{
	char proc[64];
	int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0)
		return -1;
	snprintf(proc, sizeof proc, "/proc/self/fd/%d", fd);
	if (access(proc, F_OK)) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Finds the directory of the file to which path leads through symbolic links, and the file's name in it.
 * Returns false if there is no such directory. */
static bool find_place(const char *path, struct stat *ret_directory, char *ret_name)
{
	char target[PATH_MAX];
	struct failure f = { 0 };
	char *directory;
	bool found;

	if (follow_links(target, path, &f) < 0)
		return false;
	directory = directory_of(target);
	found = directory && !stat(directory, ret_directory);
	free(directory);
	strcpy(ret_name, strrchr(target, '/') ? strrchr(target, '/') + 1 : target);
	return found;
}

bool output_is_one(const char *a, const char *b)
{
	char name_a[PATH_MAX], name_b[PATH_MAX];
	struct stat in_a, in_b;

	if (output_is_standard(a) || output_is_standard(b))
		return output_is_standard(a) && output_is_standard(b);
	return find_place(a, &in_a, name_a) && find_place(b, &in_b, name_b) && in_a.st_dev == in_b.st_dev &&
	       in_a.st_ino == in_b.st_ino && !strcmp(name_a, name_b);
}

int output_write(struct output *output, const void *data, size_t len, uint64_t offset, struct failure *f)
{
	char why[ROOM_TEXT];
	ssize_t n;

	if (output->fd < 0)
		return output_send(output, data, len, f);

	for (size_t at = 0; at < len; at += (size_t)n) {
		n = pwrite(output->fd, (const char *)data + at,
		           len - at < WRITE_BYTES ? len - at : WRITE_BYTES, (off_t)(offset + at));
		if (n < 0 && errno == EINTR)
			n = 0;
		else if (n < 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
			return output_no_room(output, room_failed(errno, why), why, f);
		else if (n < 0)
			return fail(f, EXIT_FAILED, "%s: cannot be written (%s)", output->path,
			            strerror(errno));
	}
	return 0;
}

/* Gives the file the owner, group and mode of the one that it replaces. Only root may change the owner; other
 * users may change only the group, to one of their own. If the owner or the group cannot be kept, the set-ID
 * bits are cleared, so that they do not grant the rights of another user or group. */
static int keep_owner(const struct output *output)
{
	bool kept = output->uid == (uid_t)-1 || !fchown(output->fd, output->uid, output->gid);

	if (!kept)
		kept = !fchown(output->fd, (uid_t)-1, output->gid) && output->uid == geteuid();
	return fchmod(output->fd, kept ? output->mode : output->mode & 0777);
}

static int rename_with(const char *from, const char *to, unsigned flags)
{
	return renameat2(AT_FDCWD, from, AT_FDCWD, to, flags);
}

/* Moves the file to the destination, and fails with EEXIST if something is there. */
static int put_anew(const struct output *output)
{
	if (!rename_with(output->temporary, output->target, RENAME_NOREPLACE))
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -1;
	return link(output->temporary, output->target) < 0 ? -1 : unlink(output->temporary);
}

/* Puts the file in place so that take_back() can undo it. Returns -1 if that is impossible. */
static int put_for_now(struct output *output)
{
	struct stat st;

	if (lstat(output->target, &st)) {
		if (errno != ENOENT || put_anew(output) < 0)
			return -1;
		output->place = OUTPUT_NEW;
		return 0;
	}
	if (!S_ISREG(st.st_mode) || rename_with(output->temporary, output->target, RENAME_EXCHANGE) < 0)
		return -1;
	output->place = OUTPUT_EXCHANGED;
	return 0;
}

/* Puts the file in place. With for_now, does so in a way that take_back() can undo, if the file system allows
 * that. */
static int put_in_place(struct output *output, bool for_now, struct failure *f)
{
	int rc;

	if (for_now && output->clobber == OUTPUT_REPLACE && !put_for_now(output))
		return 0;
	rc = output->clobber == OUTPUT_REPLACE ? rename(output->temporary, output->target) : put_anew(output);
	if (rc < 0)
		return errno == EEXIST ? exists(output, f)
		                       : fail(f, EXIT_FAILED, "%s: cannot be replaced (%s)", output->path,
		                              strerror(errno));
	output->place = output->clobber == OUTPUT_REPLACE ? OUTPUT_FINAL : OUTPUT_NEW;
	return 0;
}

/* Restores what was at the destination before, unless the place is final. */
static void take_back(struct output *output)
{
	if (output->place == OUTPUT_NEW)
		unlink(output->target);
	else if (output->place == OUTPUT_EXCHANGED)
		rename_with(output->temporary, output->target, RENAME_EXCHANGE);
	if (output->place != OUTPUT_FINAL)
		output->place = OUTPUT_ASIDE;
}

/* Makes the place final and removes a replaced file, which has the temporary name. */
static void let_go(struct output *output)
{
	if (output->place == OUTPUT_EXCHANGED)
		unlink(output->temporary);
	output->place = OUTPUT_FINAL;
	free(output->temporary);
	output->temporary = NULL;
}

/* Gives a complete file its mode and a name, and closes it. */
static int finish_file(struct output *output, struct failure *f)
{
	int rc;

	if (keep_owner(output) < 0)
		return fail(f, EXIT_FAILED, "%s: its mode cannot be set (%s)", output->path, strerror(errno));
	if (!output->temporary && link_name(output) < 0)
		return fail(f, EXIT_FAILED, "%s: cannot be created (%s)", output->path, strerror(errno));
	/* A network file system may report a full disk only when the file is closed. */
	rc = close(output->fd);
	output->fd = -1;
	if (rc < 0)
		return fail(f, EXIT_FAILED, "%s: cannot be written (%s)", output->path, strerror(errno));
	return 0;
}

int output_commit_all(struct output *const *outputs, size_t n, struct failure *f)
{
	for (size_t i = 0; i < n; i++)
		if (!outputs[i]->is_stream && finish_file(outputs[i], f) < 0)
			return -1;
	for (size_t i = 0; i < n; i++)
		if (outputs[i]->is_stream && output_end_stream(outputs[i], f) < 0)
			return -1;
	for (size_t i = 0; i < n; i++) {
		if (outputs[i]->is_stream || put_in_place(outputs[i], i + 1 < n, f) == 0)
			continue;
		while (i-- > 0)
			take_back(outputs[i]);
		return -1;
	}
	for (size_t i = 0; i < n; i++)
		let_go(outputs[i]);
	return 0;
}

int output_commit(struct output *output, struct failure *f)
{
	return output_commit_all(&output, 1, f);
}

/* Gives the nameless file a temporary name in the directory of its target. Returns 0, or -1 with errno
 * set. */
static int link_name(struct output *output)
{
	char *directory = directory_of(output->target);
	char proc[64];
	char *name = NULL;
	uint64_t random;
	int rc = -1;

	snprintf(proc, sizeof proc, "/proc/self/fd/%d", output->fd);
	for (int i = 0; i < 100 && rc < 0 && directory; i++) {
		if (getrandom(&random, sizeof random, 0) != sizeof random)
			break;
		free(name);
		if (asprintf(&name, "%s/.tmactl-%016" PRIx64, directory, random) < 0) {
			name = NULL;
			break;
		}
		rc = linkat(AT_FDCWD, proc, AT_FDCWD, name, AT_SYMLINK_FOLLOW);
		if (rc < 0 && errno != EEXIST)
			break;
	}
	free(directory);
	if (rc < 0)
		free(name);
	else
		output->temporary = name;
	return rc;
}

void output_deinit(struct output *output)
{
	if (output->fd >= 0)
		close(output->fd);
	if (output->stream >= 0)
		close(output->stream);
	if (output->temporary)
		unlink(output->temporary);
	free(output->held);
	free(output->temporary);
	free(output->target);
	*output = (struct output){ .fd = -1, .stream = -1 };
}
