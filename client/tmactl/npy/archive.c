/* SPDX-License-Identifier: Apache-2.0 */
/* Parses as much of the ZIP format as is needed to find an array: the end record and its 64-bit form, the
 * central directory, and the local header of a member. Archives are untrusted, so every length and offset is
 * checked. */
#include "archive.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define END_BYTES           22
#define END64_BYTES         56
#define LOCATOR_BYTES       20
#define ENTRY_BYTES         46
#define LOCAL_BYTES         30
#define MAX_COMMENT         65535
#define MAX_DIRECTORY_BYTES (64 * 1024 * 1024)
#define STORED              0
#define DEFLATED            8
#define IS_ENCRYPTED        0x0041 /* flags of an entry that is encrypted in any way */

struct archive {
	int fd;
	uint64_t bytes; /* size of the file */
	const char *path;
	uint8_t *directory; /* owned copy of the central directory */
	uint64_t directory_bytes;
	uint64_t base; /* byte of the file from which the archive's offsets count */
	struct failure *f;
};

/* An entry of the directory. name points into the directory and has no terminator. */
struct entry {
	struct archive_member member; /* member.offset is that of the local header, counted from base */
	const char *name;
	size_t name_len;
	unsigned method;
	bool is_encrypted;
};

static uint64_t number(const uint8_t *at, int bytes)
{
	uint64_t n = 0;

	for (int i = bytes - 1; i >= 0; i--)
		n = n << 8 | at[i];
	return n;
}

static bool is_signed(const uint8_t *at, const char *letters)
{
	return at[0] == 'P' && at[1] == 'K' && at[2] == letters[0] && at[3] == letters[1];
}

static int damaged(const struct archive *a, const char *what)
{
	return fail(a->f, EXIT_FAILED, "%s: damaged archive: %s", a->path, what);
}

static int read_at(const struct archive *a, void *data, size_t len, uint64_t offset)
{
	ssize_t n;

	if (offset > a->bytes || len > a->bytes - offset)
		return damaged(a, "it is truncated");
	for (size_t at = 0; at < len; at += (size_t)n) {
		n = pread(a->fd, (char *)data + at, len - at, (off_t)(offset + at));
		if (n < 0 && errno == EINTR)
			n = 0;
		else if (n < 0)
			return fail(a->f, EXIT_FAILED, "%s: cannot be read (%s)", a->path, strerror(errno));
		else if (n == 0)
			return damaged(a, "it is truncated");
	}
	return 0;
}

bool archive_is_one(int fd)
{
	uint8_t b[4];

	return pread(fd, b, sizeof b, 0) == sizeof b && (is_signed(b, "\3\4") || is_signed(b, "\5\6"));
}

static bool ends_in_npz(const char *path, size_t len)
{
	return len > 4 && !strncasecmp(path + len - 4, ".npz", 4);
}

/* Returns whether the first len bytes of path name a ZIP file that exists. */
static bool is_archive_at(const char *path, size_t len)
{
	char *file = strndup(path, len);
	int fd = file ? open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) : -1;
	bool is = fd >= 0 && archive_is_one(fd);

	if (fd >= 0)
		close(fd);
	free(file);
	return is;
}

static bool is_directory(const char *path, size_t len)
{
	char *directory = strndup(path, len);
	struct stat st;
	bool is = directory && !stat(directory, &st) && S_ISDIR(st.st_mode);

	free(directory);
	return is;
}

bool archive_is_named(const char *path)
{
	const char *slash = strrchr(path, '/');
	const char *colon =
	    slash && slash > path && is_directory(path, (size_t)(slash - path)) ? slash : path;

	if (ends_in_npz(path, strlen(path)))
		return true;
	while ((colon = strchr(colon, ':'))) {
		size_t len = (size_t)(colon++ - path);

		if (ends_in_npz(path, len) || is_archive_at(path, len))
			return true;
	}
	return false;
}

/* ---- The directory ---------------------------------------------------------------------------------- */

/* Returns the offset of the end record in the last bytes of the file, or -1 if there is none. */
static int find_end(const uint8_t *tail, int len)
{
	for (int at = len - END_BYTES; at >= 0; at--)
		if (is_signed(tail + at, "\5\6") && at + END_BYTES + (int)number(tail + at + 20, 2) <= len)
			return at;
	return -1;
}

/* Reads offset and size of the directory from the 64-bit end record, for an archive whose 32-bit end record,
 * at *end, cannot hold them. Sets *end to the offset of the 64-bit record, which directly follows the
 * directory. */
