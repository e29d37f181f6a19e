/* SPDX-License-Identifier: Apache-2.0 */
/* Where an array's bytes come from: a file, an array of an archive, standard input or another pipe. Bytes
 * of a file can be read at any position and by several threads; others only once, from first to last. */
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
	const char *path; /* for the errors */
	int fd;
	int64_t base;              /* of fd, where byte 0 of the .npy file is; may be before its own */
	uint64_t bytes;            /* of the .npy file; SOURCE_UNKNOWN: until it ends */
	bool is_sequential;        /* only what follows can be read */
	bool is_input;             /* standard input: what follows the array is for whoever reads it next */
	uint64_t at;               /* the next byte of a sequential one */
	struct inflater *inflater; /* NULL: not packed */
	bool has_crc;              /* a stored member of an archive, which no inflater checks */
	uint32_t crc;              /* of the .npy file */
	const struct stop *stop;   /* NULL: nobody asks */
};

/* path: a file, ARCHIVE:NAME, a FIFO or device, or - for standard input. Both it and stop stay the caller's.
 * *ret is to be closed by source_close in any case. */
int source_open(struct source *ret, const char *path, const struct stop *stop, struct failure *f);
void source_close(struct source *source);

/* Checks a stored member of an archive against its checksum, for which it is read once, before any of it is
 * used; a deflated one is checked as it is read, up to source_finish. Others have none. */
int source_check(const struct source *source, struct failure *f);

/* All of data from byte offset of the .npy file on. A sequential source passes over what is before. */
int source_read(struct source *source, void *data, size_t len, uint64_t offset, struct failure *f);

/* Reads what follows, up to byte end, to where it can be read anywhere. Memory is taken from *memory as by
 * spool_open. */
int source_spool(struct source *source, uint64_t end, uint64_t *memory, struct failure *f);

/* All that is wanted has been read: whether the .npy file goes on up to byte end, whole. */
int source_finish(struct source *source, uint64_t end, struct failure *f);

#endif
