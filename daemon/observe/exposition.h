/* A snapshot as text: OpenMetrics 1.0, or the text format 0.0.4 of Prometheus. Written piece by piece into
 * memory of the caller's; it allocates nothing. */
#ifndef DAEMON_OBSERVE_EXPOSITION_H
#define DAEMON_OBSERVE_EXPOSITION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct snapshot;

/* Room in which a piece always has a line at least. */
#define EXPOSITION_ROOM 2048

struct exposition {
	const struct snapshot *snapshot;
	bool openmetrics;
	uint32_t family;
	uint32_t sample; /* of it, 0: its header */
};

/* Zero-initialised with the first two fields set, it is at the start. Writes whole lines, returns their
 * bytes; 0 when there are no more. size is at least EXPOSITION_ROOM. */
size_t exposition_write(struct exposition *exposition, char *text, size_t size);

/* The value of Content-Type. */
const char *exposition_type(bool openmetrics);

#endif
