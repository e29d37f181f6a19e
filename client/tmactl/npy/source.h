/* SPDX-License-Identifier: Apache-2.0 */
/* A source of an array's bytes: a file, an array of an archive, standard input or another pipe. A regular
 * file and an array that is stored in an archive without compression can be read at any position and by
 * several threads at a time. All other sources are sequential: their bytes can be read once, in order, by one
 * thread at a time. */
#ifndef CLIENT_TMACTL_NPY_SOURCE_H
#define CLIENT_TMACTL_NPY_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/tmactl/stop.h"
#include "client/tmactl/tmactl.h"

#define SOURCE_UNKNOWN UINT64_MAX

struct inflater;

struct source {
	const char *path; /* not owned; for messages */
	int fd;
	int64_t base;       /* offset in fd of byte 0 of the .npy file; negative in a spool */
	uint64_t bytes;     /* size of the .npy file; SOURCE_UNKNOWN: it ends where a pipe ends */
	bool is_sequential; /* bytes can only be read in order, and once */
	bool is_input;      /* standard input, which is left at the end of the array for the next reader */
	uint64_t at;        /* next byte of the .npy file that a sequential source returns */
	struct inflater *inflater; /* reads a deflated member; NULL: the bytes are not compressed */
	bool has_crc;              /* a stored member of an archive, which source_check() has to check */
	uint32_t crc;              /* CRC-32 of the .npy file, if it is a member of an archive */
	const struct stop *stop;   /* not owned; NULL: nothing asks it to stop */
};

/* Opens a source. path is a file, ARCHIVE:NAME, a FIFO or a device, or - for standard input. path and stop
 * must outlive the source. The caller closes *ret with source_close() also if it fails. */
int source_open(struct source *ret, const char *path, const struct stop *stop, struct failure *f);
void source_close(struct source *source);

/* Checks a stored member of an archive against its checksum, by reading it once before any of it is used. A
 * deflated member is checked while it is read, up to source_finish(); other sources have no checksum. */
int source_check(const struct source *source, struct failure *f);

/* Reads all len bytes from byte `offset` of the .npy file on. A sequential source skips the bytes before
 * them, and cannot go back. */
int source_read(struct source *source, void *data, size_t len, uint64_t offset, struct failure *f);

/* Copies the following bytes, up to byte `end`, to a spool, so that they can be read at any position. May
 * subtract from *memory, as spool_open() does. */
int source_spool(struct source *source, uint64_t end, uint64_t *memory, struct failure *f);

/* Ends the reading: fails if a sequential source ends before byte `end` or does not match its checksum, and
 * leaves standard input at `end`. */
int source_finish(struct source *source, uint64_t end, struct failure *f);

#endif
