/* SPDX-License-Identifier: Apache-2.0 */
/* Grows buffers, and scans for the ends of messages.
 *
 * The live bytes of a buffer are data[start..end). They move only when the space behind them is used up: to
 * the front if no more bytes move than were consumed since the last move, otherwise to a new block. Appending
 * therefore takes amortized constant time. The state of a scan is the number of items that each open
 * container still lacks. scan->pos may be ahead of the bytes that have arrived, within a str, bin or number
 * whose header has arrived.
 */
#include "frame.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

const struct frame_limits frame_request_limits = { .bytes = 64 * 1024, .depth = 8, .elements = 4096 };
const struct frame_limits frame_reply_limits = { .bytes = 1024 * 1024, .depth = 8, .elements = 65536 };

enum item_shape {
	ITEM_SCALAR, /* In read_item's table, `size` is the number of bytes of the payload. */
	ITEM_BLOB,   /* There, `size` is the number of bytes of the length, as it is for containers. */
	ITEM_ARRAY,
	ITEM_MAP,
	ITEM_EXT,
	ITEM_RESERVED,
};

/* Header of an item. */
struct item {
	enum item_shape shape;
	uint64_t header; /* bytes of the header, including the type byte */
	uint64_t length; /* payload bytes, array elements or map pairs */
};

static bool read_item(const uint8_t *data, uint64_t len, struct item *ret);
static int check_item(const struct frame_scan *scan, const struct item *item, uint8_t type,
                      const struct frame_limits *limits, struct error *err);
static void enter_item(struct frame_scan *scan, const struct item *item);
static int refuse_bytes(const struct frame_limits *limits, uint64_t bytes, struct error *err);

/* Skips integers and short strings, of which most messages largely consist, up to the end of the innermost
 * container. Returns false if there were none. An item whose payload extends beyond `end` is left to
 * check_item. */
static bool skip_small(struct frame_scan *scan, const uint8_t *data, size_t end)
{
	size_t pos = scan->pos;
	uint64_t left = scan->depth ? scan->left[scan->depth - 1] : 0;

	for (; left > 0 && pos < end; left--) {
		uint8_t type = data[pos];
		size_t size = 1;

		if (type >= 0xa0 && type < 0xc0)
			size += type & 0x1f;
		else if (type >= 0xcc && type < 0xd4)
			size += (size_t)1 << (type & 3);
		else if (type >= 0x80 && type < 0xe0)
			break;
		if (size > end - pos)
			break;
		pos += size;
	}
	if (pos == scan->pos)
		return false;
	scan->pos = pos;
	scan->left[scan->depth - 1] = left;
	return true;
}

enum frame_result frame_scan(struct frame_scan *scan, const uint8_t *data, size_t len,
                             const struct frame_limits *limits, size_t *ret_len, struct error *err)
{
	while (scan->pos <= len) {
		struct item item;
		bool whole;

		while (scan->depth && scan->left[scan->depth - 1] == 0)
			scan->depth--;
		if (scan->pos && scan->depth == 0) {
			*ret_len = scan->pos;
			scan->pos = 0;
			scan->elements = 0;
			return FRAME_COMPLETE;
		}
		if (scan->pos >= limits->bytes) {
			refuse_bytes(limits, (uint64_t)scan->pos + 1, err);
			return FRAME_BROKEN;
		}
		if (scan->pos == len)
			return FRAME_PARTIAL;
		if (skip_small(scan, data, len < limits->bytes ? len : limits->bytes))
			continue;
		whole = read_item(data + scan->pos, len - scan->pos, &item);
		if (check_item(scan, &item, data[scan->pos], limits, err))
			return FRAME_BROKEN;
		if (!whole)
			return FRAME_PARTIAL;
		enter_item(scan, &item);
	}
	return FRAME_PARTIAL;
}

