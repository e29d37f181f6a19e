/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes headers independently of proto/wire/frame.c, which is under test. */
#include "item.h"

#include <string.h>

#define DEPTH 16

static uint64_t big_endian(const uint8_t *data, size_t n)
{
	uint64_t value = 0;

	while (n--)
		value = value << 8 | *data++;
	return value;
}

/* Decodes type, body and n of the first item; body and end count from its start. Returns false if it is
 * incomplete or an ext. */
static bool read_header(const uint8_t *data, size_t len, struct item *ret)
{
	/* Bytes of the numbers from 0xca on. */
	static const uint8_t number_sizes[] = { 4, 8, 1, 2, 4, 8, 1, 2, 4, 8 };
	uint8_t type = len ? data[0] : 0xc1;
	size_t size = 0, value = 0;
	uint64_t n = 0;

	if (type < 0x80 || type >= 0xe0) {
		ret->type = ITEM_INT;
	} else if (type < 0xc0) {
		ret->type = type < 0x90 ? ITEM_MAP : type < 0xa0 ? ITEM_ARRAY : ITEM_STR;
		n = type & (type < 0xa0 ? 0x0f : 0x1f);
	} else if (type == 0xc0) {
		ret->type = ITEM_NIL;
	} else if (type == 0xc2 || type == 0xc3) {
		ret->type = ITEM_BOOL;
	} else if (type >= 0xca && type <= 0xd3) {
		ret->type = type < 0xcc ? ITEM_FLOAT : ITEM_INT;
		value = number_sizes[type - 0xca];
	} else if (type >= 0xc4 && type <= 0xc6) {
		ret->type = ITEM_BIN;
		size = (size_t)1 << (type - 0xc4);
	} else if (type >= 0xd9 && type <= 0xdb) {
		ret->type = ITEM_STR;
		size = (size_t)1 << (type - 0xd9);
	} else if (type >= 0xdc) {
		ret->type = type < 0xde ? ITEM_ARRAY : ITEM_MAP;
		size = type & 1 ? 4 : 2;
	} else {
		return false;
	}
	if (len < 1 + size)
		return false;
	if (size)
		n = big_endian(data + 1, size);
	if (ret->type == ITEM_STR || ret->type == ITEM_BIN)
		value = n;
	if (ret->type == ITEM_MAP)
		n *= 2;
	if (n > UINT32_MAX || value > len - 1 - size)
		return false;
	ret->n = (uint32_t)n;
	ret->body = 1 + size;
	ret->end = 1 + size + value;
	return true;
}

size_t items_of(const uint8_t *data, size_t len, struct item *ret, size_t max)
{
	uint32_t open[DEPTH], depth = 0, placed[DEPTH];
	size_t at = 0, n = 0;

	do {
		struct item *item = &ret[n];

		if (n == max || !read_header(data + at, len - at, item))
			return 0;
		item->parent = depth ? open[depth - 1] : ITEM_ROOT;
		item->place = depth ? placed[depth - 1]++ : 0;
		item->start = at;
		item->body += at;
		item->end += at;
		at = item->end;
		if (item->type == ITEM_ARRAY || item->type == ITEM_MAP) {
			if (depth == DEPTH)
				return 0;
			placed[depth] = 0;
			open[depth++] = (uint32_t)n;
		}
		n++;
		while (depth && placed[depth - 1] == ret[open[depth - 1]].n)
			ret[open[--depth]].end = at;
	} while (depth);
	return n;
}

static size_t put_header(uint8_t *bytes, uint8_t type, uint32_t count, size_t size)
{
	bytes[0] = type;
	for (size_t i = 0; i < size; i++)
		bytes[1 + i] = (uint8_t)(count >> 8 * (size - 1 - i));
	return 1 + size;
}

size_t item_wide_header(uint8_t bytes[ITEM_HEADER], enum item_type type, uint32_t count)
{
	static const uint8_t types[] = {
		[ITEM_STR] = 0xdb, [ITEM_BIN] = 0xc6, [ITEM_ARRAY] = 0xdd, [ITEM_MAP] = 0xdf
	};

	return put_header(bytes, types[type], count, 4);
}

size_t item_header(uint8_t bytes[ITEM_HEADER], enum item_type type, uint32_t count)
{
	/* Short form: its type and its largest count; then the types with a count of one and of two bytes. */
	static const struct {
		uint8_t fix, most, small, medium;
	} forms[] = { [ITEM_STR] = { 0xa0, 31, 0xd9, 0xda },
		      [ITEM_BIN] = { 0, 0, 0xc4, 0xc5 },
		      [ITEM_ARRAY] = { 0x90, 15, 0, 0xdc },
		      [ITEM_MAP] = { 0x80, 15, 0, 0xde } };

	if (type == ITEM_MAP)
		count /= 2;
	if (forms[type].fix && count <= forms[type].most)
		return put_header(bytes, (uint8_t)(forms[type].fix | count), 0, 0);
	if (forms[type].small && count <= UINT8_MAX)
		return put_header(bytes, forms[type].small, count, 1);
	if (count <= UINT16_MAX)
		return put_header(bytes, forms[type].medium, count, 2);
	return item_wide_header(bytes, type, count);
}

bool item_splice(uint8_t *data, size_t *len, size_t max, size_t at, size_t cut, const uint8_t *with, size_t n)
{
	if (*len - cut + n > max)
		return false;
	memmove(data + at + n, data + at + cut, *len - at - cut);
	if (n)
		memcpy(data + at, with, n);
	*len = *len - cut + n;
	return true;
}
