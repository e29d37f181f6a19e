/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a snapshot as text: OpenMetrics 1.0, or the text format 0.0.4 of Prometheus. It writes piece by
 * piece into memory of the caller, and allocates nothing. */
#ifndef DAEMON_OBSERVE_EXPOSITION_H
#define DAEMON_OBSERVE_EXPOSITION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct snapshot;

/* A piece of this size always has room for a line. */
#define EXPOSITION_ROOM 2048

struct exposition {
	const struct snapshot *snapshot;
	bool openmetrics;
	uint32_t family;
	uint32_t sample; /* of the family; 0: its header */
};

/* Zero-initialised except for the first two fields, it is at the start. Writes whole lines and returns their
 * bytes; 0 when there are no more. size is at least EXPOSITION_ROOM. */
size_t exposition_write(struct exposition *exposition, char *text, size_t size);

/* The value of Content-Type. */
const char *exposition_type(bool openmetrics);

#endif