/* Reads the header at data. Returns false if it has not arrived completely; ret->length is then 0. */
static bool read_item(const uint8_t *data, uint64_t len, struct item *ret)
{
	/* Types 0xc0 to 0xdf. Other types have their value or length in the type byte. */
	static const struct {
		uint8_t shape;
		uint8_t size;
	} wide[32] = {
		[0x00] = { ITEM_SCALAR, 0 },                                /* nil */
		[0x01] = { ITEM_RESERVED, 0 }, [0x02] = { ITEM_SCALAR, 0 }, /* false, true */
		[0x03] = { ITEM_SCALAR, 0 },   [0x04] = { ITEM_BLOB, 1 },   /* bin 8, 16, 32 */
		[0x05] = { ITEM_BLOB, 2 },     [0x06] = { ITEM_BLOB, 4 },
		[0x07] = { ITEM_EXT, 0 }, /* ext 8, 16, 32 */
		[0x08] = { ITEM_EXT, 0 },      [0x09] = { ITEM_EXT, 0 },
		[0x0a] = { ITEM_SCALAR, 4 },                                /* float 32, 64 */
		[0x0b] = { ITEM_SCALAR, 8 },   [0x0c] = { ITEM_SCALAR, 1 }, /* uint 8 to 64 */
		[0x0d] = { ITEM_SCALAR, 2 },   [0x0e] = { ITEM_SCALAR, 4 },
		[0x0f] = { ITEM_SCALAR, 8 },   [0x10] = { ITEM_SCALAR, 1 }, /* int 8 to 64 */
		[0x11] = { ITEM_SCALAR, 2 },   [0x12] = { ITEM_SCALAR, 4 },
		[0x13] = { ITEM_SCALAR, 8 },   [0x14] = { ITEM_EXT, 0 }, /* fixext 1 to 16 */
		[0x15] = { ITEM_EXT, 0 },      [0x16] = { ITEM_EXT, 0 },
		[0x17] = { ITEM_EXT, 0 },      [0x18] = { ITEM_EXT, 0 },
		[0x19] = { ITEM_BLOB, 1 }, /* str 8, 16, 32 */
		[0x1a] = { ITEM_BLOB, 2 },     [0x1b] = { ITEM_BLOB, 4 },
		[0x1c] = { ITEM_ARRAY, 2 },                              /* array 16, 32 */
		[0x1d] = { ITEM_ARRAY, 4 },    [0x1e] = { ITEM_MAP, 2 }, /* map 16, 32 */
		[0x1f] = { ITEM_MAP, 4 },
	};
	uint8_t type = data[0];

	*ret = (struct item){ .shape = ITEM_SCALAR, .header = 1 };
	if (type < 0x80 || type >= 0xe0)
		return true;
	if (type < 0xc0) {
		ret->shape = type < 0x90 ? ITEM_MAP : type < 0xa0 ? ITEM_ARRAY : ITEM_BLOB;
		ret->length = type & (type < 0xa0 ? 0x0f : 0x1f);
		return true;
	}
	ret->shape = wide[type - 0xc0].shape;
	if (ret->shape == ITEM_SCALAR) {
		ret->length = wide[type - 0xc0].size;
		return true;
	}
	ret->header = 1 + wide[type - 0xc0].size;
	if (len < ret->header)
		return false;
	for (uint64_t i = 1; i < ret->header; i++)
		ret->length = ret->length << 8 | data[i];
	return true;
}

static int check_item(const struct frame_scan *scan, const struct item *item, uint8_t type,
                      const struct frame_limits *limits, struct error *err)
{
	bool container = item->shape == ITEM_ARRAY || item->shape == ITEM_MAP;
	uint64_t elements = item->shape == ITEM_MAP ? 2 * item->length : item->length;
	uint64_t end = (uint64_t)scan->pos + item->header + (container ? 0 : item->length);

	if (item->shape == ITEM_RESERVED || item->shape == ITEM_EXT)
		return error_set(err, STATUS_PROTOCOL, "byte %zu of a message is 0x%02x, %s", scan->pos, type,
		                 item->shape == ITEM_EXT ? "an ext type, which the protocol does not use"
		                                         : "which is not MessagePack");
	if (end > limits->bytes)
		return refuse_bytes(limits, end, err);
	if (!container)
		return 0;
	if (scan->depth >= limits->depth)
		return error_set(err, STATUS_PROTOCOL, "a message nests deeper than %u levels",
		                 limits->depth);
	if (elements > limits->elements - scan->elements)
		return error_set(err, STATUS_PROTOCOL, "a message declares %llu elements, at most %llu",
		                 (unsigned long long)(scan->elements + elements),
		                 (unsigned long long)limits->elements);
	return 0;
}

/* Moves past the header and any payload. check_item has made sure that all of it fits. */
static void enter_item(struct frame_scan *scan, const struct item *item)
{
	bool container = item->shape == ITEM_ARRAY || item->shape == ITEM_MAP;
	uint64_t elements = item->shape == ITEM_MAP ? 2 * item->length : item->length;

	scan->pos += (size_t)(item->header + (container ? 0 : item->length));
	if (scan->depth)
		scan->left[scan->depth - 1]--;
	if (container) {
		scan->elements += elements;
		scan->left[scan->depth++] = elements;
	}
}

static int refuse_bytes(const struct frame_limits *limits, uint64_t bytes, struct error *err)
{
	return error_set(err, STATUS_PROTOCOL, "a message is at least %llu bytes long, at most %zu",
	                 (unsigned long long)bytes, limits->bytes);
}

/* ---- Buffers ------------------------------------------------------------------------------------------- */

#define BUFFER_MIN_CAP 1024

void buffer_deinit(struct buffer *b)
{
	if (!b)
		return;
	free(b->data);
	*b = (struct buffer){ 0 };
}

uint8_t *buffer_grow(struct buffer *b, size_t len)
{
	size_t live = buffer_len(b);
	size_t cap = b->cap < BUFFER_MIN_CAP ? BUFFER_MIN_CAP : b->cap;
	size_t need;
	uint8_t *data;

	if (__builtin_add_overflow(live, len, &need) || need > SIZE_MAX / 4)
		return NULL;
	if (b->data && need <= b->cap && live <= b->start) {
		memcpy(b->data, b->data + b->start, live);
		b->start = 0;
		b->end = live;
		return b->data + live;
	}
	while (cap < need || cap < 2 * live)
		cap *= 2;
	data = malloc(cap);
	if (!data)
		return NULL;
	if (live)
		memcpy(data, b->data + b->start, live);
	free(b->data);
	*b = (struct buffer){ .data = data, .end = live, .cap = cap };
	return data + live;
}

void buffer_consume(struct buffer *b, size_t len, size_t keep)
{
	b->start += len;
	if (b->start < b->end)
		return;
	b->start = b->end = 0;
	if (b->cap > keep) {
		free(b->data);
		*b = (struct buffer){ 0 };
	}
}

void buffer_truncate(struct buffer *b, size_t len)
{
	b->end = b->start + len;
}
