/* SPDX-License-Identifier: Apache-2.0 */
/* A growable run of bytes with a cap: bytes are appended at the end and consumed from the front.
 * Zero-initialised it is empty; nothing is allocated before the first append. */
#ifndef PROTO_WIRE_BUFFER_H
#define PROTO_WIRE_BUFFER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "proto/status.h"

struct buffer {
	uint8_t *data;
	size_t start; /* first byte not yet consumed */
	size_t end;   /* one past the last byte */
	size_t cap;
};

void buffer_deinit(struct buffer *b);

static inline size_t buffer_len(const struct buffer *b)
{
	return b->end - b->start;
}

/* Room for len more bytes, moving or growing as needed; NULL when out of memory. The pointer is good
 * until the next call; buffer_commit says how many of the bytes were written. */
uint8_t *buffer_grow(struct buffer *b, size_t len); /* where there is not enough */

static inline uint8_t *buffer_reserve(struct buffer *b, size_t len)
{
	return len <= b->cap - b->end && b->data ? b->data + b->end : buffer_grow(b, len);
}

static inline void buffer_commit(struct buffer *b, size_t len)
{
	b->end += len;
}

/* 0 or STATUS_NO_MEMORY. */
static inline int buffer_append(struct buffer *b, const void *data, size_t len)
{
	uint8_t *room = buffer_reserve(b, len);

	if (!room)
		return STATUS_NO_MEMORY;
	if (len)
		memcpy(room, data, len);
	b->end += len;
	return 0;
}

/* Drops len bytes from the front; memory above keep bytes is given back when the buffer gets empty. */
void buffer_consume(struct buffer *b, size_t len, size_t keep);

/* Forgets what was appended after the buffer had len bytes. */
void buffer_truncate(struct buffer *b, size_t len);

#endif
