/* SPDX-License-Identifier: Apache-2.0 */
/* msgpack-c's packer at the end of a buffer, one item per call. Returns 0, or STATUS_NO_MEMORY with part
 * of the item appended. */
#ifndef PROTO_WIRE_PACK_H
#define PROTO_WIRE_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <msgpack.h>

#include "buffer.h"

static inline int pack_write(void *b, const char *data, size_t len)
{
	return buffer_append(b, data, len);
}

/* A packer is its two pointers: one made for each call lets the compiler see through the callback. */
static inline msgpack_packer pack_to(struct buffer *b)
{
	return (msgpack_packer){ .data = b, .callback = pack_write };
}

static inline int pack_nil(struct buffer *b)
{
	msgpack_packer p = pack_to(b);

	return msgpack_pack_nil(&p);
}

static inline int pack_bool(struct buffer *b, bool value)
{
	msgpack_packer p = pack_to(b);

	return value ? msgpack_pack_true(&p) : msgpack_pack_false(&p);
}

static inline int pack_uint(struct buffer *b, uint64_t value)
{
	msgpack_packer p = pack_to(b);

	return msgpack_pack_uint64(&p, value);
}

static inline int pack_int(struct buffer *b, int64_t value)
{
	msgpack_packer p = pack_to(b);

	return msgpack_pack_int64(&p, value);
}

static inline int pack_double(struct buffer *b, double value)
{
	msgpack_packer p = pack_to(b);

	return msgpack_pack_double(&p, value);
}

static inline int pack_array(struct buffer *b, size_t n)
{
	msgpack_packer p = pack_to(b);

	return msgpack_pack_array(&p, n);
}

static inline int pack_map(struct buffer *b, size_t n)
{
	msgpack_packer p = pack_to(b);

	return msgpack_pack_map(&p, n);
}

static inline int pack_str(struct buffer *b, const char *data, size_t len)
{
	msgpack_packer p = pack_to(b);
	int r = msgpack_pack_str(&p, len);

	return r ? r : msgpack_pack_str_body(&p, data, len);
}

static inline int pack_bin(struct buffer *b, const char *data, size_t len)
{
	msgpack_packer p = pack_to(b);
	int r = msgpack_pack_bin(&p, len);

	return r ? r : msgpack_pack_bin_body(&p, data, len);
}

#endif
