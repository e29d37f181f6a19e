/* One item of MessagePack: its header, as frame.c (where does a message end) and unpack.c (what does it hold)
 * read it. */
#ifndef PROTO_ITEM_H
#define PROTO_ITEM_H

#include <stdbool.h>
#include <stdint.h>

enum item_shape {
	ITEM_SCALAR, /* size: bytes of the payload */
	ITEM_BLOB,   /* size: bytes of the length; so for the containers */
	ITEM_ARRAY,
	ITEM_MAP,
	ITEM_EXT,
	ITEM_RESERVED,
};

struct item {
	enum item_shape shape;
	uint64_t header; /* bytes, the type's own included */
	uint64_t length; /* payload bytes, array elements or map pairs */
};

/* Of the types 0xc0 to 0xdf; the other types hold their value or length in the type byte. */
struct item_wide {
	uint8_t shape;
	uint8_t size;
};

extern const struct item_wide item_wide[32];

/* Of len bytes. */
static inline uint64_t item_big_endian(const uint8_t *data, uint64_t len)
{
	uint64_t value = 0;

	for (uint64_t i = 0; i < len; i++)
		value = value << 8 | data[i];
	return value;
}

/* Reads the header at data, which has len > 0 bytes; false when not all of it has arrived: length is 0 then.
 */
static inline bool item_read(const uint8_t *data, uint64_t len, struct item *ret)
{
	uint8_t type = data[0];

	*ret = (struct item){ .shape = ITEM_SCALAR, .header = 1 };
	if (type < 0x80 || type >= 0xe0)
		return true;
	if (type < 0xc0) {
		ret->shape = type < 0x90 ? ITEM_MAP : type < 0xa0 ? ITEM_ARRAY : ITEM_BLOB;
		ret->length = type & (type < 0xa0 ? 0x0f : 0x1f);
		return true;
	}
	ret->shape = (enum item_shape)item_wide[type - 0xc0].shape;
	if (ret->shape == ITEM_SCALAR) {
		ret->length = item_wide[type - 0xc0].size;
		return true;
	}
	ret->header = 1 + item_wide[type - 0xc0].size;
	if (len < ret->header)
		return false;
	ret->length = item_big_endian(data + 1, ret->header - 1);
	return true;
}

#endif
