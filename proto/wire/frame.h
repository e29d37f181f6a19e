/* SPDX-License-Identifier: Apache-2.0 */
/* Messages in a stream of bytes: buffers that collect them, and a scan that finds where a MessagePack message
 * ends.
 *
 * The scan is iterative, allocates nothing, and enforces limits before msgpack-c sees a byte, because
 * msgpack-c reserves as much as an array's header declares. It can be resumed: a message costs the same
 * whether it arrives at once or byte by byte.
 */
#ifndef PROTO_WIRE_FRAME_H
#define PROTO_WIRE_FRAME_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "proto/status.h"

/* ---- Buffers ------------------------------------------------------------------------------------------- */

/* A growable sequence of bytes, which are appended at the end and consumed at the front. A zero-initialized
 * buffer is empty; nothing is allocated before the first append. */
struct buffer {
	uint8_t *data;
	size_t start; /* index of the first byte that was not consumed */
	size_t end;   /* index past the last byte */
	size_t cap;
};

void buffer_deinit(struct buffer *b);

static inline size_t buffer_len(const struct buffer *b)
{
	return b->end - b->start;
}

/* Returns a pointer to space for len more bytes, or NULL if out of memory. The pointer is valid until the
 * next call; buffer_commit tells how many of the bytes were written. Use buffer_reserve; buffer_grow is its
 * slow path. */
uint8_t *buffer_grow(struct buffer *b, size_t len);

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

/* Removes len bytes from the front. If the buffer is then empty and its capacity exceeds keep bytes, its
 * memory is freed. */
void buffer_consume(struct buffer *b, size_t len, size_t keep);

/* Truncates the buffer to its first len bytes. */
void buffer_truncate(struct buffer *b, size_t len);

/* ---- Frames -------------------------------------------------------------------------------------------- */

#define FRAME_MAX_DEPTH 16

struct frame_limits {
	size_t bytes; /* maximum number of bytes of a message */
	/* maximum nesting depth of containers, counting the outermost one; at most FRAME_MAX_DEPTH */
	uint32_t depth;
	/* maximum number of elements that the headers of all arrays and maps of a message declare together; a
	 * pair of a map counts as 2 */
	uint64_t elements;
};

/* Limits of the requests that a server accepts and of the replies that a client accepts. */
extern const struct frame_limits frame_request_limits; /* 64 KiB, depth 8, 4096 elements */
extern const struct frame_limits frame_reply_limits;   /* 1 MiB, depth 8, 65536 elements */

/* State of a scan. It is at the start of a message if it is zero-initialized, or if pos, elements and depth
 * are 0. */
struct frame_scan {
	size_t pos;        /* bytes of the message that were scanned */
	uint64_t elements; /* elements declared so far */
	uint32_t depth;
	uint64_t left[FRAME_MAX_DEPTH]; /* items that each open container still lacks */
};

enum frame_result {
	FRAME_COMPLETE, /* The first *ret_len bytes are a message, and the scan is reset for the next one. */
	FRAME_PARTIAL,  /* All len bytes belong to a message that has not ended. */
	FRAME_BROKEN,   /* The message exceeds a limit, or has a reserved or ext type; err says which. */
};

/* Continues a scan. data[len] are all bytes of the current message that have arrived, including those that
 * earlier calls saw. */
enum frame_result frame_scan(struct frame_scan *scan, const uint8_t *data, size_t len,
                             const struct frame_limits *limits, size_t *ret_len, struct error *err);

#endif
