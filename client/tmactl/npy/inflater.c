/* SPDX-License-Identifier: Apache-2.0 */
/* Inflates a member with zlib, and checks its size and checksum. */
#include "inflater.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <zlib.h>

#define IN_BYTES (64 * 1024)

struct inflater {
	z_stream z;
	int fd;
	struct archive_member member; /* offset and packed describe the data that is still to be read */
	uint64_t made;                /* bytes inflated so far */
	uLong crc;                    /* CRC-32 of these */
	bool is_done;                 /* zlib has seen the end of the compressed data */
	uint8_t in[IN_BYTES];         /* compressed data that z reads from */
};

struct inflater *inflater_new(int fd, const struct archive_member *member)
{
	struct inflater *i = calloc(1, sizeof *i);

	if (!i)
		return NULL;
	i->fd = fd;
	i->member = *member;
	i->crc = crc32(0, NULL, 0);
	/* Negative window bits: the data is raw deflate without a zlib header. */
	if (inflateInit2(&i->z, -MAX_WBITS) != Z_OK) {
		free(i);
		return NULL;
	}
	return i;
}

void inflater_free(struct inflater *i)
{
	if (!i)
		return;
	inflateEnd(&i->z);
	free(i);
}

static int feed(struct inflater *i, const char *path, struct failure *f)
{
	size_t len = i->member.packed < IN_BYTES ? (size_t)i->member.packed : IN_BYTES;
	ssize_t n;

	do
		n = pread(i->fd, i->in, len, (off_t)i->member.offset);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return fail(f, EXIT_FAILED, "%s: cannot be read (%s)", path, strerror(errno));
	i->member.offset += (uint64_t)n;
	i->member.packed -= (uint64_t)n;
	i->z.next_in = i->in;
	i->z.avail_in = (uInt)n;
	return 0;
}

static int check(const struct inflater *i, const char *path, struct failure *f)
{
	if (i->made == i->member.bytes && i->crc == i->member.crc)
		return 0;
	return fail(f, EXIT_FAILED, "%s: damaged archive: the array does not match its checksum", path);
}

long inflater_read(struct inflater *i, void *data, size_t len, const char *path, struct failure *f)
{
	size_t room = len < (1u << 30) ? len : 1u << 30;
	size_t made;
	int rc = Z_OK;

	i->z.next_out = data;
	i->z.avail_out = (uInt)room;
	while (!i->is_done && i->z.avail_out && rc == Z_OK) {
		if (!i->z.avail_in && i->member.packed && feed(i, path, f) < 0)
			return -1;
		rc = inflate(&i->z, Z_NO_FLUSH);
		i->is_done = rc == Z_STREAM_END;
	}
	made = room - i->z.avail_out;
	if (rc == Z_MEM_ERROR)
		return fail(f, EXIT_FAILED, "out of memory");
	if (rc != Z_OK && rc != Z_STREAM_END)
		return fail(f, EXIT_FAILED, "%s: damaged archive: the array cannot be decompressed", path);
	i->crc = crc32_z(i->crc, data, made);
	i->made += made;
	if ((i->is_done || i->made > i->member.bytes) && check(i, path, f) < 0)
		return -1;
	return (long)made;
}
