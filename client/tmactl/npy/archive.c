/* SPDX-License-Identifier: Apache-2.0 */
/* As much of ZIP as is needed to find arrays: the end record, its 64-bit form, the directory, and a
 * member's own header. */
#include "archive.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

struct archive {
	int fd;
	uint64_t bytes;
	const char *path;
	uint8_t *directory;
	uint64_t directory_bytes;
	struct failure *f;
};

struct entry {
	struct archive_member member; /* offset: of its own header */
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

/* ---- The directory ---------------------------------------------------------------------------------- */

/* The end record's place in the last bytes; -1: there is none. */
static int find_end(const uint8_t *tail, int len)
{
	for (int at = len - END_BYTES; at >= 0; at--)
		if (is_signed(tail + at, "\5\6") && at + END_BYTES + (int)number(tail + at + 20, 2) <= len)
			return at;
	return -1;
}

/* Where the directory is, when the end record has no room for that. */
static int read_end64(const struct archive *a, uint64_t end, uint64_t *ret_offset, uint64_t *ret_bytes)
{
	uint8_t b[END64_BYTES];

	if (end < LOCATOR_BYTES || read_at(a, b, LOCATOR_BYTES, end - LOCATOR_BYTES) < 0 ||
	    !is_signed(b, "\6\7"))
		return damaged(a, "the end of its directory is missing");
	if (read_at(a, b, sizeof b, number(b + 8, 8)) < 0)
		return -1;
	if (!is_signed(b, "\6\6"))
		return damaged(a, "the end of its directory is missing");
	*ret_bytes = number(b + 40, 8);
	*ret_offset = number(b + 48, 8);
	return 0;
}

static int read_directory(struct archive *a)
{
	uint64_t len = a->bytes < END_BYTES + MAX_COMMENT ? a->bytes : END_BYTES + MAX_COMMENT;
	uint8_t *tail = malloc(len + 1);
	uint64_t offset = 0;
	int end = -1;
	int rc;

	if (!tail)
		return fail(a->f, EXIT_FAILED, "out of memory");
	rc = read_at(a, tail, len, a->bytes - len);
	if (!rc && (end = find_end(tail, (int)len)) < 0)
		rc = damaged(a, "it has no directory");
	if (!rc) {
		a->directory_bytes = number(tail + end + 12, 4);
		offset = number(tail + end + 16, 4);
		if (offset == UINT32_MAX || a->directory_bytes == UINT32_MAX)
			rc = read_end64(a, a->bytes - len + (uint64_t)end, &offset, &a->directory_bytes);
	}
	free(tail);
	if (!rc && a->directory_bytes > MAX_DIRECTORY_BYTES)
		rc = damaged(a, "its directory has more than 64 MiB");
	if (rc < 0)
		return rc;
	a->directory = malloc(a->directory_bytes + 1);
	if (!a->directory)
		return fail(a->f, EXIT_FAILED, "out of memory");
	return read_at(a, a->directory, a->directory_bytes, offset);
}

/* Sizes and offset that do not fit into 32 bits stand in a field of their own, in this order. */
static void read_wide(const uint8_t *extra, size_t len, struct archive_member *m)
{
	uint64_t *const wide[] = { &m->bytes, &m->packed, &m->offset };

	while (len >= 4) {
		size_t id = number(extra, 2), size = number(extra + 2, 2);
		const uint8_t *at = extra + 4;

		if (size > len - 4)
			return;
		for (int i = 0; id == 1 && i < 3; i++) {
			if (*wide[i] != UINT32_MAX || at + 8 > extra + 4 + size)
				continue;
			*wide[i] = number(at, 8);
			at += 8;
		}
		extra += 4 + size;
		len -= 4 + size;
	}
}

/* The entry at *at, which moves past it; false: there is none. */
static bool next_entry(const struct archive *a, uint64_t *at, struct entry *ret)
{
	const uint8_t *b = a->directory + *at;
	size_t name, extra, comment;

	if (a->directory_bytes - *at < ENTRY_BYTES || !is_signed(b, "\1\2"))
		return false;
	name = number(b + 28, 2);
	extra = number(b + 30, 2);
	comment = number(b + 32, 2);
	if (a->directory_bytes - *at - ENTRY_BYTES < name + extra + comment)
		return false;
	*ret = (struct entry){
		.member = { .crc = (uint32_t)number(b + 16, 4),
		            .packed = number(b + 20, 4),
		            .bytes = number(b + 24, 4),
		            .offset = number(b + 42, 4) },
		.name = (const char *)b + ENTRY_BYTES,
		.name_len = name,
		.method = (unsigned)number(b + 10, 2),
		.is_encrypted = b[8] & 1,
	};
	read_wide(b + ENTRY_BYTES + name, extra, &ret->member);
	*at += ENTRY_BYTES + name + extra + comment;
	return true;
}

/* ---- A member --------------------------------------------------------------------------------------- */

/* Of an array's name the end is left out, as numpy.load does. */
static size_t bare_len(const struct entry *e)
{
	return e->name_len > 4 && !memcmp(e->name + e->name_len - 4, ".npy", 4) ? e->name_len - 4
	                                                                        : e->name_len;
}

static bool is_named(const struct entry *e, const char *name)
{
	size_t len = strlen(name);

	return (len == e->name_len || len == bare_len(e)) && !memcmp(name, e->name, len);
}

/* "a, b, c", cut when there are many. */
static void list_names(const struct archive *a, char *text, size_t size)
{
	size_t len = 0;
	struct entry e;

	*text = '\0';
	for (uint64_t at = 0; next_entry(a, &at, &e);) {
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

/* From its header in the directory to its bytes. */
static int open_member(const struct archive *a, const struct entry *e, const char *name,
                       struct archive_member *ret)
{
	uint8_t b[LOCAL_BYTES];

	if (e->is_encrypted)
		return fail(a->f, EXIT_FAILED, "%s: %s is encrypted; unpack it first", a->path, name);
	if (e->method != STORED && e->method != DEFLATED)
		return fail(a->f, EXIT_FAILED,
		            "%s: %s is compressed by method %u; numpy.savez stores or deflates", a->path,
		            name, e->method);
	*ret = e->member;
	ret->is_deflated = e->method == DEFLATED;
	if (read_at(a, b, sizeof b, ret->offset) < 0)
		return -1;
	if (!is_signed(b, "\3\4"))
		return damaged(a, "a member is not where its directory says");
	ret->offset += LOCAL_BYTES + number(b + 26, 2) + number(b + 28, 2);
	if (ret->offset > a->bytes || ret->packed > a->bytes - ret->offset ||
	    (!ret->is_deflated && ret->packed != ret->bytes))
		return damaged(a, "a member is larger than its data in the file");
	return 0;
}

int archive_find(struct archive_member *ret, int fd, uint64_t file_bytes, const char *path, const char *name,
                 struct failure *f)
{
	struct archive a = { .fd = fd, .bytes = file_bytes, .path = path, .f = f };
	bool found = false;
	struct entry e;
	int rc = read_directory(&a);

	for (uint64_t at = 0; !rc && name && *name && !found && next_entry(&a, &at, &e);)
		found = is_named(&e, name);
	if (!rc)
		rc = found ? open_member(&a, &e, name, ret) : refuse_name(&a, name);
	free(a.directory);
	return rc;
}
