/* Documents and quantities for people. */
#ifndef CLIENT_PRINT_H
#define CLIENT_PRINT_H

#include <stddef.h>
#include <stdint.h>

#include "tmaclient.h"

/* "205 MB"; writes to text and returns it. */
char *print_bytes(uint64_t bytes, char *text, size_t text_size);

/* A map, a line an entry, keys in one column: scalars as they are, lists and inner maps on one line. */
void print_map(const tma_document *map);

/* A scalar, "a, b" or "key value, key value". */
void print_value(const tma_document *node);

/* Words from column on, in lines of less than 80, and a newline. at: where the line stands already. */
void print_wrapped(const char *text, int column, int at);

/* text as a JSON string, quotes included. Bytes that are no ASCII are taken for Latin-1 unless utf8. */
void print_json_string(const char *text, size_t len, int utf8);

#endif
