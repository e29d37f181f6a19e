/* SPDX-License-Identifier: Apache-2.0 */
/* Registers host memory by its pointer: finds the file that is mapped at a range of addresses, and a
 * descriptor of that file.
 *
 * /proc/self/maps identifies the file by its device and inode. The file is then opened in one of three ways:
 * through its entry in /proc/self/map_files, which takes a capability; by its path, if that still leads to
 * the same file; or through a descriptor of it that the process has open. A path is opened only after stat
 * has shown that it leads to that file, and that the file is a regular one.
 */
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
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

/* A line of /proc/self/maps, or several lines that show one contiguous range of a file. */
struct mapping {
	uint64_t start;
	uint64_t first_end; /* end of the first line's range */
	uint64_t end;
	uint64_t offset; /* position of start in the file */
	bool is_shared;
	bool is_writable; /* Every line is writable. */
	bool is_written;  /* At least one line is writable. */
	struct file_identity file;
	char path[PATH_MAX];
};

/* struct procmap_query and PROCMAP_QUERY of <linux/fs.h>, which has them since Linux 6.11. */
struct mapping_query {
	uint64_t size;
	uint64_t query_flags;
	uint64_t address; /* the address whose mapping is asked for */
	uint64_t start;
	uint64_t end;
	uint64_t flags;
	uint64_t page_size;
	uint64_t offset;
	uint64_t inode;
	uint32_t major;
	uint32_t minor;
	uint32_t name_size; /* 0: the name is not asked for */
	uint32_t build_id_size;
	uint64_t name;
	uint64_t build_id;
};
#define MAPPING_QUERY  _IOWR('f', 17, struct mapping_query)
#define MAPPING_SHARED 0x08

static int find_mapping(tma_client *client, uint64_t start, size_t size, struct mapping *ret);
static int share_own(tma_client *client, uint64_t start, size_t size, unsigned flags, tma_region **ret);
static int open_file(tma_client *client, const struct mapping *mapping, bool is_writable);

int region_share_here(tma_client *client, enum region_kind kind, const void *ptr, size_t size, unsigned flags,
                      tma_region **ret)
{
	tma_region *region = NULL;
	int rc = region_prepare(client, kind, 0, size, flags, &region);

	if (rc < 0)
		return rc;
	rc = local_register(region, ptr);
	if (rc < 0)
		region_free(region);
	else
		rc = region_keep_range(region, (uintptr_t)ptr);
	if (rc == 0)
		*ret = region;
	return rc;
}

int tma_region_from_host_ptr(tma_client *client, const void *ptr, size_t size, unsigned flags,
                             tma_region **ret)
{
	const uint64_t start = (uintptr_t)ptr;
	const bool is_writable = !(flags & TMA_REGION_READ_ONLY);
	struct mapping *mapping;
	tma_region *region = NULL;
	int rc = client_check_ret(client, ret, "the region goes"), fd = -1;

	if (rc == 0)
		rc = client_check_usable(client);
	if (rc == 0)
		rc = region_check_flags(client, flags);
	if (rc < 0)
		return rc;
	if (size == 0)
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "size: a region has at least 1 byte, not 0");
	if (client->local)
		return region_share_here(client, REGION_KIND_MEMFD, ptr, size, flags, ret);
	rc = share_own(client, start, size, flags, ret);
	if (rc != 0)
		return rc < 0 ? rc : 0;
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
	if (rc == 0) {
		region->file = mapping->file;
		if (client->maps_fd < 0)
			client->maps_fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
		rc = region_keep_range(region, start);
	}
	free(mapping);
	if (rc == 0)
		*ret = region;
	return rc;
}

/* ---- Mappings --------------------------------------------------------------------------------------- */

/* Parses a line of /proc/self/maps. Returns false if it is malformed. Newlines are the only characters of a
 * path that the kernel escapes; a path that contains one is kept in its escaped form, which no longer leads
 * to the file. */
static bool parse(const char *line, struct mapping *ret)
{
	char access[5];
	int at = 0;

	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 " %n", &ret->start,
	           &ret->end, access, &ret->offset, &ret->file.major, &ret->file.minor, &ret->file.inode,
	           &at) != 7)
		return false;
	ret->first_end = ret->end;
	ret->is_writable = ret->is_written = access[1] == 'w';
	ret->is_shared = access[3] == 's';
	snprintf(ret->path, sizeof ret->path, "%.*s", (int)strcspn(line + at, "\n"), line + at);
	return true;
}

static bool is_same_file(const struct file_identity *a, const struct file_identity *b)
{
	return a->major == b->major && a->minor == b->minor && a->inode == b->inode;
}

/* Returns whether next continues mapping, both in memory and in the file. */
static bool continues(const struct mapping *mapping, const struct mapping *next)
{
	return next->is_shared && next->start == mapping->end && is_same_file(&next->file, &mapping->file) &&
	       next->offset == mapping->offset + (mapping->end - mapping->start);
}

/* Finds the mapping that contains the byte at start and extends it by those that continue it, until it covers
 * size bytes. Sets ret->end to 0 if nothing is mapped at start. Returns 0 or a negative errno. */
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
	if (r == -EMFILE || r == -ENFILE)
		return client_fail_descriptor(client, "ptr", -r);
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

