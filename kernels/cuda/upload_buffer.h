/* SPDX-License-Identifier: Apache-2.0 */
/* An upload buffer: memory in which the host lays out lists for a kernel, and the same amount on the device.
 *
 * Each in-flight job has one, opened when it is first needed and then kept. What lies in it stays until the
 * in-flight job has ended.
 */
#ifndef KERNELS_CUDA_UPLOAD_BUFFER_H
#define KERNELS_CUDA_UPLOAD_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver.h"

/* More than a message's lists can be, tables of layers included. */
#define UPLOAD_BUFFER_BYTES (256u << 10)

struct upload_buffer {
	char *host;      /* pinned; NULL: not open */
	uint64_t device; /* memory on the device, of the same layout */
	size_t used;
	size_t first;        /* what is sent begins there */
	uint64_t counted[2]; /* what the counters were when last looked at */
};

/* Empties it; opens it first if need be. */
int upload_buffer_begin(struct upload_buffer *upload_buffer, struct error *err);

/* Frees it; a zeroed one is allowed. */
void upload_buffer_close(struct upload_buffer *upload_buffer);

/* Room for so many bytes, at a multiple of 16; NULL: it is full. */
void *upload_buffer_take(struct upload_buffer *upload_buffer, size_t bytes);

/* Room on the device alone, before anything else is taken: its address; 0: it is full. */
uint64_t upload_buffer_take_device(struct upload_buffer *upload_buffer, size_t bytes);

/* What is on it so far can be read by kernels that follow on the stream: the address where the upload buffer
 * then begins for them. */
int upload_buffer_send(struct upload_buffer *upload_buffer, CUstream stream, uint64_t *ret,
                       struct error *err);

static inline uint64_t upload_buffer_place(const struct upload_buffer *upload_buffer, uint64_t base,
                                           const void *p)
{
	return base + (uint64_t)((const char *)p - upload_buffer->host);
}

/* Two uint64_t on the device that kernels add to. */
static inline uint64_t upload_buffer_counters(const struct upload_buffer *upload_buffer)
{
	return upload_buffer->device;
}

/* Brings them back, after what is on the stream. */
int upload_buffer_fetch_counters(struct upload_buffer *upload_buffer, CUstream stream, struct error *err);

/* Once that has happened: what has been added since the last time. */
void upload_buffer_count(struct upload_buffer *upload_buffer, uint64_t ret[2]);

#endif