static int read_end64(const struct archive *a, uint64_t *end, uint64_t *ret_offset, uint64_t *ret_bytes)
{
	uint8_t b[LOCATOR_BYTES + END64_BYTES];

	if (*end < sizeof b)
		return damaged(a, "the end of its directory is missing");
	*end -= sizeof b;
	if (read_at(a, b, sizeof b, *end) < 0)
		return -1;
	if (!is_signed(b, "\6\6") || !is_signed(b + END64_BYTES, "\6\7"))
		return damaged(a, "the end of its directory is missing");
	*ret_bytes = number(b + 40, 8);
	*ret_offset = number(b + 48, 8);
	return 0;
}

static int read_directory(struct archive *a)
{
	uint64_t len = a->bytes < END_BYTES + MAX_COMMENT ? a->bytes : END_BYTES + MAX_COMMENT;
	uint8_t *tail = malloc(len + 1);
	uint64_t offset = 0, end = 0;
	int at = -1;
	int rc;

	if (!tail)
		return fail(a->f, EXIT_FAILED, "out of memory");
	rc = read_at(a, tail, len, a->bytes - len);
	if (!rc && (at = find_end(tail, (int)len)) < 0)
		rc = damaged(a, "it has no directory");
	if (!rc) {
		end = a->bytes - len + (uint64_t)at;
		a->directory_bytes = number(tail + at + 12, 4);
		offset = number(tail + at + 16, 4);
		if (offset == UINT32_MAX || a->directory_bytes == UINT32_MAX)
			rc = read_end64(a, &end, &offset, &a->directory_bytes);
	}
	free(tail);
	if (!rc && a->directory_bytes > MAX_DIRECTORY_BYTES)
		rc = damaged(a, "its directory has more than 64 MiB");
	if (!rc && (a->directory_bytes > end || offset > end - a->directory_bytes))
		rc = damaged(a, "it is truncated");
	if (rc < 0)
		return rc;
	a->directory = malloc(a->directory_bytes + 1);
	if (!a->directory)
		return fail(a->f, EXIT_FAILED, "out of memory");
	end -= a->directory_bytes;
	a->base = end - offset;
	return read_at(a, a->directory, a->directory_bytes, end);
}

/* Replaces those of a member's sizes and offset that do not fit into 32 bits, and are therefore UINT32_MAX.
 * The real values are in an extra field with ID 1, in the order of fields[]. Returns false if one of them is
 * missing. */
static bool read_wide(const uint8_t *extra, size_t len, struct archive_member *m)
{
	uint64_t *const fields[] = { &m->bytes, &m->packed, &m->offset };
	uint64_t *missing[3];
	size_t n = 0, found = 0;

	for (size_t i = 0; i < 3; i++)
		if (*fields[i] == UINT32_MAX)
			missing[n++] = fields[i];
	while (found < n && len >= 4) {
		size_t id = number(extra, 2), size = number(extra + 2, 2);

		if (size > len - 4)
			return false;
		for (size_t at = 0; id == 1 && found < n && at + 8 <= size; at += 8)
			*missing[found++] = number(extra + 4 + at, 8);
		extra += 4 + size;
		len -= 4 + size;
	}
	return found == n;
}

/* Reads the entry at byte *at of the directory and moves *at past it. Returns 1, 0 at the end of the
 * directory, or -1 with a->f set. */
static int next_entry(const struct archive *a, uint64_t *at, struct entry *ret)
{
	const uint8_t *b = a->directory + *at;
	size_t name, extra, comment;

	if (*at == a->directory_bytes)
		return 0;
	if (a->directory_bytes - *at < ENTRY_BYTES || !is_signed(b, "\1\2"))
		return damaged(a, "its directory has an entry that is none");
	name = number(b + 28, 2);
	extra = number(b + 30, 2);
	comment = number(b + 32, 2);
	if (a->directory_bytes - *at - ENTRY_BYTES < name + extra + comment)
		return damaged(a, "its directory has an entry that is none");
	*ret = (struct entry){
		.member = { .crc = (uint32_t)number(b + 16, 4),
		            .packed = number(b + 20, 4),
		            .bytes = number(b + 24, 4),
		            .offset = number(b + 42, 4) },
		.name = (const char *)b + ENTRY_BYTES,
		.name_len = name,
		.method = (unsigned)number(b + 10, 2),
		.is_encrypted = number(b + 8, 2) & IS_ENCRYPTED,
	};
	if (!read_wide(b + ENTRY_BYTES + name, extra, &ret->member))
		return damaged(a, "the 64-bit sizes of a member are missing");
	*at += ENTRY_BYTES + name + extra + comment;
	return 1;
}

/* ---- A member --------------------------------------------------------------------------------------- */

/* Returns the length of an entry's name without ".npy" at its end, which numpy.load leaves out too. */
static size_t bare_len(const struct entry *e)
{
	return e->name_len > 4 && !memcmp(e->name + e->name_len - 4, ".npy", 4) ? e->name_len - 4
	                                                                        : e->name_len;
}

