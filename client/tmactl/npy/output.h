/* SPDX-License-Identifier: Apache-2.0 */
/* An output file that appears complete or not at all: it is written without a name, or under a temporary name
 * in the same directory, and renamed over the destination once it is complete. An output can also be a
 * stream, that is, standard output, a pipe or a device; what was sent to one cannot be taken back. */
#ifndef CLIENT_TMACTL_NPY_OUTPUT_H
#define CLIENT_TMACTL_NPY_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/tmactl/stop.h"
#include "client/tmactl/tmactl.h"

/* Says what happens to a file that exists at the destination: it is replaced, or output_open() fails. */
enum output_clobber { OUTPUT_REPLACE, OUTPUT_NO_CLOBBER };

/* The place of a complete file. */
enum output_place {
	OUTPUT_ASIDE,     /* it has its temporary name, or none */
	OUTPUT_NEW,       /* it is at the destination, where no file was */
	OUTPUT_EXCHANGED, /* it is at the destination, and the file it replaced has the temporary name */
	OUTPUT_FINAL,     /* it is at the destination and cannot be taken back */
};

struct output {
	int fd;           /* the file, or the spool of a stream; -1: a stream whose bytes are sent at once */
	const char *path; /* path as the user gave it */
	char *target;     /* owned path of the file to replace, with symbolic links followed */
	char *temporary;  /* owned temporary name; NULL: the file has none */
	enum output_clobber clobber;
	mode_t mode;    /* mode of the complete file */
	uid_t uid;      /* owner of the file to replace; -1: there is none */
	gid_t gid;      /* group of that file; -1: there is none */
	uint64_t bytes; /* size of the complete file */
	enum output_place place;

	bool is_stream; /* standard output, a pipe or a device, whose bytes are sent in order */
	int stream;     /* descriptor of the stream; -1: none */
	uint64_t sent;  /* bytes sent to the stream */
	/* Owned copy of the first bytes written, the header, which are sent only with the next ones or at
	 * the end, so that a command that fails before it has data sends nothing; NULL: none are held. */
	char *held;
	size_t held_bytes;
	const struct stop *stop; /* not owned; NULL: nothing asks it to stop */
};

/* Opens an output that will have `bytes` bytes. path names a file, a FIFO or a device, or is - for standard
 * output; everything else that the command prints then goes to standard error. Refuses a terminal, and an
 * existing destination that is neither a regular file nor one of these. path and stop must outlive the
 * output. */
int output_open(struct output *ret, const char *path, uint64_t bytes, enum output_clobber clobber,
                const struct stop *stop, struct failure *f);

/* Gives a stream a spool, so that it can be written in any order; it is sent once it is complete. May
 * subtract from *memory, as spool_open() does. */
int output_spool(struct output *output, uint64_t *memory, struct failure *f);

/* Writes all of data at offset. May be called by several threads at a time, except for a stream without a
 * spool, which is written in order. */
int output_write(struct output *output, const void *data, size_t len, uint64_t offset, struct failure *f);

/* Puts the complete file at its destination. The file keeps the mode of the one that it replaces, and that
 * one's owner and group as far as the user may set them. */
int output_commit(struct output *output, struct failure *f);

/* Does the same for outputs that belong together. If putting one of the files in place fails, those before it
 * are taken back, unless the file system cannot exchange two names. Streams are sent before any file appears,
 * and cannot be taken back. */
int output_commit_all(struct output *const *outputs, size_t n, struct failure *f);

/* Returns whether a path stands for standard output. */
bool output_is_standard(const char *path);

/* Returns whether two paths stand for the same output. */
bool output_is_one(const char *a, const char *b);

/* Discards what was not committed, and frees the output. An output that was never opened may be passed too:
 * fd and stream must then be -1, and all else 0. */
void output_deinit(struct output *output);

#endif
