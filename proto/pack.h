/* Items of MessagePack at the end of a buffer, each in its shortest form. 0, or STATUS_NO_MEMORY. */
#ifndef PROTO_PACK_H
#define PROTO_PACK_H

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "buffer.h"

#define PACK_HEAD_MAX 9 /* bytes of a type and of the greatest length or number behind it */

static inline int pack_byte(struct buffer *b, uint8_t byte)
{
	uint8_t *room = buffer_reserve(b, 1);

	if (!room)
		return STATUS_NO_MEMORY;
	*room = byte;
	buffer_commit(b, 1);
	return 0;
}

/* A type and the size low bytes of value, size 1 to 8; then room for more bytes, which the caller writes. */
static inline uint8_t *pack_head(struct buffer *b, uint8_t type, uint64_t value, unsigned size, size_t more)
{
	uint64_t bytes = htobe64(value << (64 - 8 * size));
	uint8_t *room = buffer_reserve(b, PACK_HEAD_MAX + more);

	if (!room)
		return NULL;
	*room = type;
	memcpy(room + 1, &bytes, sizeof bytes);
	buffer_commit(b, 1 + size);
	return room + 1 + size;
}

static inline int pack_wide(struct buffer *b, uint8_t type, uint64_t value, unsigned size)
{
	return pack_head(b, type, value, size, 0) ? 0 : STATUS_NO_MEMORY;
}

static inline int pack_nil(struct buffer *b)
{
	return pack_byte(b, 0xc0);
}

static inline int pack_bool(struct buffer *b, bool value)
{
	return pack_byte(b, value ? 0xc3 : 0xc2);
}

static inline int pack_uint(struct buffer *b, uint64_t value)
{
	if (value < 0x80)
		return pack_byte(b, (uint8_t)value);
	if (value <= UINT8_MAX)
		return pack_wide(b, 0xcc, value, 1);
	if (value <= UINT16_MAX)
		return pack_wide(b, 0xcd, value, 2);
	if (value <= UINT32_MAX)
		return pack_wide(b, 0xce, value, 4);
	return pack_wide(b, 0xcf, value, 8);
}

static inline int pack_int(struct buffer *b, int64_t value)
{
	if (value >= 0)
		return pack_uint(b, (uint64_t)value);
	if (value >= -32)
		return pack_byte(b, (uint8_t)value);
	if (value >= INT8_MIN)
		return pack_wide(b, 0xd0, (uint64_t)value, 1);
	if (value >= INT16_MIN)
		return pack_wide(b, 0xd1, (uint64_t)value, 2);
	if (value >= INT32_MIN)
		return pack_wide(b, 0xd2, (uint64_t)value, 4);
	return pack_wide(b, 0xd3, (uint64_t)value, 8);
}

static inline int pack_double(struct buffer *b, double value)
{
	uint64_t bits;

	memcpy(&bits, &value, sizeof bits);
	return pack_wide(b, 0xcb, bits, 8);
}

/* n: below 2^32, as all that follow. */
static inline int pack_array(struct buffer *b, size_t n)
{
	if (n < 16)
		return pack_byte(b, (uint8_t)(0x90 | n));
	return n <= UINT16_MAX ? pack_wide(b, 0xdc, n, 2) : pack_wide(b, 0xdd, n, 4);
}

static inline int pack_map(struct buffer *b, size_t n)
{
	if (n < 16)
		return pack_byte(b, (uint8_t)(0x80 | n));
	return n <= UINT16_MAX ? pack_wide(b, 0xde, n, 2) : pack_wide(b, 0xdf, n, 4);
}

/* The three types for lengths of 1, 2 and 4 bytes follow each other. */
static inline int pack_blob(struct buffer *b, uint8_t type, const char *data, size_t len)
{
	unsigned log = len <= UINT8_MAX ? 0 : len <= UINT16_MAX ? 1 : 2;
	uint8_t *room = pack_head(b, (uint8_t)(type + log), len, 1u << log, len);

	if (!room)
		return STATUS_NO_MEMORY;
	if (len)
		memcpy(room, data, len);
	buffer_commit(b, len);
	return 0;
}

static inline int pack_str(struct buffer *b, const char *data, size_t len)
{
	uint8_t *room;

	if (len >= 32)
		return pack_blob(b, 0xd9, data, len);
	room = buffer_reserve(b, 1 + len);
	if (!room)
		return STATUS_NO_MEMORY;
	*room = (uint8_t)(0xa0 | len);
	if (len)
		memcpy(room + 1, data, len);
	buffer_commit(b, 1 + len);
	return 0;
}

static inline int pack_bin(struct buffer *b, const char *data, size_t len)
{
	return pack_blob(b, 0xc4, data, len);
}

#endif
