/* A file that comes into being at once or not at all: written without a name, or under a temporary one in
 * the same directory, and renamed over the destination when it is whole. */
#ifndef CLIENT_OUTPUT_H
#define CLIENT_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tmactl.h"

struct output {
	int fd;
	const char *path; /* as the user named it */
	char *target;     /* what is replaced: the path, symbolic links followed */
	char *temporary;  /* its name now; NULL: none */
	mode_t mode;
	uint64_t bytes; /* of the whole file, for the errors */
};

/* Opens one for a file of so many bytes. Refuses a destination that is there and no regular file. */
int output_open(struct output *ret, const char *path, uint64_t bytes, struct failure *f);

/* Writes all of data at offset. May be called by several threads. */
int output_write(const struct output *output, const void *data, size_t len, uint64_t offset,
                 struct failure *f);

/* Puts the file in the destination's place. */
int output_commit(struct output *output, struct failure *f);

/* Gives up what was not committed, and frees. Zero-initialised with fd -1 is allowed. */
void output_deinit(struct output *output);

#endif
