/* SPDX-License-Identifier: Apache-2.0 */
/* Formats quantities and texts for people, and prints documents and JSON strings. */
#ifndef CLIENT_TMACTL_TERMINAL_PRINT_H
#define CLIENT_TMACTL_TERMINAL_PRINT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "client/tmaclient.h"

/* Each of these functions writes a quantity to text, cut to text_size bytes, and returns text. The comments
 * on the right are examples. */
char *print_bytes(uint64_t bytes, char *text, size_t text_size); /* 205 MB */
char *print_count(uint64_t count, char *text, size_t text_size); /* 8 211 */
char *print_rate(double per_s, char *text, size_t text_size);    /* 8 211 or 0.4 */
char *print_us(double us, char *text, size_t text_size);         /* 31 us, 1.24 ms or 3.50 s */
char *print_age(uint64_t ms, char *text, size_t text_size);      /* 3 d 4 h, 12 min 5 s or 43 s */

/* Writes a count with its noun, such as "1 region", "8 211 regions" or "2 recoveries", and returns text. */
char *print_counted(uint64_t count, const char *noun, char *text, size_t text_size);

/* Makes an untrusted text safe for a terminal: bytes other than printable ASCII become \xNN, and a backslash
 * is doubled. Cuts what does not fit. Returns text. */
char *print_escaped(const char *data, size_t len, char *text, size_t text_size);

/* Returns a text from the service, which may be any program, escaped as by print_escaped(), or "?" for NULL.
 * Cuts it after 1023 bytes. The result is valid until the eighth call after this one. For one thread. */
const char *print_safe(const char *text);

/* Replaces control characters, including those of two bytes in UTF-8, by '?' in place, except for line
 * ends. */
void print_clean(char *text);

/* Prints a value of a document: a scalar, a list as "a, b", or a map as "key value, key value". */
void print_value(const tma_document *node);

/* Prints words in lines of less than 80 columns, which begin at `column`, and ends the last line. at is the
 * column that the current line has reached. */
void print_wrapped(const char *text, int column, int at);

/* Prints text as a JSON string in quotes, to standard output or a file. If utf8 is 0, the text is taken for
 * Latin-1; otherwise bytes that are not valid UTF-8 become U+FFFD. */
void print_json_string(const char *text, size_t len, int utf8);
void print_json_to(FILE *file, const char *text, size_t len, int utf8);

#endif
