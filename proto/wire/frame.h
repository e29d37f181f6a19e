/* SPDX-License-Identifier: Apache-2.0 */
/* Messages as bytes of a stream: buffers, in which they are gathered, and where a MessagePack message ends.
 *
 * The end of a message is found by an iterative scan that allocates nothing and enforces limits before
 * msgpack-c sees a byte (msgpack-c reserves what an array's header declares). The scan is resumable: feeding
 * a message a byte at a time costs the same as feeding it at once.
 */
#ifndef PROTO_WIRE_FRAME_H
#define PROTO_WIRE_FRAME_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "proto/status.h"

/* ---- Buffers ------------------------------------------------------------------------------------------- */

/* A buffer is a growable run of bytes: they are appended at the end and consumed from the front.
 * Zero-initialised it is empty; nothing is allocated before the first append. */
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

/* Returns room for len more bytes, moving or growing as needed; NULL when out of memory. The pointer is good
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

/* Returns 0 or STATUS_NO_MEMORY. */
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

/* ---- Frames -------------------------------------------------------------------------------------------- */

#define FRAME_MAX_DEPTH 16

struct frame_limits {
	size_t bytes;   /* of one message */
	uint32_t depth; /* containers within containers, the outermost counted; <= FRAME_MAX_DEPTH */
	uint64_t
	    elements; /* declared by all array and map headers of a message together (a map's pair is 2) */
};

/* A server accepts requests within the former, and a client replies within the latter. */
extern const struct frame_limits frame_request_limits; /* 64 KiB, depth 8, 4096 elements */
extern const struct frame_limits frame_reply_limits;   /* 1 MiB, depth 8, 65536 elements */

/* A zero-initialised scan is at the start of a message, and so is one whose pos, elements and depth are 0. */
struct frame_scan {
	size_t pos;        /* bytes of this message scanned so far */
	uint64_t elements; /* declared so far */
	uint32_t depth;
	uint64_t left[FRAME_MAX_DEPTH]; /* items missing in each open container */
};

enum frame_result {
	FRAME_COMPLETE, /* *ret_len bytes are one message; the scan is reset for the next */
	FRAME_PARTIAL,  /* all len bytes belong to a message that has not ended */
	FRAME_BROKEN,   /* a limit is passed, a reserved or ext type: err says which, with its value */
};

/* data[len] is everything of the current message that has arrived, including what earlier calls saw. */
enum frame_result frame_scan(struct frame_scan *scan, const uint8_t *data, size_t len,
                             const struct frame_limits *limits, size_t *ret_len, struct error *err);

#endif
