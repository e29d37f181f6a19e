/* SPDX-License-Identifier: Apache-2.0 */
/* Outputs without positions: standard output, FIFOs, devices. This is between output.c and output_stream.c
 * only. */
#ifndef CLIENT_TMACTL_NPY_OUTPUT_STREAM_H
#define CLIENT_TMACTL_NPY_OUTPUT_STREAM_H

#include "output.h"

/* Returns whether a path is that of a stream. */
bool output_is_stream(const char *path);

/* Fails because there is no room for all of it; error and why are what room_reserve told. */
int output_no_room(const struct output *output, int error, const char *why, struct failure *f);

int output_open_stream(struct output *output, struct failure *f);

/* The next bytes. */
int output_send(struct output *output, const void *data, size_t len, struct failure *f);

/* Sends what was kept, and closes. */
int output_end_stream(struct output *output, struct failure *f);

#endif
