/* A flight's desk: memory in which the host lays out lists for a kernel, and the same amount on the device.
 *
 * Opened when a flight first needs it, and kept. What lies on it is the flight's until the flight has ended.
 */
#ifndef KERNELS_CUDA_DESK_H
#define KERNELS_CUDA_DESK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver.h"

/* More than a message's lists can be, tables of layers included. */
#define DESK_BYTES (256u << 10)

struct desk {
	char *host;      /* pinned; NULL: not open */
	uint64_t device; /* memory on the device, of the same layout */
	size_t used;
	uint64_t counted[2]; /* what the counters were when last looked at */
};

/* Empties it; opens it first if need be. */
int desk_begin(struct desk *desk, struct error *err);

/* Frees it; a zeroed one is allowed. */
void desk_close(struct desk *desk);

/* Room for so many bytes, at a multiple of 16; NULL: it is full. */
void *desk_take(struct desk *desk, size_t bytes);

/* What is on it so far can be read by kernels that follow on the stream: the address where the desk then
 * begins for them. */
int desk_send(struct desk *desk, CUstream stream, uint64_t *ret, struct error *err);

static inline uint64_t desk_place(const struct desk *desk, uint64_t base, const void *p)
{
	return base + (uint64_t)((const char *)p - desk->host);
}

/* Two uint64_t on the device that kernels add to. */
static inline uint64_t desk_counters(const struct desk *desk)
{
	return desk->device;
}

/* Brings them back, after what is on the stream. */
int desk_fetch_counters(struct desk *desk, CUstream stream, struct error *err);

/* Once that has happened: what has been added since the last time. */
void desk_count(struct desk *desk, uint64_t ret[2]);

#endif
