/* From bytes to objects. msgpack-c's own unpacker can be fed in pieces and costs several times as much; here
 * the frame scan has found the message's end, and the whole message lies in memory. What it says of lengths
 * is believed only as far as there are bytes: each element has one at least. */
#include "unpack.h"

#include <string.h>

#include "frame.h"
#include "item.h"
#include "status.h"

struct unpacker {
	msgpack_zone *zone;
	const uint8_t *at;
	const uint8_t *end;
};

static int unpack_object(struct unpacker *u, int depth, msgpack_object *ret);
static int unpack_scalar(const uint8_t *data, uint64_t len, msgpack_object *ret);
static int unpack_array(struct unpacker *u, uint64_t n, int depth, msgpack_object *ret);
static int unpack_map(struct unpacker *u, uint64_t n, int depth, msgpack_object *ret);

int unpack_message(msgpack_zone *zone, const uint8_t *data, size_t len, msgpack_object *ret)
{
	struct unpacker u = { zone, data, data + len };
	int r = unpack_object(&u, FRAME_MAX_DEPTH, ret);

	return !r && u.at != u.end ? STATUS_PROTOCOL : r;
}

/* depth: containers that may still be entered. */
static int unpack_object(struct unpacker *u, int depth, msgpack_object *ret)
{
	uint64_t left = (uint64_t)(u->end - u->at);
	const uint8_t *data = u->at;
	struct item item;

	if (left == 0)
		return STATUS_PROTOCOL;
	if (*data < 0x80) { /* most numbers are small */
		u->at++;
		*ret = (msgpack_object){ .type = MSGPACK_OBJECT_POSITIVE_INTEGER, .via.u64 = *data };
		return 0;
	}
	if (!item_read(data, left, &item))
		return STATUS_PROTOCOL;
	u->at += item.header;
	left -= item.header;
	if (item.shape == ITEM_ARRAY || item.shape == ITEM_MAP) {
		if (item.length > left || depth == 0)
			return STATUS_PROTOCOL;
		return item.shape == ITEM_ARRAY ? unpack_array(u, item.length, depth - 1, ret)
		                                : unpack_map(u, item.length, depth - 1, ret);
	}
	if (item.shape > ITEM_BLOB || item.length > left)
		return STATUS_PROTOCOL;
	u->at += item.length;
	if (item.shape == ITEM_SCALAR)
		return unpack_scalar(data, item.length, ret);
	/* The two lie alike in an object. */
	ret->type = *data >= 0xc4 && *data <= 0xc6 ? MSGPACK_OBJECT_BIN : MSGPACK_OBJECT_STR;
	ret->via.str = (msgpack_object_str){ (uint32_t)item.length, (const char *)data + item.header };
	return 0;
}

static void set_integer(msgpack_object *ret, int64_t value)
{
	ret->type = value < 0 ? MSGPACK_OBJECT_NEGATIVE_INTEGER : MSGPACK_OBJECT_POSITIVE_INTEGER;
	ret->via.i64 = value;
}

/* len: of the payload after the type. */
static int unpack_scalar(const uint8_t *data, uint64_t len, msgpack_object *ret)
{
	uint64_t bits = item_big_endian(data + 1, len);
	uint8_t type = *data;
	uint32_t low = (uint32_t)bits;
	float single;

	if (type < 0x80 || type >= 0xe0) {
		set_integer(ret, (int8_t)type);
	} else if (type == 0xc0) {
		ret->type = MSGPACK_OBJECT_NIL;
	} else if (type <= 0xc3) {
		ret->type = MSGPACK_OBJECT_BOOLEAN;
		ret->via.boolean = type == 0xc3;
	} else if (type == 0xca) {
		memcpy(&single, &low, sizeof single);
		ret->type = MSGPACK_OBJECT_FLOAT32;
		ret->via.f64 = (double)single;
	} else if (type == 0xcb) {
		ret->type = MSGPACK_OBJECT_FLOAT64;
		memcpy(&ret->via.f64, &bits, sizeof bits);
	} else if (type <= 0xcf) {
		ret->type = MSGPACK_OBJECT_POSITIVE_INTEGER;
		ret->via.u64 = bits;
	} else {
		/* Sign-extended from its size. */
		set_integer(ret, (int64_t)(bits << (64 - 8 * len)) >> (64 - 8 * len));
	}
	return 0;
}

static int unpack_array(struct unpacker *u, uint64_t n, int depth, msgpack_object *ret)
{
	msgpack_object *items = n ? msgpack_zone_malloc(u->zone, n * sizeof *items) : NULL;
	int r = 0;

	if (n && !items)
		return STATUS_NO_MEMORY;
	ret->type = MSGPACK_OBJECT_ARRAY;
	ret->via.array = (msgpack_object_array){ (uint32_t)n, items };
	for (uint64_t i = 0; i < n && !r; i++)
		r = unpack_object(u, depth, &items[i]);
	return r;
}

static int unpack_map(struct unpacker *u, uint64_t n, int depth, msgpack_object *ret)
{
	msgpack_object_kv *pairs = n ? msgpack_zone_malloc(u->zone, n * sizeof *pairs) : NULL;
	int r = 0;

	if (n && !pairs)
		return STATUS_NO_MEMORY;
	ret->type = MSGPACK_OBJECT_MAP;
	ret->via.map = (msgpack_object_map){ (uint32_t)n, pairs };
	for (uint64_t i = 0; i < n && !r; i++) {
		r = unpack_object(u, depth, &pairs[i].key);
		r = r ? r : unpack_object(u, depth, &pairs[i].val);
	}
	return r;
}
