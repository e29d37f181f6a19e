/* SPDX-License-Identifier: Apache-2.0 */
/* Outputs that cannot seek: standard output, FIFOs, devices. Only output.c and output_stream.c include this
 * header. */
#ifndef CLIENT_TMACTL_NPY_OUTPUT_STREAM_H
#define CLIENT_TMACTL_NPY_OUTPUT_STREAM_H

#include "output.h"

/* Returns whether a path names a stream. */
bool output_is_stream(const char *path);

/* Sets f to the failure that there is no space for the whole output, and returns -1. error and why come from
 * room_reserve(), room_check() or room_failed(). */
int output_no_room(const struct output *output, int error, const char *why, struct failure *f);

/* Opens the stream that output->path names, and checks that output->bytes bytes fit. Points standard output
 * at standard error if the stream is standard output. */
int output_open_stream(struct output *output, struct failure *f);

/* Sends the next bytes. The first ones, the header, are held until the next call. */
int output_send(struct output *output, const void *data, size_t len, struct failure *f);

/* Sends what was spooled or held, and closes the stream. */
int output_end_stream(struct output *output, struct failure *f);

#endif
