/* SPDX-License-Identifier: Apache-2.0 */
/* Foreign text in our messages: what a peer sends may hold any byte; what we print is valid UTF-8. */
#ifndef PROTO_TEXT_H
#define PROTO_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Room for a quotation that leaves room for the sentence around it. */
#define TEXT_QUOTE_SIZE 48

/* What makes a noun a plural. */
static inline const char *text_plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

/* Writes data[len] as "data" in double quotes and returns text: printable ASCII as it is, a quote or
 * backslash behind a backslash, any other byte as \xNN; cut with "..." when it does not fit. text_size is at
 * least 6. */
char *text_quote(const char *data, size_t len, char *text, size_t text_size);

/* Copies data[len] as UTF-8 without control characters, ended by a NUL, each byte that is not '?'; cut
 * between characters when it does not fit. Returns the length. text_size is at least 1; text may be data. */
size_t text_clean(const char *data, size_t len, char *text, size_t text_size);

#endif
