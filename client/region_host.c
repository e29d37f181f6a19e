/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory by its pointer: from a range of addresses to the file that is mapped there, and a descriptor of
 * it.
 *
 * /proc/self/maps says which file that is, by its device and inode. It is opened by whatever leads to it: the
 * mapping itself, which takes a capability; its path, if that still is the same file; or a descriptor that
 * the process has of it. Nothing is opened that was not found to be the same regular file before. */
#include "client.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

/* A line of /proc/self/maps; of several that are one range of a file, what they have in common. */
struct mapping {
	uint64_t start;
	uint64_t first_end; /* of the first line */
	uint64_t end;
	uint64_t offset; /* of start, in the file */
	bool is_shared;
	bool is_writable; /* all of it */
	bool is_written;  /* some of it may be */
	unsigned major;   /* of the file's device */
	unsigned minor;
	uint64_t inode;
	char path[PATH_MAX];
};

static int find_mapping(tma_client *client, uint64_t start, size_t size, struct mapping *ret);
static int open_file(tma_client *client, const struct mapping *mapping, bool is_writable);

int tma_region_from_host_ptr(tma_client *client, const void *ptr, size_t size, unsigned flags,
                             tma_region **ret)
{
	const uint64_t start = (uintptr_t)ptr;
	const bool is_writable = !(flags & TMA_REGION_READ_ONLY);
	struct mapping *mapping;
	tma_region *region = NULL;
	int rc = client_check_usable(client), fd = -1;

	if (rc == 0)
		rc = region_check_flags(client, flags);
	if (rc < 0)
		return rc;
	if (size == 0)
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "size: a region has at least 1 byte, not 0");
	mapping = malloc(sizeof *mapping);
	if (!mapping)
		return client_fail(client, STATUS_NO_MEMORY, "out of memory for a region");
	rc = find_mapping(client, start, size, mapping);
	if (rc == 0 && is_writable && !mapping->is_writable)
		rc = client_fail(client, STATUS_PERMISSION,
		                 "ptr: the memory at %p is mapped for reading only; only "
		                 "TMA_REGION_READ_ONLY can register it",
		                 ptr);
	if (rc == 0)
		rc = fd = open_file(client, mapping, is_writable);
	if (rc >= 0) {
		rc = tma_region_register_memfd(client, fd, mapping->offset + (start - mapping->start), size,
		                               flags, &region);
		close(fd);
	}
	free(mapping);
	if (rc == 0)
		rc = region_keep_range(region, start);
	if (rc == 0)
		*ret = region;
	return rc;
}

/* ---- Mappings --------------------------------------------------------------------------------------- */

/* false: it is no such line. A path has no escapes but those of newlines, which make it another one. */
static bool parse(const char *line, struct mapping *ret)
{
	char access[5];
	int at = 0;

	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 " %n", &ret->start,
	           &ret->end, access, &ret->offset, &ret->major, &ret->minor, &ret->inode, &at) != 7)
		return false;
	ret->first_end = ret->end;
	ret->is_writable = ret->is_written = access[1] == 'w';
	ret->is_shared = access[3] == 's';
	snprintf(ret->path, sizeof ret->path, "%.*s", (int)strcspn(line + at, "\n"), line + at);
	return true;
}

/* Whether next goes on where mapping ends, in the same file too. */
static bool continues(const struct mapping *mapping, const struct mapping *next)
{
	return next->is_shared && next->start == mapping->end && next->major == mapping->major &&
	       next->minor == mapping->minor && next->inode == mapping->inode &&
	       next->offset == mapping->offset + (mapping->end - mapping->start);
}

/* The file's mapping that has the byte at start, as far as it reaches, but no further than size bytes need.
 * ret->end is 0 if there is none. */
static int read_maps(FILE *file, uint64_t start, size_t size, struct mapping *ret)
{
	struct mapping *next = malloc(sizeof *next);
	char *line = NULL;
	size_t room = 0;
	int r = next ? 0 : -ENOMEM;

	ret->end = 0;
	while (r == 0 && (ret->end == 0 || ret->end - start < size)) {
		errno = 0;
		if (getline(&line, &room, file) < 0) {
			r = -errno;
			break;
		}
		if (!parse(line, next) || next->end <= start)
			continue;
		if (next->start > start && (ret->end == 0 || !continues(ret, next)))
			break;
		if (ret->end == 0) {
			*ret = *next;
			if (!ret->is_shared)
				break;
		}
		ret->end = next->end;
		ret->is_writable = ret->is_writable && next->is_writable;
		ret->is_written = ret->is_written || next->is_writable;
	}
	free(line);
	free(next);
	return r;
}

