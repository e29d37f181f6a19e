/* SPDX-License-Identifier: Apache-2.0 */
/* Outputs without positions: standard output, FIFOs, devices. For output.c only. */
#ifndef CLIENT_TMACTL_NPY_OUTPUT_STREAM_H
#define CLIENT_TMACTL_NPY_OUTPUT_STREAM_H

#include "output.h"

/* Whether a path is that of one, and of standard output. */
bool output_is_stream(const char *path);
bool output_is_standard(const char *path);

int output_open_stream(struct output *output, struct failure *f);

/* The next bytes. */
int output_send(struct output *output, const void *data, size_t len, struct failure *f);

/* Sends what was kept, and closes. */
int output_end_stream(struct output *output, struct failure *f);

#endif
