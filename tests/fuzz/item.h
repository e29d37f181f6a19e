/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the items of a MessagePack message, so that one of them can be changed. */
#ifndef TESTS_FUZZ_ITEM_H
#define TESTS_FUZZ_ITEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum item_type { ITEM_NIL, ITEM_BOOL, ITEM_INT, ITEM_FLOAT, ITEM_STR, ITEM_BIN, ITEM_ARRAY, ITEM_MAP };

#define ITEM_MOST   1024
#define ITEM_HEADER 5 /* bytes of the longest header */
#define ITEM_ROOT   UINT32_MAX

struct item {
	enum item_type type;
	size_t start;    /* offset of the header */
	size_t body;     /* offset of what follows the header */
	size_t end;      /* offset of the end, after all children */
	uint32_t n;      /* bytes of a str or bin; items in an array or map, where a pair counts as 2 */
	uint32_t parent; /* index of the parent; ITEM_ROOT: none */
	uint32_t place;  /* position among the parent's items; in a map, even ones are keys */
};

/* Lists the items of the one message that data starts with, parents before their children. Returns 0 if
 * data starts with no whole message, or with one that has more than max items, more than 16 levels, or ext
 * types. */
size_t items_of(const uint8_t *data, size_t len, struct item *ret, size_t max);

/* Writes the shortest header of a str, bin, array or map; count is as item.n. Returns its bytes. */
size_t item_header(uint8_t bytes[ITEM_HEADER], enum item_type type, uint32_t count);

/* Does the same with a 32-bit count. For a map, count is the number of pairs. */
size_t item_wide_header(uint8_t bytes[ITEM_HEADER], enum item_type type, uint32_t count);

/* Replaces data[at, at + cut) by with[n]. Returns false, without changing anything, if that exceeds max. */
bool item_splice(uint8_t *data, size_t *len, size_t max, size_t at, size_t cut, const uint8_t *with,
                 size_t n);

#endif
