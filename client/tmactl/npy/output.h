/* SPDX-License-Identifier: Apache-2.0 */
/* An output file that appears complete or not at all: it is written without a name, or under a temporary
 * one in the same directory, and renamed over the destination when it is complete. An output can also be a
 * stream, which keeps what has been sent. */
#ifndef CLIENT_TMACTL_NPY_OUTPUT_H
#define CLIENT_TMACTL_NPY_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/tmactl/stop.h"
#include "client/tmactl/tmactl.h"

/* What becomes of a file that is there. */
enum output_clobber { OUTPUT_REPLACE, OUTPUT_NO_CLOBBER };

/* Where a complete file is. */
enum output_place {
	OUTPUT_ASIDE,     /* it has its temporary name, or none */
	OUTPUT_NEW,       /* in the destination's place, where nothing was */
	OUTPUT_EXCHANGED, /* there, and what it replaces has the temporary name */
	OUTPUT_FINAL,     /* there, and cannot be taken back */
};

struct output {
	int fd;           /* -1: none, a stream's bytes go out as they come */
	const char *path; /* as the user named it */
	char *target;     /* what is replaced: the path, symbolic links followed */
	char *temporary;  /* its name now; NULL: none */
	enum output_clobber clobber;
	mode_t mode;
	uid_t uid; /* of what is replaced; -1: nothing is */
	gid_t gid;
	uint64_t bytes; /* of the whole file, for the errors */
	enum output_place place;

	bool is_stream; /* standard output, a pipe, a device: bytes go out in their order */
	int stream;     /* its descriptor; -1: none */
	uint64_t sent;
	char *held; /* the first bytes, which go out with those that follow: not before there is anything to
	               send */
	size_t held_bytes;
	const struct stop *stop; /* NULL: nobody asks */
};

/* Opens one for a file of so many bytes; path: a file's, a FIFO's or device's, or - for standard output,
 * after which standard output is standard error, for all that is said. Refuses a destination that is there
 * and none of these, or a terminal. Both path and stop stay the caller's. */
int output_open(struct output *ret, const char *path, uint64_t bytes, enum output_clobber clobber,
                const struct stop *stop, struct failure *f);

/* Makes a place for all of a stream, which is written anywhere then and sent when it is whole. Memory is
 * taken from *memory as by spool_open. */
int output_spool(struct output *output, uint64_t *memory, struct failure *f);

/* Writes all of data at offset. May be called by several threads; of a stream without a place, by one at a
 * time and in order. */
int output_write(struct output *output, const void *data, size_t len, uint64_t offset, struct failure *f);

/* Puts the file in the destination's place. What is replaced leaves its mode, and its owner and group as far
 * as the caller may give them. */
int output_commit(struct output *output, struct failure *f);

/* The same for files that belong together: none of them is in its place unless all are, but for what fails
 * while they are put there one after the other and the file system cannot exchange two names. A stream is
 * sent before any file appears, and stays sent if that fails. */
int output_commit_all(struct output *const *outputs, size_t n, struct failure *f);

/* Returns whether a path is that of standard output. */
bool output_is_standard(const char *path);

/* Whether two paths are those of one output. */
bool output_is_one(const char *a, const char *b);

/* Gives up what was not committed, and frees. Zero-initialised with fd and stream -1 is allowed. */
void output_deinit(struct output *output);

#endif