/* ---- Afterwards ------------------------------------------------------------------------------------- */

/* Returns whether the mapping shows, at address `at`, the bytes of the file that the region has there. */
static bool shows(const struct mapping *mapping, const tma_region *region, uint64_t at)
{
	return mapping->is_shared && is_same_file(&mapping->file, &region->file) &&
	       mapping->offset + (at - mapping->start) == region->offset + (at - region->address);
}

/* Asks the kernel for the mapping that contains the address, without its path. Returns 0 or a negative
 * errno. */
static int query(int maps_fd, uint64_t address, struct mapping *ret)
{
	struct mapping_query query = { .size = sizeof query, .address = address };

	if (maps_fd < 0)
		return -EBADF;
	if (ioctl(maps_fd, MAPPING_QUERY, &query) < 0)
		return -errno;
	ret->start = query.start;
	ret->end = query.end;
	ret->offset = query.offset;
	ret->is_shared = query.flags & MAPPING_SHARED;
	ret->file = (struct file_identity){ query.major, query.minor, query.inode };
	return 0;
}

/* Answers the same question from the text of /proc/self/maps, which takes longer, for kernels without
 * PROCMAP_QUERY. */
static bool is_in_text(const tma_region *region, uint64_t start, size_t size, struct mapping *mapping)
{
	FILE *file = fopen("/proc/self/maps", "re");
	int r = file ? read_maps(file, start, size, mapping) : -errno;

	if (file)
		fclose(file);
	return r == 0 && mapping->end > start && mapping->end - start >= size &&
	       shows(mapping, region, start);
}

bool region_is_mapped(const tma_region *region, uint64_t start, size_t size)
{
	struct mapping mapping;
	int r = 0;

	if (region->file.inode == 0 || (region->kept && atomic_load(region->kept)))
		return true;
	for (uint64_t at = start; r == 0 && at - start < size; at = mapping.end) {
		r = query(region->client->maps_fd, at, &mapping);
		if (r == -ENOENT || (r == 0 && !shows(&mapping, region, at)))
			return false;
	}
	return r == 0 || is_in_text(region, start, size, &mapping);
}

/* ---- Memory of the library's own ---------------------------------------------------------------------- */

/* Handles memory that the library itself has made. From now on the library does not seal it. If it is sealed
 * already, or the service may seal it, it can only be used as the region that it is already, and only as a
 * whole: then returns 1, with a further handle of that region in *ret. Returns 0 if the memory is to be
 * registered like any other, or the last error. */
static int share_own(tma_client *client, uint64_t start, size_t size, unsigned flags, tma_region **ret)
{
	const struct range *range = range_set_find(&client->writable, start, size);
	tma_region *region = range ? range->owner : NULL;

	if (!region)
		return 0;
	region_share(region);
	if (!region_is_sealed(region))
		return 0;
	if (region->address != start || region->size != size || flags & TMA_REGION_READ_ONLY)
		return client_fail(
		    client, STATUS_PERMISSION,
		    "ptr: the memory at %#" PRIx64
		    " was made by this client, which has sealed it since it is in use; use its "
		    "region (tma_region_find)",
		    start);
	region->handles++;
	*ret = region;
	return 1;
}

/* ---- Descriptors ------------------------------------------------------------------------------------ */

/* State of the search for a descriptor. */
struct search {
	const struct mapping *mapping;
	int mode;    /* O_RDWR or O_RDONLY */
	int fd;      /* the descriptor; -1: none found yet */
	int refused; /* errno of the last attempt to open the file; 0: no attempt was refused */
};

static bool is_mapped_file(const struct mapping *mapping, const struct stat *st)
{
	return S_ISREG(st->st_mode) && st->st_ino == mapping->file.inode &&
	       major(st->st_dev) == mapping->file.major && minor(st->st_dev) == mapping->file.minor;
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

/* Reopens the file behind the descriptor, or duplicates the descriptor if that fails and its mode
 * suffices. */
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

/* Reports why no descriptor was found. On some file systems stat reports another device than /proc/self/maps,
 * but not on those in memory. */
static int fail_search(tma_client *client, const struct search *search)
{
	const struct mapping *mapping = search->mapping;
	struct statfs fs;

	if (search->refused == EMFILE || search->refused == ENFILE)
		return client_fail_descriptor(client, "ptr", search->refused);
	if (search->refused)
		return client_fail(
		    client, STATUS_PERMISSION, "ptr: %s, which is mapped there, cannot be opened for %s (%s)",
		    mapping->path, search->mode == O_RDWR ? "writing" : "reading", strerror(search->refused));
	if (statfs(mapping->path, &fs) == 0 && !is_in_memory(&fs))
		return fail_on_disk(client, mapping);
	return client_fail(
	    client, STATUS_UNSUPPORTED,
	    "ptr: the process has no descriptor of the file that is mapped there, and its path, "
	    "\"%s\", does not lead to it",
	    mapping->path);
}

/* Opens the mapped file. Opens it for writing only if the mapping is writable, so that the service cannot do
 * more than the caller. Returns a descriptor or the last error. */
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