/* Returns 2 if the entry has exactly this name, 1 if it has this name followed by ".npy", or 0 otherwise. */
static int is_named(const struct entry *e, const char *name)
{
	size_t len = strlen(name);

	if ((len != e->name_len && len != bare_len(e)) || memcmp(name, e->name, len) != 0)
		return 0;
	return len == e->name_len ? 2 : 1;
}

/* Writes the names of the arrays as "a, b, c", with "..." at the end if they do not fit. */
static void list_names(const struct archive *a, char *text, size_t size)
{
	size_t len = 0;
	struct entry e;

	*text = '\0';
	for (uint64_t at = 0; next_entry(a, &at, &e) > 0;) {
		if (len + bare_len(&e) + 8 > size) {
			snprintf(text + len, size - len, ", ...");
			return;
		}
		len += (size_t)snprintf(text + len, size - len, "%s%.*s", len ? ", " : "", (int)bare_len(&e),
		                        e.name);
	}
	if (!len)
		snprintf(text, size, "nothing");
}

static int refuse_name(const struct archive *a, const char *name)
{
	char names[400];

	list_names(a, names, sizeof names);
	if (name && *name)
		return fail(a->f, EXIT_FAILED, "%s: there is no %s in this archive; it has %s", a->path, name,
		            names);
	return fail(a->f, EXIT_FAILED, "%s: an archive; name an array in it (%s:NAME); it has %s", a->path,
	            a->path, names);
}

static int bad_member(const struct archive *a, const char *name, const char *what)
{
	return fail(a->f, EXIT_FAILED, "%s: damaged archive: %s: %s", a->path, name, what);
}

/* Refuses a member whose local header has another name than the directory. The name in the header is at
 * `offset`. */
static int check_name(const struct archive *a, const struct entry *e, const char *name, uint64_t offset,
                      size_t len)
{
	char *own = malloc(len + 1);
	int rc;

	if (!own)
		return fail(a->f, EXIT_FAILED, "out of memory");
	rc = read_at(a, own, len, offset);
	if (!rc && (len != e->name_len || memcmp(own, e->name, len) != 0))
		rc = bad_member(a, name, "the header before its data names another member");
	free(own);
	return rc;
}

/* Finds the data of a member and checks that it can be read. Sizes and checksum are those of the directory:
 * in the local header they are zeros if the archive was written to a pipe. */
static int open_member(const struct archive *a, const struct entry *e, const char *name,
                       struct archive_member *ret)
{
	uint8_t b[LOCAL_BYTES];
	size_t name_len;

	if (e->is_encrypted)
		return fail(a->f, EXIT_FAILED, "%s: %s is encrypted; unpack it first", a->path, name);
	if (e->method != STORED && e->method != DEFLATED)
		return fail(a->f, EXIT_FAILED,
		            "%s: %s is compressed by method %u; numpy.savez stores or deflates", a->path,
		            name, e->method);
	*ret = e->member;
	ret->is_deflated = e->method == DEFLATED;
	if (ret->offset > a->bytes - a->base)
		return damaged(a, "it is truncated");
	ret->offset += a->base;
	if (read_at(a, b, sizeof b, ret->offset) < 0)
		return -1;
	if (!is_signed(b, "\3\4"))
		return bad_member(a, name, "it is not where its directory says");
	name_len = number(b + 26, 2);
	if (check_name(a, e, name, ret->offset + LOCAL_BYTES, name_len) < 0)
		return -1;
	ret->offset += LOCAL_BYTES + name_len + number(b + 28, 2);
	if (ret->offset > a->bytes || ret->packed > a->bytes - ret->offset)
		return bad_member(a, name, "it is larger than its data in the file");
	if (!ret->is_deflated && ret->packed != ret->bytes)
		return bad_member(a, name, "it is stored, but the directory has two sizes for it");
	return 0;
}

int archive_find(struct archive_member *ret, int fd, uint64_t file_bytes, const char *path, const char *name,
                 struct failure *f)
{
	struct archive a = { .fd = fd, .bytes = file_bytes, .path = path, .f = f };
	struct entry e, found = { 0 };
	int rc = read_directory(&a);
	int best = 0;

	if (!rc) {
		for (uint64_t at = 0; (rc = next_entry(&a, &at, &e)) > 0;) {
			int how = name && *name ? is_named(&e, name) : 0;

			if (how && how >= best) {
				best = how;
				found = e;
			}
		}
	}
	if (!rc)
		rc = best ? open_member(&a, &found, name, ret) : refuse_name(&a, name);
	free(a.directory);
	return rc;
}
