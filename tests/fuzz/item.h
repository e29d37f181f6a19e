/* SPDX-License-Identifier: Apache-2.0 */
/* The items of a MessagePack message, as a flat list, so that one of them can be changed. */
#ifndef TESTS_FUZZ_ITEM_H
#define TESTS_FUZZ_ITEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum item_type { ITEM_NIL, ITEM_BOOL, ITEM_INT, ITEM_FLOAT, ITEM_STR, ITEM_BIN, ITEM_ARRAY, ITEM_MAP };

#define ITEM_MOST   1024
#define ITEM_HEADER 5 /* bytes of the longest */
#define ITEM_ROOT   UINT32_MAX

struct item {
	enum item_type type;
	size_t start;    /* of its header */
	size_t body;     /* after the header */
	size_t end;      /* after all of it, children included */
	uint32_t n;      /* bytes of a str or bin, items in an array or map (a pair is 2) */
	uint32_t parent; /* ITEM_ROOT: none */
	uint32_t place;  /* among the parent's items; in a map, even ones are keys */
};

/* The items of the one message that data starts with, parents before their children. 0: it does not start
 * with a whole one, or one of more than max items or 16 levels, or with ext types. */
size_t items_of(const uint8_t *data, size_t len, struct item *ret, size_t max);

/* The shortest header of a str, bin, array or map; count as item.n. Returns its bytes. */
size_t item_header(uint8_t bytes[ITEM_HEADER], enum item_type type, uint32_t count);

/* The same in 32 bits; count of a map is of its pairs. */
size_t item_wide_header(uint8_t bytes[ITEM_HEADER], enum item_type type, uint32_t count);

/* data[at, at + cut) becomes with[n]; false, and nothing is changed, when that passes max. */
bool item_splice(uint8_t *data, size_t *len, size_t max, size_t at, size_t cut, const uint8_t *with,
                 size_t n);

#endif