static int find_mapping(tma_client *client, uint64_t start, size_t size, struct mapping *ret)
{
	FILE *file = fopen("/proc/self/maps", "re");
	int r = file ? read_maps(file, start, size, ret) : -errno;

	if (file)
		fclose(file);
	if (r < 0)
		return client_fail(
		    client, r == -ENOMEM ? STATUS_NO_MEMORY : STATUS_UNSUPPORTED,
		    "ptr: /proc/self/maps, which says what is mapped there, cannot be read (%s)",
		    strerror(-r));
	if (ret->end == 0)
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "ptr: nothing is mapped at %#" PRIx64 " in this process", start);
	if (!ret->is_shared)
		return client_fail(
		    client, STATUS_UNSUPPORTED,
		    "ptr: the memory at %#" PRIx64
		    " is private to this process; use tma_region_create_kind, or map a memfd or a "
		    "file of /dev/shm with MAP_SHARED",
		    start);
	if (ret->end - start < size)
		return client_fail(client, STATUS_OUT_OF_RANGE,
		                   "size: %zu bytes from ptr exceed its mapping of a file, which has %" PRIu64
		                   " more, to address %#" PRIx64,
		                   size, ret->end - start, ret->end);
	return 0;
}

/* ---- Descriptors ------------------------------------------------------------------------------------ */

/* What became of the search for a descriptor. */
struct search {
	const struct mapping *mapping;
	int mode;    /* O_RDWR or O_RDONLY */
	int fd;      /* -1: none yet */
	int refused; /* errno with which the file could not be opened; 0: it was not found */
};

static bool is_mapped_file(const struct mapping *mapping, const struct stat *st)
{
	return S_ISREG(st->st_mode) && st->st_ino == mapping->inode && major(st->st_dev) == mapping->major &&
	       minor(st->st_dev) == mapping->minor;
}

static bool try_path(struct search *search, const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0 || !is_mapped_file(search->mapping, &st))
		return false;
	search->fd = open(path, search->mode | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (search->fd < 0) {
		search->refused = errno;
		return false;
	}
	if (fstat(search->fd, &st) == 0 && is_mapped_file(search->mapping, &st))
		return true;
	close(search->fd);
	search->fd = -1;
	return false;
}

/* One that cannot be opened once more does as it is. */
static bool try_descriptor(struct search *search, int fd)
{
	struct stat st;
	char path[64];
	int mode;

	if (fstat(fd, &st) < 0 || !is_mapped_file(search->mapping, &st))
		return false;
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (try_path(search, path))
		return true;
	mode = fcntl(fd, F_GETFL);
	if (mode >= 0 && !(mode & O_PATH) &&
	    ((mode & O_ACCMODE) == O_RDWR || (mode & O_ACCMODE) == search->mode))
		search->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return search->fd >= 0;
}

static bool try_descriptors(struct search *search)
{
	DIR *directory = opendir("/proc/self/fd");
	const struct dirent *entry;
	bool is_found = false;

	if (!directory && errno != ENOENT)
		search->refused = errno;
	while (directory && !is_found && (entry = readdir(directory))) {
		char *end;
		const long fd = strtol(entry->d_name, &end, 10);

		is_found = end != entry->d_name && !*end && try_descriptor(search, (int)fd);
	}
	if (directory)
		closedir(directory);
	return is_found;
}

static bool try_all(struct search *search, int mode)
{
	const struct mapping *mapping = search->mapping;
	char path[64];

	search->mode = mode;
	snprintf(path, sizeof path, "/proc/self/map_files/%" PRIx64 "-%" PRIx64, mapping->start,
	         mapping->first_end);
	return try_path(search, path) || try_path(search, mapping->path) || try_descriptors(search);
}

static bool is_in_memory(const struct statfs *fs)
{
	return fs->f_type == TMPFS_MAGIC || fs->f_type == HUGETLBFS_MAGIC;
}

static int fail_on_disk(tma_client *client, const struct mapping *mapping)
{
	return client_fail(
	    client, STATUS_INVALID_ARGUMENT,
	    "ptr: %s, which is mapped there, is not a file in memory (a memfd, or a file of tmpfs "
	    "or hugetlbfs)",
	    mapping->path);
}

/* Some file systems tell another device than /proc/self/maps does. Those in memory do not. */
static int fail_search(tma_client *client, const struct search *search)
{
	const struct mapping *mapping = search->mapping;
	const bool is_full = search->refused == EMFILE || search->refused == ENFILE;
	struct statfs fs;

	if (search->refused)
		return client_fail(client, is_full ? STATUS_NO_MEMORY : STATUS_PERMISSION,
		                   "ptr: %s, which is mapped there, cannot be opened for %s (%s)",
		                   mapping->path, search->mode == O_RDWR ? "writing" : "reading",
		                   strerror(search->refused));
	if (statfs(mapping->path, &fs) == 0 && !is_in_memory(&fs))
		return fail_on_disk(client, mapping);
	return client_fail(
	    client, STATUS_UNSUPPORTED,
	    "ptr: the process has no descriptor of the file that is mapped there, and its path, "
	    "\"%s\", does not lead to it",
	    mapping->path);
}

/* For writing only if the mapping is, so that the service may not do what the caller does not. */
static int open_file(tma_client *client, const struct mapping *mapping, bool is_writable)
{
	struct search search = { .mapping = mapping, .fd = -1 };
	struct statfs fs;
	bool is_found = mapping->is_written && try_all(&search, O_RDWR);

	if (!is_found && !is_writable)
		is_found = try_all(&search, O_RDONLY);
	if (!is_found)
		return fail_search(client, &search);
	if (fstatfs(search.fd, &fs) == 0 && is_in_memory(&fs))
		return search.fd;
	close(search.fd);
	return fail_on_disk(client, mapping);
}
