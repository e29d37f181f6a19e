/* SPDX-License-Identifier: Apache-2.0 */
/* Prints documents and quantities for people. */
#ifndef CLIENT_TMACTL_TERMINAL_PRINT_H
#define CLIENT_TMACTL_TERMINAL_PRINT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "client/tmaclient.h"

/* "205 MB"; writes to text and returns it. */
char *print_bytes(uint64_t bytes, char *text, size_t text_size);

/* "8 211"; that or "0.4"; "31 us", "1.24 ms", "3.5 s"; "3 d 4 h", "12 min", "43 s". Each writes to text and
 * returns it. */
char *print_count(uint64_t count, char *text, size_t text_size);
char *print_rate(double per_s, char *text, size_t text_size);
char *print_us(double us, char *text, size_t text_size);
char *print_age(uint64_t ms, char *text, size_t text_size);

/* "1 region", "8 211 regions", "2 recoveries". */
char *print_counted(uint64_t count, const char *noun, char *text, size_t text_size);

/* A text that somebody else chose, safe for a terminal: what is not printable ASCII becomes \xNN, a backslash
 * two. What does not fit is left out. */
char *print_escaped(const char *data, size_t len, char *text, size_t text_size);

/* A text of the service's, which may be anybody's program, escaped; "?" for NULL. What is longer than 1023
 * bytes is cut; the eighth call after takes the room again. Of one thread. */
const char *print_safe(const char *text);

/* Control characters, also those of two bytes, become '?' where they stand; line ends stay. */
void print_clean(char *text);

/* A scalar, "a, b" or "key value, key value". */
void print_value(const tma_document *node);

/* Words from column on, in lines of less than 80, and a newline. at: where the line stands already. */
void print_wrapped(const char *text, int column, int at);

/* Prints text as a JSON string, quotes included, to standard output or a file. Bytes that are no ASCII are
 * taken for Latin-1 unless utf8; what is not valid UTF-8 then becomes U+FFFD. */
void print_json_string(const char *text, size_t len, int utf8);
void print_json_to(FILE *file, const char *text, size_t len, int utf8);

#endif
